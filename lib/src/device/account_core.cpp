// Seats at accounts, and what comes back to them.
#include "device/account_core.hpp"

#include <algorithm>

#include <headroom/resource_decorator.hpp>

#include "base/test_point.hpp"
#include "device/account_scope.hpp"
#include "device/device_entry.hpp"
#include "ledger/cells.hpp"

namespace headroom::device {

// All accounts of the process. Never destroyed: stacks with static storage may outlive everything else.
struct AccountCore::Registry {
  std::mutex mutex;
  std::vector<AccountCore*> cores;
};

AccountCore::Registry& AccountCore::registry() {
  static Registry& instance = *new Registry;
  return instance;
}

namespace {

constexpr std::uint64_t kDeviceAccount = 1;  // LedgerCell::kind

bool same_stack(std::weak_ptr<DeviceResource> const& a, std::weak_ptr<DeviceResource> const& b) noexcept {
  return !a.owner_before(b) && !b.owner_before(a);
}

// What can be held at all: a ledger counts 44 bits, and a device has no more than its total.
MemoryBudget in_force(MemoryBudget budget, std::optional<std::uint64_t> device_total) noexcept {
  const std::uint64_t asked = budget.limit_bytes().value_or(0);
  if (budget.enforces())
    return MemoryBudget::with_limit(std::min({asked, kLargestRequest, device_total.value_or(kLargestRequest)}));
  return budget.is_unlimited() ? budget : MemoryBudget::observe(std::min(asked, kLargestRequest));
}

std::string other_budget(std::string const& name, MemoryBudget present, MemoryBudget asked) {
  return "the account '" + name + "' has the budget " + present.to_string() + " from its first user; found " + asked.to_string() +
         ", expected the same, since all stacks of one device share it";
}

}  // namespace

Result<AccountCore*> AccountCore::join(Device const& device, MemoryBudget budget, std::shared_ptr<DeviceResource> const& inner) {
  if (!flight::start_recorder()) {
    return fail(ErrorKind::io, Layer::device_account, "the system has no memory for the books (about 16 MiB)");
  }
  if (flight::in_forked_child()) {
    return fail(ErrorKind::unsupported, Layer::device_account,
                "this process was forked after headroom started in its parent; make stacks in the parent, or exec");
  }
  DeviceResource& bottom = bottom_of(*inner);
  const auto total = inner->memory_info().total;
  const Opening opening{
      .device = device,
      .key = {std::string{bottom.device_uuid()}, &bottom},
      .budget = budget,
      .device_total = total,
      // Not the stack's or the device's own resource: a decorator may go while the device, and what is out in it, goes on.
      .bottom = shared_bottom_of(inner)};

  Registry& all = registry();
  const std::scoped_lock lock{all.mutex};
  AccountCore& core = find_or_open(all, opening);
  if (const MemoryBudget asked = in_force(budget, total); core.budget_ != asked) {
    return fail(ErrorKind::invalid_argument, Layer::device_account, other_budget(core.name_, core.budget_, asked));
  }
  {
    const std::scoped_lock stacks_lock{core.stacks_mutex_};
    core.stacks_.push_back(inner);
  }
  ++core.seats_;
  return &core;
}

// Under the registry's mutex. A core that this opens has no seat yet, and the budget that was asked for.
AccountCore& AccountCore::find_or_open(Registry& all, Opening const& opening) {
  const auto mine = [&](AccountCore* core) { return core->key_ == opening.key; };
  const auto open_one = std::ranges::find_if(all.cores, [&](AccountCore* core) { return core->seats_ != 0 && mine(core); });
  if (open_one != all.cores.end()) return **open_one;

  const auto left_behind = std::ranges::find_if(all.cores, [&](AccountCore* core) {
    return core->seats_ == 0 && mine(core) && core->device_still_there() && !core->ledger_.is_quiet();
  });
  if (left_behind != all.cores.end()) {
    (*left_behind)->open_again(opening);
    return **left_behind;
  }
  const auto unused = std::ranges::find_if(all.cores, [](AccountCore* core) { return core->can_be_used_again(); });
  if (unused != all.cores.end()) {
    (*unused)->ledger_.abandon();
    (*unused)->ledger_.retire_names();
    (*unused)->open(opening, (*unused)->ledger_.index());
    return **unused;
  }
  all.cores.reserve(all.cores.size() + 1);
  auto* const core = new AccountCore;
  all.cores.push_back(core);
  core->open(opening, ledger::take_cell());
  return *core;
}

// Blocks that were live in a device that is gone are gone with it. Its pending frees are reported while it ends: the last of them has
// left the pending word, and no thread is in the middle of one.
bool AccountCore::can_be_used_again() const noexcept {
  if (seats_ != 0) return false;
  return ledger_.is_quiet() || (!device_still_there() && pending_free_bytes() == 0 && !ledger_.is_in_flight());
}

void AccountCore::open(Opening const& opening, std::uint32_t cell) {
  key_ = opening.key;
  bottom_ = opening.bottom;
  name_ = "account-" + opening.device.name();
  // Before the ledger says that it is open: no reader takes it for a manager.
  if (cell != flight::kNoCell) flight::recorder.ledgers[cell].kind.store(kDeviceAccount, std::memory_order_relaxed);
  ledger_.open(cell, name_, directory_entry(opening.device), opening.budget);
  auto& words = ledger_.cell();
  words.kind.store(kDeviceAccount, std::memory_order_relaxed);
  words.device_total.store(opening.device_total ? *opening.device_total + 1 : 0, std::memory_order_relaxed);
  budget_ = in_force(opening.budget, opening.device_total);
  if (budget_ != opening.budget) {
    ledger_.set_budget(budget_);  // with its event: somebody asked for more than there is
  } else {
    const flight::LaneSection section{flight::this_thread()};
    ledger_.judge_pressure(section);
  }
}

// The device's next user, while bytes of earlier ones are still out. They count; the budget is the new user's.
void AccountCore::open_again(Opening const& opening) {
  bottom_ = opening.bottom;
  key_ = opening.key;
  ledger_.cell().state.store(static_cast<std::uint64_t>(flight::LedgerState::open), std::memory_order_release);
  budget_ = in_force(opening.budget, opening.device_total);
  if (ledger_.budget() != budget_) ledger_.set_budget(budget_);
}

void AccountCore::leave(std::weak_ptr<DeviceResource> const& inner) noexcept {
  // A mutex may have been held, at the fork, by a thread that the child does not have.
  if (flight::in_forked_child()) return;
  Registry& all = registry();
  const std::scoped_lock lock{all.mutex};
  {
    const std::scoped_lock stacks_lock{stacks_mutex_};
    const auto found = std::ranges::find_if(stacks_, [&](auto const& stack) { return same_stack(stack, inner); });
    if (found != stacks_.end()) stacks_.erase(found);
  }
  if (--seats_ == 0) ledger_.close();
}

// Pending falls before allocated, allocated before claimed: pending ≤ allocated ≤ claimed at every instant. Last the frees under way:
// claimed bytes that are live no more are always found there.
void AccountCore::returned(std::uint64_t bytes) noexcept {
  if (bytes == 0 || flight::in_forked_child()) return;
  flight::ThreadState& thread = flight::this_thread();
  const AccountScope scope{thread, ledger_, flight::InFlight::freeing, bytes};
  ledger_.cell().pending_free_bytes.fetch_sub(bytes, std::memory_order_acq_rel);
  test_point(TestPoint::return_before_retire);
  static_cast<void>(ledger_.retire(bytes));
  test_point(TestPoint::return_before_unclaim);
  const flight::LaneSection section{thread};
  ledger_.unclaim(bytes, section);
  end_free(bytes);
}

// The pending word is for readers of the file; release and acquire as with the other books.
void AccountCore::begin_free(std::uint64_t bytes) noexcept {
  frees_under_way_.fetch_add(bytes, std::memory_order_acq_rel);
  ledger_.cell().pending_free_bytes.fetch_add(bytes, std::memory_order_acq_rel);
}

void AccountCore::undo_free(std::uint64_t bytes) noexcept {
  ledger_.cell().pending_free_bytes.fetch_sub(bytes, std::memory_order_acq_rel);
  end_free(bytes);
}

void AccountCore::end_free(std::uint64_t bytes) noexcept {
  frees_under_way_.fetch_add(flight::kNumberOne - bytes, std::memory_order_acq_rel);
}

AccountCore::FreesUnderWay AccountCore::frees_under_way() const noexcept {
  const std::uint64_t word = frees_under_way_.load(std::memory_order_acquire);
  return {.bytes = word & flight::kBytesMask, .ended = word >> flight::kBytesBits};
}

std::uint64_t AccountCore::pending_free_bytes() const noexcept {
  return ledger_.cell().pending_free_bytes.load(std::memory_order_acquire);
}

}  // namespace headroom::device
