#include "simulated_world.hpp"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include <gtest/gtest.h>

#include "manager/route_access.hpp"

namespace headroom::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostHeld = 4;
const std::vector<std::byte> kData(4096);

OomPolicy any_policy(Random& random) {
  switch (random.below(6)) {
    case 0: return OomPolicy::fail();
    case 1: return OomPolicy::retry_after_free();
    case 2: return OomPolicy::checkpoint_and_fail();
    case 3: return OomPolicy::wait_and_retry(0ms);
    case 4: return OomPolicy::wait_and_retry(std::chrono::microseconds{200 + random.below(5000)});
    default: return OomPolicy::wait_and_retry(300ms);
  }
}

}  // namespace

// ── the device ──

Result<Block> CountedDevice::allocate(AllocRequest const& request) {
  auto block = ResourceDecorator::allocate(request);
  if (!block) {
    ++refusals;
    return block;
  }
  ++blocks;
  if (std::exchange(next_is_outside, false)) {
    outside = block->bytes;
    outside_block_ = {block->pointer, block->generation};
  }
  live += block->bytes;
  most = std::max(most, live);
  if (most_allowed) {
    EXPECT_LE(live, most_allowed()) << "more than the limit is live";
  }
  return block;
}

Result<void> CountedDevice::deallocate(Block const& block) {
  auto freed = ResourceDecorator::deallocate(block);
  const auto known = std::ranges::find_if(
      refused_, [&](Refused const& one) { return one.pointer == block.pointer && one.generation == block.generation; });
  if (freed) {
    live -= block.bytes;
    if (outside != 0 && outside_block_.pointer == block.pointer && outside_block_.generation == block.generation) outside = 0;
    if (known != refused_.end()) {
      refused -= block.bytes;
      refused_.erase(known);
    }
  } else if (known == refused_.end()) {
    refused += block.bytes;
    refused_.push_back({block.pointer, block.generation});
  }
  return freed;
}

// ── the world ──

SimulatedWorld::SimulatedWorld(Schedule& schedule, std::uint64_t seed)
    : schedule_{schedule}, random_{seed}, budget_{1024 + 256 * random_.below(13)}, largest_limit_{budget_} {
  // Half of the devices are smaller than what the budgets allow, so that both shortages occur.
  const std::uint64_t total = random_.one_in(2) ? budget_ : 4 * budget_;
  host_ = HostResource::create({.total_bytes = total, .touch_memory = false}).value();
  device_ = decorate<CountedDevice>(host_).value();
  manager_ =
      GpuMemoryManager::create(Device::custom("simulated", device_).value(), MemoryBudget::unlimited(), "simulated").value();
  const std::uint64_t reservation = random_.one_in(2) ? 64 * (1 + random_.below(4)) : 0;
  const bool counted = random_.one_in(2);
  const std::uint64_t emergency = random_.one_in(2) ? 64 * (1 + random_.below(4)) : 0;
  has_emergency_ = emergency != 0;
  device_->next_is_outside = reservation != 0 && !counted;
  guard_ = MemoryGuardBuilder(*manager_)
               .budget_bytes(budget_)
               .reserve_bytes(reservation)
               .count_reservation_against_budget(counted)
               .release_reservation_on_oom(random_.one_in(2))
               .emergency_reserve_bytes(emergency)
               .oom_policy(any_policy(random_))
               .hook_rounds(static_cast<std::uint32_t>(1 + random_.below(3)))
               .build()
               .value();
  device_->most_allowed = [this]() -> std::uint64_t {
    if (Schedule::self() < 0) return ~std::uint64_t{0};
    // What was written off is live at the device, and in no book; so is a reservation outside the budget.
    // The emergency reserve was claimed under whatever limit there was then: a budget that falls does not take it away.
    const std::uint64_t allowed = has_emergency_ && me().callbacks != 0 ? largest_limit_ : me().most_allowed;
    if (allowed == ~std::uint64_t{0}) return allowed;
    return allowed + device_->outside + (wrote_off_ ? device_->refused : 0);
  };
  const std::uint64_t threads = 3 + random_.below(4);
  for (std::uint64_t i = 0; i < threads; ++i) actors_.push_back(std::make_unique<Actor>(seed * 977 + i));
  for (std::uint64_t i = random_.below(3); i > 0; --i) register_hook(*actors_[0]);
  // A ledger keeps its observer for ever, and passes its points from then on: also the first seed of a process finds it so.
  guard_->remove_pressure_listener(guard_->add_pressure_listener([](PressureChange const&) {}).value());
  for (std::uint64_t i = random_.below(2); i > 0; --i) add_listener(*actors_[0]);
  if (random_.one_in(2)) set_callback(*actors_[0]);
}

