#include <headroom/manager.hpp>

#include <algorithm>
#include <utility>

#include "flight/recorder.hpp"
#include "manager/core.hpp"
#include "manager/errors.hpp"
#include "manager/release.hpp"

namespace headroom {

using flight::LedgerCounters;
using manager::Core;

Result<GpuMemoryManager> GpuMemoryManager::create(Device device, MemoryBudget budget, std::string_view name) {
  auto core = Core::open(std::move(device), budget, name);
  if (!core) return tl::unexpected{std::move(core.error())};
  return GpuMemoryManager{**core};
}

GpuMemoryManager::GpuMemoryManager(Core& core) noexcept : core_(&core) {}
GpuMemoryManager::GpuMemoryManager(GpuMemoryManager const& other) noexcept : core_(other.core_) {
  if (core_ != nullptr) core_->add_handle();
}
GpuMemoryManager::GpuMemoryManager(GpuMemoryManager&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
GpuMemoryManager& GpuMemoryManager::operator=(GpuMemoryManager other) noexcept {
  std::swap(core_, other.core_);
  return *this;
}
GpuMemoryManager::~GpuMemoryManager() {
  if (core_ != nullptr) core_->drop_handle();
}

Result<void> GpuMemoryManager::check_budget(std::uint64_t bytes) const {
  auto const& ledger = core_->ledger();
  const std::uint64_t limit = ledger.limit_word();
  const std::uint64_t claimed = ledger.words().claimed;
  const bool enforcing = (limit & flight::kLimitEnforcing) != 0;
  const std::uint64_t most = enforcing ? limit & flight::kBytesMask : flight::kBytesMask;
  if (bytes <= flight::kBytesMask && claimed <= most && bytes <= most - claimed) return {};
  const bool unrepresentable = bytes > flight::kBytesMask || !enforcing;
  Error error = unrepresentable ? make_error(ErrorKind::overflow, Layer::request, manager::too_large_message(bytes))
                                : make_error(ErrorKind::over_budget, Layer::manager, {});
  error.requested = bytes;
  manager::add_figures(error, ledger, {.claimed_before = claimed, .limit_word = limit});
  manager::add_holders(error, ledger);
  return tl::unexpected{std::move(error)};
}

std::uint64_t GpuMemoryManager::allocated_bytes() const noexcept { return core_->ledger().words().allocated; }
std::uint64_t GpuMemoryManager::claimed_bytes() const noexcept { return core_->ledger().words().claimed; }
std::uint64_t GpuMemoryManager::peak_bytes() const noexcept { return core_->ledger().words().peak; }

std::optional<std::uint64_t> GpuMemoryManager::remaining_bytes() const noexcept {
  const auto limit = core_->ledger().budget().limit_bytes();
  if (!limit) return std::nullopt;
  const std::uint64_t claimed = claimed_bytes();
  return *limit > claimed ? *limit - claimed : 0;
}

std::uint64_t GpuMemoryManager::live_allocations() const noexcept {
  // Frees first: a free that is seen has its allocation counted already.
  const std::uint64_t frees = core_->ledger().sum(&LedgerCounters::frees);
  const std::uint64_t allocations = core_->ledger().sum(&LedgerCounters::allocations);
  return allocations > frees ? allocations - frees : 0;
}

std::uint64_t GpuMemoryManager::alloc_count() const noexcept {
  auto const& ledger = core_->ledger();
  return ledger.sum(&LedgerCounters::typed_requests) - ledger.cell().typed_requests_base.load(std::memory_order_relaxed);
}

void GpuMemoryManager::reset_alloc_count() noexcept {
  auto& ledger = core_->ledger();
  ledger.cell().typed_requests_base.store(ledger.sum(&LedgerCounters::typed_requests), std::memory_order_relaxed);
}

void GpuMemoryManager::reset_peak() noexcept { core_->ledger().reset_peak(); }

std::uint64_t GpuMemoryManager::deallocation_failure_count() const noexcept {
  constexpr ErrorKind kMisuse[] = {ErrorKind::use_after_free, ErrorKind::double_free, ErrorKind::unknown_pointer,
                                   ErrorKind::wrong_size, ErrorKind::wrong_owner};
  auto const& failures = core_->ledger().tallies().free_failures;
  std::uint64_t count = 0;
  for (std::size_t kind = 0; kind < kErrorKindCount; ++kind) {
    if (std::ranges::find(kMisuse, static_cast<ErrorKind>(kind)) != std::end(kMisuse)) continue;
    count += failures[kind].load(std::memory_order_relaxed);
  }
  return count;
}

std::uint64_t GpuMemoryManager::deallocation_failure_bytes() const noexcept {
  return core_->ledger().cell().failed_free_bytes.load(std::memory_order_relaxed);
}

std::size_t GpuMemoryManager::retry_failed_deallocations() {
  if (flight::in_forked_child()) return 0;
  std::size_t freed = 0;
  for (auto const& allocation : core_->take_quarantine()) {
    if (manager::retry(allocation)) ++freed;
  }
  return freed;
}

std::uint64_t GpuMemoryManager::write_off_failed_deallocations() {
  if (flight::in_forked_child()) return 0;
  std::uint64_t bytes = 0;
  for (auto const& allocation : core_->take_quarantine()) {
    if (manager::write_off(allocation)) bytes += allocation.bytes;
  }
  return bytes;
}

void GpuMemoryManager::set_budget(MemoryBudget budget) { core_->ledger().set_budget(budget); }
MemoryBudget GpuMemoryManager::budget() const noexcept { return core_->ledger().budget(); }

PressureLevel GpuMemoryManager::pressure_level() const noexcept {
  const auto limit = budget().limit_bytes();
  return limit ? headroom::pressure_level(claimed_bytes(), *limit) : PressureLevel::none;
}

ManagerStats GpuMemoryManager::stats() const {
  auto const& ledger = core_->ledger();
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

Device const& GpuMemoryManager::device() const noexcept { return core_->device(); }
std::string const& GpuMemoryManager::name() const noexcept { return core_->name(); }

std::optional<std::uint32_t> GpuMemoryManager::ledger_cell() const noexcept {
  const std::uint32_t index = core_->ledger().index();
  return index == flight::kNoCell ? std::nullopt : std::optional{index};
}

}  // namespace headroom
