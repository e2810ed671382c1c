#include "manager/core.hpp"

#include <algorithm>

#include "device/device_entry.hpp"
#include "flight/directory.hpp"
#include "flight/recorder.hpp"
#include "ledger/cells.hpp"

namespace headroom::manager {
namespace {

// All cores of the process. Never destroyed: buffers with static storage may outlive everything else.
struct Registry {
  std::mutex mutex;
  std::vector<Core*> closed;  // no handle left
  std::uint32_t managers_named = 0;
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

}  // namespace

Result<Core*> Core::open(Device device, MemoryBudget budget, std::string_view name) {
  if (!flight::start_recorder()) {
    return fail(ErrorKind::io, Layer::manager, "the system has no memory for the books (about 16 MiB)");
  }
  if (flight::in_forked_child()) {
    return fail(
        ErrorKind::unsupported, Layer::manager,
        "this process was forked after headroom started in its parent; make managers before the fork in the parent, or exec");
  }
  Registry& all = registry();
  const std::scoped_lock lock{all.mutex};
  Core* core = nullptr;
  const auto quiet = std::ranges::find_if(all.closed, [](Core* closed) { return closed->ledger_.is_quiet(); });
  if (quiet != all.closed.end()) {
    core = *quiet;
    all.closed.erase(quiet);
    core->ledger_.retire_names();
    core->reopen(std::move(device), budget, name, core->ledger_.index());
  } else {
    core = new Core;
    core->reopen(std::move(device), budget, name, ledger::take_cell());
  }
  return core;
}

void Core::reopen(Device device, MemoryBudget budget, std::string_view name, std::uint32_t cell) {
  Registry& all = registry();
  name_ = name.empty() ? "manager-" + std::to_string(++all.managers_named) : std::string{name};
  device_ = std::move(device);
  resource_ = &device_->resource();
  ordinal_ = device_->ordinal();
  const MemoryInfo memory = device_->memory_info();
  ledger_.open(cell, name_, device::directory_entry(*device_), budget);
  ledger_.cell().device_total.store(memory.total ? *memory.total + 1 : 0, std::memory_order_relaxed);
  // A limit that the device cannot hold would promise memory that does not exist.
  if (budget.enforces() && memory.total && *budget.limit_bytes() > *memory.total) {
    ledger_.set_budget(MemoryBudget::with_limit(*memory.total));
  } else {
    const flight::LaneSection section{flight::this_thread()};
    ledger_.judge_pressure(section);
  }
  handles_.store(1, std::memory_order_release);
}

void Core::drop_handle() noexcept {
  if (handles_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // The registry's mutex may have been held, at the fork, by a thread that the child does not have.
  if (flight::in_forked_child()) return;
  Registry& all = registry();
  const std::scoped_lock lock{all.mutex};
  ledger_.close();
  all.closed.push_back(this);
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

}  // namespace headroom::manager