SimulatedWorld::~SimulatedWorld() {
  // The hooks hold buffers, and are the guard's.
  shelf_.clear();
  actors_.clear();
  guard_.reset();
}

// For reports of deadlocks: asks nothing that takes a lock.
std::string SimulatedWorld::describe() const {
  auto const& cell = manager::RouteAccess::of(*manager_).ledger().cell();
  std::ostringstream out;
  out << actors_.size() << " threads, " << manager_->claimed_bytes() << " bytes of " << guard_->budget() << " claimed, policy "
      << guard_->oom_policy().to_string() << ", " << cell.waiters.load(std::memory_order_seq_cst)
      << " waiters on the ledger's epoch at " << static_cast<void const*>(&cell.epoch) << ", the program's lock at "
      << static_cast<void const*>(&lock_owner_) << " is ";
  std::string text = out.str();
  return text + (lock_owner_ < 0 ? std::string{"free"} : "held by thread " + std::to_string(lock_owner_));
}

void SimulatedWorld::act(std::size_t index) {
  Actor& actor = *actors_[index];
  for (std::uint64_t left = 5 + actor.random.below(8); left > 0; --left) {
    ++counted_.operations;
    one_operation(actor);
    // A thread that keeps memory that others wait for is part of the game; one that ends lets go.
    if (actor.held.size() > kMostHeld) free_one(actor.held);
  }
  while (!actor.held.empty()) free_one(actor.held);
  schedule_.step("dropping its reservations");
  actor.tokens.clear();
}

void SimulatedWorld::one_operation(Actor& actor) {
  Random& random = actor.random;
  const std::uint64_t choice = random.below(100);
  if (choice < 42) return allocate(actor);
  if (choice < 54) {
    schedule_.step("free");
    return free_one(actor.held);
  }
  if (choice < 58) {
    schedule_.step("free of another thread's");
    return free_one(shelf_);
  }
  if (choice < 63) return reserve(actor);
  if (choice < 69) {
    schedule_.step("register_hook");
    return register_hook(actor);
  }
  if (choice < 73) {
    schedule_.step("remove_hook");
    guard_->remove_hook("hook-" + std::to_string(random.below(4)));
    return;
  }
  if (choice < 77) {
    schedule_.step("add_pressure_listener");
    return add_listener(actor);
  }
  if (choice < 80) {
    schedule_.step("remove_pressure_listener");
    if (actor.listeners.empty()) return;
    const ListenerId id = actor.listeners.back();
    actor.listeners.pop_back();
    guard_->remove_pressure_listener(id);
    return;
  }
  if (choice < 84) {
    schedule_.step("set_budget");
    return set_budget(random.one_in(8) ? 0 : 512 + 128 * random.below(budget_ / 96));
  }
  if (choice < 88) {
    schedule_.step("set_oom_policy");
    return set_policy(random);
  }
  if (choice < 90) {
    schedule_.step("on_oom");
    return set_callback(actor);
  }
  if (choice < 93) {
    schedule_.step("a fault to come");
    return inject(random);
  }
  if (choice < 95) {
    schedule_.step("retry_failed_deallocations");
    static_cast<void>(manager_->retry_failed_deallocations());
    return;
  }
  if (choice < 96) {
    schedule_.step("release_reservation");
    counted_.released += guard_->release_reservation();
    return;
  }
  if (choice < 97) {
    schedule_.step("write_off_failed_deallocations");
    wrote_off_ = true;
    counted_.written_off += manager_->write_off_failed_deallocations();
    return;
  }
  under_the_lock(actor);
}

// ── memory ──

