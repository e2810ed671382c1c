#include <headroom/manager.hpp>

#include <algorithm>
#include <utility>

#include "device/device_figures.hpp"
#include "flight/recorder.hpp"
#include "manager/core.hpp"
#include "manager/errors.hpp"
#include "manager/release.hpp"
#include "manager/route.hpp"
#include "manager/shortage.hpp"

namespace headroom {

using flight::LedgerCounters;
using manager::Core;
using manager::Route;

Result<GpuMemoryManager> GpuMemoryManager::create(Device device, MemoryBudget budget, std::string_view name) {
  return Core::open(std::move(device), budget, name, std::nullopt).map([](Route* route) { return GpuMemoryManager{*route}; });
}

Result<GpuMemoryManager> GpuMemoryManager::with_runtime(Device device, MemoryBudget budget, DeviceRuntime runtime,
                                                        std::string_view name) {
  if (runtime.device() != device) {
    return fail(ErrorKind::invalid_argument, Layer::runtime, manager::other_device_message(runtime.device(), device));
  }
  return Core::open(std::move(device), budget, name, std::move(runtime)).map([](Route* route) {
    return GpuMemoryManager{*route};
  });
}

Result<GpuMemoryManager> GpuMemoryManager::with_runtime_overlay(DeviceRuntime runtime) const {
  if (flight::in_forked_child()) return tl::unexpected{manager::forked_child_error()};
  // All checks before anything is shared: an error leaves no trace.
  if (runtime.device().ordinal() != device().ordinal()) {
    return fail(ErrorKind::invalid_argument, Layer::runtime, manager::other_device_message(runtime.device(), device()));
  }
  if (runtime.device() != device()) {
    return fail(ErrorKind::wrong_owner, Layer::runtime, manager::other_device_message(runtime.device(), device()));
  }
  if (!runtime.tracks_uses()) {
    return fail(ErrorKind::unsupported, Layer::runtime,
                "the stack '" + std::string{runtime.stack().name()} +
                    "' does not track uses: an overlay must keep order between the streams of both ways in");
  }
  return GpuMemoryManager{route_->core().overlay(std::move(runtime))};
}

DeviceRuntime const* GpuMemoryManager::runtime() const noexcept { return route_->runtime(); }

GpuMemoryManager::GpuMemoryManager(Route& route) noexcept : route_(&route) {}
GpuMemoryManager::GpuMemoryManager(GpuMemoryManager const& other) noexcept : route_(other.route_) {
  if (route_ != nullptr) route_->add_handle();
}
GpuMemoryManager::GpuMemoryManager(GpuMemoryManager&& other) noexcept : route_(std::exchange(other.route_, nullptr)) {}
GpuMemoryManager& GpuMemoryManager::operator=(GpuMemoryManager other) noexcept {
  std::swap(route_, other.route_);
  return *this;
}
GpuMemoryManager::~GpuMemoryManager() {
  if (route_ != nullptr) route_->drop_handle();
}

Result<void> GpuMemoryManager::check_budget(std::uint64_t bytes) const {
  auto const& ledger = route_->ledger();
  const bool countable = bytes <= flight::kBytesMask;
  const ledger::ClaimResult claim = countable ? ledger.look(bytes) : manager::present_claim(ledger);
  if (countable && claim.outcome == ledger::ClaimOutcome::granted) return {};
  const bool unrepresentable = !countable || claim.outcome == ledger::ClaimOutcome::overflow;
  Error error = unrepresentable ? make_error(ErrorKind::overflow, Layer::request, manager::too_large_message(bytes))
                                : make_error(ErrorKind::over_budget, Layer::manager, {});
  error.requested = bytes;
  manager::add_figures(error, ledger, claim);
  manager::add_holders(error, ledger);
  return tl::unexpected{std::move(error)};
}

Result<void> GpuMemoryManager::reap_pending_deallocations() {
  if (flight::in_forked_child()) return tl::unexpected{manager::forked_child_error()};
  if (!route_->has_runtime()) return {};
  auto reaped = manager::reap_all(route_->resource());
  refresh_device_figures();
  return reaped;
}

Result<void> GpuMemoryManager::record_free(std::uint64_t bytes) const {
  if (bytes == 0) return {};
  const auto words = route_->ledger().words();
  Error error =
      words.claimed != 0
          ? make_error(ErrorKind::invalid_argument, Layer::request,
                       "nobody can show that these bytes are theirs: owners give their own bytes back, " +
                           std::to_string(words.allocated) + " are allocated and " + std::to_string(words.claimed) + " claimed")
          : make_error(ErrorKind::overflow, Layer::request, "nothing is allocated: freeing would underflow");
  error.requested = bytes;
  error.current = words.claimed;
  return tl::unexpected{std::move(error)};
}

Result<void> GpuMemoryManager::reset_tracking() {
  const auto words = route_->ledger().words();
  if (words.claimed != 0) {
    Error error = make_error(ErrorKind::invalid_argument, Layer::request,
                             "tracking is reset only while nothing is allocated or reserved; " + std::to_string(words.allocated) +
                                 " bytes are allocated and " + std::to_string(words.claimed) + " claimed");
    error.current = words.claimed;
    return tl::unexpected{std::move(error)};
  }
  route_->ledger().reset_peak();
  return {};
}

std::uint64_t GpuMemoryManager::allocated_bytes() const noexcept { return route_->ledger().words().allocated; }
std::uint64_t GpuMemoryManager::claimed_bytes() const noexcept { return route_->ledger().words().claimed; }
std::uint64_t GpuMemoryManager::peak_bytes() const noexcept { return route_->ledger().words().peak; }

std::optional<std::uint64_t> GpuMemoryManager::remaining_bytes() const noexcept {
  const auto limit = route_->ledger().budget().limit_bytes();
  if (!limit) return std::nullopt;
  const std::uint64_t claimed = claimed_bytes();
  return *limit > claimed ? *limit - claimed : 0;
}

std::uint64_t GpuMemoryManager::live_allocations() const noexcept {
  // Frees first: a free that is seen has its allocation counted already.
  const std::uint64_t frees = route_->ledger().sum(&LedgerCounters::frees);
  const std::uint64_t allocations = route_->ledger().sum(&LedgerCounters::allocations);
  return allocations > frees ? allocations - frees : 0;
}

std::uint64_t GpuMemoryManager::alloc_count() const noexcept {
  auto const& ledger = route_->ledger();
  // The base first: every count that it holds is then seen in the sum.
  const std::uint64_t base = ledger.cell().typed_requests_base.load(std::memory_order_acquire);
  return ledger.sum(&LedgerCounters::typed_requests) - base;
}

std::uint64_t GpuMemoryManager::raw_alloc_count() const noexcept { return route_->ledger().sum(&LedgerCounters::raw_requests); }

void GpuMemoryManager::reset_alloc_count() noexcept {
  auto& ledger = route_->ledger();
  ledger.cell().typed_requests_base.store(ledger.sum(&LedgerCounters::typed_requests), std::memory_order_release);
}

void GpuMemoryManager::reset_peak() noexcept { route_->ledger().reset_peak(); }

std::uint64_t GpuMemoryManager::deallocation_failure_count() const noexcept {
  auto const& ledger = route_->ledger();
  // Misuse first: one that is seen has been counted among the failures already.
  const std::uint64_t misuses = ledger.misuses();
  std::uint64_t failures = 0;
  for (auto const& count : ledger.tallies().free_failures) failures += count.load(std::memory_order_relaxed);
  return failures - misuses;
}

std::uint64_t GpuMemoryManager::deallocation_failure_bytes() const noexcept {
  return route_->ledger().cell().failed_free_bytes.load(std::memory_order_relaxed);
}

std::size_t GpuMemoryManager::retry_failed_deallocations() {
  if (flight::in_forked_child()) return 0;
  std::size_t freed = 0;
  for (auto const& allocation : route_->core().take_quarantine()) {
    if (manager::retry(allocation)) ++freed;
  }
  return freed;
}

std::uint64_t GpuMemoryManager::write_off_failed_deallocations() {
  if (flight::in_forked_child()) return 0;
  std::uint64_t bytes = 0;
  for (auto const& allocation : route_->core().take_quarantine()) {
    if (manager::write_off(allocation)) bytes += allocation.bytes;
  }
  return bytes;
}

void GpuMemoryManager::set_budget(MemoryBudget budget) {
  route_->ledger().set_budget(budget);
  refresh_device_figures();
  ledger::deliver_notices_if_due(flight::this_thread());
}

void GpuMemoryManager::refresh_device_figures() const noexcept {
  if (flight::in_forked_child()) return;
  device::refresh_figures(route_->ledger(), route_->resource());
}

MemoryBudget GpuMemoryManager::budget() const noexcept { return route_->ledger().budget(); }

std::optional<std::uint64_t> GpuMemoryManager::budget_limit_bytes() const noexcept { return budget().limit_bytes(); }

PressureLevel GpuMemoryManager::pressure_level() const noexcept {
  const auto limit = budget().limit_bytes();
  return limit ? headroom::pressure_level(claimed_bytes(), *limit) : PressureLevel::none;
}

ManagerStats GpuMemoryManager::stats() const {
  auto const& ledger = route_->ledger();
  ManagerStats stats;
  const auto words = ledger.words();
  stats.claimed = words.claimed;
  stats.allocated = words.allocated;
  stats.peak = words.peak;
  stats.limit = ledger.budget().limit_bytes();
  stats.frees = ledger.sum(&LedgerCounters::frees);
  stats.allocations = ledger.sum(&LedgerCounters::allocations);
  stats.live_allocations = stats.allocations > stats.frees ? stats.allocations - stats.frees : 0;
  stats.deallocation_bytes = ledger.sum(&LedgerCounters::deallocation_bytes);
  stats.allocation_bytes = ledger.sum(&LedgerCounters::allocation_bytes);
  for (auto const& by_layer : ledger.tallies().refusals) {
    for (auto const& count : by_layer) stats.refusals += count.load(std::memory_order_relaxed);
  }
  stats.observed_refusals = ledger.tallies().observed.load(std::memory_order_relaxed);
  stats.pressure_transitions = ledger.cell().pressure.load(std::memory_order_relaxed) >> 8;
  return stats;
}

Device const& GpuMemoryManager::device() const noexcept { return route_->core().device(); }
std::string const& GpuMemoryManager::name() const noexcept { return route_->core().name(); }

std::optional<std::uint32_t> GpuMemoryManager::ledger_cell() const noexcept {
  const std::uint32_t index = route_->ledger().index();
  return index == flight::kNoCell ? std::nullopt : std::optional{index};
}

}  // namespace headroom
