#include "manager/core.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "device/device_account_cell.hpp"
#include "device/device_entry.hpp"
#include "device/device_figures.hpp"
#include "flight/directory.hpp"
#include "flight/recorder.hpp"
#include "ledger/cells.hpp"
#include "manager/failure_observer.hpp"

namespace headroom::manager {
namespace {

// All cores of the process. Never destroyed: buffers with static storage may outlive everything else.
struct Registry {
  std::mutex mutex;
  std::vector<Core*> closed;  // no handle left; room for every core there is, since closing one must not fail
  std::size_t cores = 0;
  std::uint32_t managers_named = 0;
};

// As a ledger's cell has it. Asks the stack: under no lock.
std::uint64_t parent_word_of(DeviceResource const& resource) noexcept {
  const auto cell = device::account_cell_of(resource);
  return cell ? std::uint64_t{*cell} + 1 : 0;
}

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

bool same_block(Allocation const& a, Allocation const& b) noexcept {
  return a.slot == b.slot && a.slot_generation == b.slot_generation;
}

}  // namespace

Result<Route*> Core::open(Device device, MemoryBudget budget, std::string_view name, std::optional<DeviceRuntime> runtime) {
  if (!flight::start_recorder()) {
    return fail(ErrorKind::io, Layer::manager, "the system has no memory for the books (about 16 MiB)");
  }
  if (flight::in_forked_child()) {
    return fail(
        ErrorKind::unsupported, Layer::manager,
        "this process was forked after headroom started in its parent; make managers before the fork in the parent, or exec");
  }
  start_observing_failures();
  Core* core = nullptr;
  std::string full_name{name};
  {
    Registry& all = registry();
    const std::scoped_lock lock{all.mutex};
    if (full_name.empty()) full_name = "manager-" + std::to_string(++all.managers_named);
    // Rather one with a cell, since readers see it; then rather one that still holds its device and runtime.
    auto quiet = all.closed.end();
    int best = -1;
    for (auto it = all.closed.begin(); it != all.closed.end(); ++it) {
      const int worth = ((*it)->ledger_.index() != flight::kNoCell ? 2 : 0) + ((*it)->device_ ? 1 : 0);
      if (worth > best && (*it)->ledger_.is_quiet()) {
        quiet = it;
        best = worth;
      }
    }
    if (quiet != all.closed.end()) {
      core = *quiet;
      all.closed.erase(quiet);
    } else {
      all.closed.reserve(all.cores + 1);
      ++all.cores;
    }
  }
  std::uint32_t cell = 0;
  if (core != nullptr) {
    core->let_go();
    core->ledger_.retire_names();
    cell = core->ledger_.index();
  } else {
    core = new Core;
    cell = ledger::take_cell();
  }
  core->reopen(std::move(device), budget, std::move(full_name), cell, std::move(runtime));
  return &core->first_;
}

void Core::reopen(Device device, MemoryBudget budget, std::string name, std::uint32_t cell,
                  std::optional<DeviceRuntime> runtime) {
  name_ = std::move(name);
  device_ = std::move(device);
  const MemoryInfo memory = device_->memory_info();
  DeviceResource& resource = runtime ? runtime->stack() : device_->resource();
  ledger_.open(cell, name_, device::directory_entry(*device_), budget);
  // An account that has this manager's blocks speaks for the device.
  const bool has_account = device::budget_in(resource) != nullptr;
  ledger_.cell().physical_device.store(has_account ? 0 : device::physical_device(resource), std::memory_order_relaxed);
  first_.open(resource, device_->ordinal(), std::move(runtime), parent_word_of(resource));
  name_parent();
  device::refresh_figures(ledger_, resource);
  // A limit that the device cannot hold would promise memory that does not exist.
  if (budget.enforces() && memory.total && *budget.limit_bytes() > *memory.total) {
    ledger_.set_budget(MemoryBudget::with_limit(*memory.total));
  } else {
    const flight::LaneSection section{flight::this_thread()};
    ledger_.judge_pressure(section);
  }
  first_.add_handle();
}

Route& Core::overlay(DeviceRuntime runtime) {
  std::optional<DeviceRuntime> leftover;  // destroyed after the lock
  DeviceResource& resource = runtime.stack();
  const std::uint64_t parent_word = parent_word_of(resource);
  const std::scoped_lock lock{overlays_mutex_};
  const auto is_through = [&](Route const& route) { return route.has_runtime() && *route.runtime() == runtime; };
  Route* found = is_through(first_) ? &first_ : nullptr;
  Route* idle = nullptr;
  for (auto const& route : overlays_) {
    if (is_through(*route)) found = route.get();
    if (idle == nullptr && !route->has_handles() && !route->has_live()) idle = route.get();
  }
  if (found == nullptr) {
    if (idle == nullptr) idle = overlays_.emplace_back(std::make_unique<Route>(*this, ledger_, Route::Kind::overlay)).get();
    leftover = idle->clear();
    idle->open(resource, device_->ordinal(), std::move(runtime), parent_word);
    name_parent();
    found = idle;
  }
  found->add_handle();
  return *found;
}

void Core::leave(Route& route) noexcept {
  // The mutexes may have been held, at the fork, by threads that the child does not have.
  if (flight::in_forked_child()) return;
  // Somebody may have asked for the same overlay again since. What is still live keeps the runtime until the last of it is freed.
  if (route.is_unneeded_overlay()) let_go_of(route);
  if (routes_in_use_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  ledger_.close();
  {
    Registry& all = registry();
    const std::scoped_lock lock{all.mutex};
    all.closed.push_back(this);  // there is room: see open
  }
  let_go_if_quiet();  // else whoever frees the last block does it
}

void Core::let_go_of(Route& overlay) noexcept {
  std::optional<DeviceRuntime> runtime;  // destroyed after the lock
  const std::scoped_lock lock{overlays_mutex_};
  if (!overlay.is_unneeded_overlay() || !overlay.has_runtime()) return;
  runtime = overlay.clear();
  name_parent();
}

// A thread whose last bytes are gone may still be writing its record, and may have looked at the state just before it was closed: it is
// given a moment. One that is interrupted there looks again later; at worst the next core to be opened lets this one go.
void Core::let_go_if_quiet() noexcept {
  constexpr int kMoments = 64;
  for (int moment = 0; ledger_.holds_nothing() && !ledger_.is_quiet() && moment < kMoments; ++moment) std::this_thread::yield();
  if (!ledger_.is_quiet()) return;
  Registry& all = registry();
  {
    // Out of the list meanwhile, so that nobody opens it.
    const std::scoped_lock lock{all.mutex};
    const auto at = std::ranges::find(all.closed, this);
    if (at == all.closed.end() || !device_ || !ledger_.is_quiet()) return;
    all.closed.erase(at);
  }
  let_go();
  const std::scoped_lock lock{all.mutex};
  all.closed.push_back(this);
}

void Core::name_parent() noexcept {
  std::uint64_t word = first_.parent_word();
  for (auto const& route : overlays_) word = word != 0 ? word : route->parent_word();
  // Relaxed: written before the first operation that goes through the account, and what an operation in flight names besides is only
  // an upper bound.
  ledger_.cell().parent_cell.store(word, std::memory_order_relaxed);
}

void Core::let_go() noexcept {
  for (;;) {
    std::optional<DeviceRuntime> runtime;  // destroyed after the lock
    const std::scoped_lock lock{overlays_mutex_};
    const auto held = std::ranges::find_if(overlays_, [](auto const& route) { return route->has_runtime(); });
    if (held == overlays_.end()) break;
    runtime = (*held)->clear();
  }
  static_cast<void>(first_.clear());
  device_.reset();
}

void Core::quarantine(Allocation const& allocation) noexcept {
  try {
    const std::scoped_lock lock{quarantine_mutex_};
    quarantine_.push_back(allocation);
  } catch (...) {
    return;  // its slot still says `failed` and its bytes stay charged: only a retry is lost
  }
}

std::vector<Allocation> Core::take_quarantine() {
  const std::scoped_lock lock{quarantine_mutex_};
  return std::exchange(quarantine_, {});
}

void Core::leave_quarantine(Allocation const& allocation) noexcept {
  const std::scoped_lock lock{quarantine_mutex_};
  std::erase_if(quarantine_, [&](Allocation const& other) { return same_block(other, allocation); });
}

void Core::correct_quarantine(Allocation const& allocation) noexcept {
  const std::scoped_lock lock{quarantine_mutex_};
  const auto found = std::ranges::find_if(quarantine_, [&](Allocation const& other) { return same_block(other, allocation); });
  if (found != quarantine_.end()) *found = allocation;
}

}  // namespace headroom::manager