void SimulatedWorld::take_in(Result<Bytes> result, std::vector<Bytes>& into) {
  if (!result) return note_failure(result.error());
  ++counted_.grants;
  into.push_back(*std::move(result));
}

void SimulatedWorld::note_failure(Error const& error) {
  ++counted_.failures;
  if (error.message.find("a later try met another error") != std::string::npos) ++counted_.broken;
  EXPECT_TRUE(error.kind == ErrorKind::over_budget || error.kind == ErrorKind::device_out_of_memory ||
              error.kind == ErrorKind::driver)
      << error.to_string();
  if (error.kind == ErrorKind::over_budget && error.layer == Layer::manager) {
    EXPECT_TRUE(error.requested && error.required && error.limit && *error.required > *error.limit)
        << "refused although it fits: " << error.to_string();
  }
}

void SimulatedWorld::allocate(Actor& actor) {
  Random& random = actor.random;
  const std::uint64_t bytes = any_size(random);
  std::vector<Bytes>& into = random.one_in(5) ? shelf_ : actor.held;
  const std::uint64_t door = random.below(8);
  schedule_.step(door < 4   ? "safe_alloc_with_hooks"
                 : door < 6 ? "safe_alloc"
                 : door < 7 ? "safe_alloc_copy"
                            : "the manager's alloc");
  const Operation operation{*this, actor, bytes};
  if (door < 4) {
    take_in(guard_->safe_alloc_with_hooks<std::byte>(bytes), into);
  } else if (door < 6) {
    take_in(guard_->safe_alloc<std::byte>(bytes), into);
  } else if (door < 7) {
    take_in(guard_->safe_alloc_copy(std::span<const std::byte>{kData}.first(std::min<std::size_t>(bytes, kData.size()))), into);
  } else {
    take_in(manager_->alloc<std::byte>(bytes), into);
  }
}

void SimulatedWorld::free_one(std::vector<Bytes>& from) {
  if (from.empty()) return;
  Bytes buffer = std::move(from.front());
  from.erase(from.begin());
  give_back(std::move(buffer));
}

// By free() or by the destructor. A free that the device refuses leaves the buffer with its owner, who gives up on it here: its
// destructor tries once more, and what that cannot free is in quarantine.
void SimulatedWorld::give_back(Bytes buffer) {
  const std::uint64_t bytes = buffer.size_bytes();
  const bool in_hook = me().hooks != 0;
  if (random_.one_in(3)) {
    buffer = {};
    if (in_hook) knows_hook_freed_ = false;  // whether the device took it, only the device knows
    return;
  }
  if (guard_->free(std::move(buffer))) {
    if (in_hook) counted_.hook_freed += bytes;
    return;
  }
  if (in_hook) knows_hook_freed_ = false;  // the destructor tries again
}

void SimulatedWorld::reserve(Actor& actor) {
  schedule_.step("reserve_bytes");
  if (actor.tokens.size() > 1) {
    actor.tokens.pop_back();
    return;
  }
  const std::uint64_t bytes = any_size(actor.random);
  const Operation operation{*this, actor, bytes};
  auto reservation = manager_->reserve_bytes(bytes);
  if (!reservation) {
    ++counted_.reserve_failures;
    return;
  }
  schedule_.step("an allocation from a reservation");
  // Sometimes more than it has: refused by the reservation, whatever the budget says.
  take_in(reservation->alloc<std::byte>(actor.random.one_in(4) ? bytes + 1 : bytes / 2 + 1), actor.held);
  if (actor.random.one_in(2)) actor.tokens.push_back(*std::move(reservation));
}

// A program that holds a lock of its own while it allocates, and hooks that want it: the wait for a hook that runs elsewhere and wants
// this lock is bounded by the hook's limit.
void SimulatedWorld::under_the_lock(Actor& actor) {
  schedule_.step("the program's lock");
  schedule_.lock(lock_owner_);
  allocate(actor);
  schedule_.unlock(lock_owner_);
}

// ── budget, policy, faults ──

void SimulatedWorld::set_budget(std::uint64_t bytes) {
  const std::uint64_t most = bytes == 0 ? ~std::uint64_t{0} : bytes;
  // Before the call: it may be judged by from the middle of it on. The one before may still judge for who is under way.
  largest_limit_ = std::max(largest_limit_, most);
  for (auto const& actor : actors_) actor->most_allowed = std::max(actor->most_allowed, most);
  guard_->set_budget(bytes);
}

void SimulatedWorld::set_policy(Random& random) { guard_->set_oom_policy(any_policy(random)); }

void SimulatedWorld::inject(Random& random) {
  FaultRule rule{.nth = 1 + random.below(3), .times = 1 + random.below(4)};
  switch (random.below(5)) {
    case 0:
    case 1: break;  // a device out of memory
    case 2: rule.kind = ErrorKind::driver; break;
    case 3:
      rule.operation = FaultOperation::deallocate;
      rule.kind = ErrorKind::driver;
      break;
    default:
      rule.operation = FaultOperation::fill;
      fills_fail_ = true;
      break;
  }
  host_->faults().add(rule);
}

// ── what must hold ──

void SimulatedWorld::check_sleepers() {
  ledger::Ledger& ledger = manager::RouteAccess::of(*manager_).ledger();
  const std::uint64_t limit = guard_->budget();
  const std::uint64_t claimed = manager_->claimed_bytes();
  for (std::size_t i = 0; i < actors_.size(); ++i) {
    if (!schedule_.sleeps_on(static_cast<int>(i), &ledger.cell().epoch)) continue;
    const std::uint64_t bytes = actors_[i]->waits_for;
    if (limit == 0 || claimed + bytes <= limit) {
      schedule_.fail("a wake-up was lost: thread " + std::to_string(i) + " waits for " + std::to_string(bytes) + " bytes, and " +
                     std::to_string(claimed) + " of " + std::to_string(limit) + " are claimed");
    }
    if (guard_->oom_policy().kind() != OomPolicy::Kind::wait_and_retry) {
      schedule_.fail("a wake-up was lost: thread " + std::to_string(i) + " waits, and the policy is '" +
                     guard_->oom_policy().to_string() + "'");
    }
  }
}

void SimulatedWorld::finish() {
  ledger::Ledger& ledger = manager::RouteAccess::of(*manager_).ledger();
  const auto audit = manager_->audit();
  EXPECT_TRUE(audit.clean()) << audit.to_string();
  EXPECT_EQ(ledger.cell().waiters.load(std::memory_order_seq_cst), 0U);
  EXPECT_FALSE(ledger.is_in_flight());
  EXPECT_EQ(lock_owner_, -1);
  {
    // claimed = Σ live + unspent, where live is the device's own count less what was written off.
    const ManagerStats stats = manager_->stats();
    EXPECT_EQ(stats.claimed, stats.allocated + audit.unspent);
    EXPECT_EQ(stats.allocated + counted_.written_off + device_->outside, device_->live);
  }
  const GuardStats stats = guard_->stats();
  end_stats_ = stats;
  EXPECT_EQ(stats.refusals, counted_.failures + counted_.broken + stats.recoveries + counted_.reserve_failures);
  EXPECT_EQ(stats.hooks_run, counted_.hook_runs);
  EXPECT_EQ(stats.checkpoints, counted_.checkpoints);
  if (knows_hook_freed_ && !fills_fail_) {
    EXPECT_EQ(stats.bytes_freed_by_hooks, counted_.hook_freed);
  }

  host_->faults().clear();
  shelf_.clear();
  for (auto const& actor : actors_) {
    actor->held.clear();
    actor->tokens.clear();
  }
  for (int i = 0; i < 4; ++i) guard_->remove_hook("hook-" + std::to_string(i));  // and with them their caches
  guard_.reset();                                                                // and with it what it holds back
  static_cast<void>(manager_->retry_failed_deallocations());
  EXPECT_EQ(manager_->deallocation_failure_bytes(), 0U);
  const auto end = manager_->audit();
  EXPECT_TRUE(end.clean()) << end.to_string();
  EXPECT_EQ(end.claimed, 0U);
  EXPECT_EQ(end.live_allocations, 0U);
  EXPECT_EQ(device_->live, counted_.written_off);
  EXPECT_EQ(host_->usage().live, counted_.written_off);
}

}  // namespace headroom::test
