// What the hooks, listeners and callbacks of a simulated program do: everything that they may.
#include <algorithm>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <utility>

#include "simulated_world.hpp"

namespace headroom::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostCached = 2;
constexpr std::uint64_t kMostListenerActs = 60;

}  // namespace

void SimulatedWorld::allocate_inside(Random& random, std::vector<Bytes>& into) {
  const std::uint64_t bytes = 64 * (1 + random.below(4));
  const Operation operation{*this, me(), bytes};
  if (random.one_in(2)) {
    take_in(guard_->safe_alloc_with_hooks<std::byte>(bytes), into);
  } else {
    take_in(guard_->safe_alloc<std::byte>(bytes), into);
  }
}

void SimulatedWorld::register_hook(Actor& actor) {
  auto hook = std::make_shared<HookState>(*this);
  hook->name = "hook-" + std::to_string(hook_names_++ % 4);
  Random& random = actor.random;
  const std::uint64_t overhead = random.one_in(4) ? 256 : 0;
  const auto limit = random.one_in(3) ? std::chrono::nanoseconds{1ms} : std::chrono::nanoseconds{1s};
  EXPECT_TRUE(guard_->register_hook({.name = hook->name,
                                     .priority = static_cast<std::int32_t>(random.below(3)),
                                     .estimated_free_bytes = 64 * random.below(8),
                                     .execution_overhead_bytes = overhead,
                                     .callback = [this, hook](HookContext const& context) { return run_hook(*hook, context); },
                                     .time_limit = limit}));
}

std::uint64_t SimulatedWorld::run_hook(HookState& hook, HookContext const& context) {
  Actor& actor = me();
  ++counted_.hook_runs;
  ++actor.hooks;
  ++actor.callbacks;
  EXPECT_EQ(actor.hooks, 1) << "a hook inside a hook";
  EXPECT_GT(context.requested_bytes, 0U);
  std::uint64_t freed = 0;
  schedule_.step("a hook");
  bool throws = false;
  for (std::uint64_t left = random_.below(3); left > 0; --left) {
    switch (random_.below(11)) {
      case 0:
      case 1:
      case 2: {  // its cache
        if (hook.cache.empty()) break;
        Bytes buffer = std::move(hook.cache.front());
        hook.cache.pop_front();
        freed += buffer.size_bytes();
        give_back(std::move(buffer));
        break;
      }
      case 3: freed += 1 << 20; break;  // it lies
      case 4: throws = true; break;
      case 5: guard_->remove_hook(hook.name); break;  // itself, and its namesakes
      case 6: guard_->remove_hook("hook-" + std::to_string(random_.below(4))); break;
      case 7: register_hook(actor); break;
      case 8: {
        std::vector<Bytes> got;
        allocate_inside(random_, got);
        if (got.empty()) break;
        if (hook.cache.size() < kMostCached) {
          hook.cache.push_back(std::move(got.front()));
        } else {
          give_back(std::move(got.front()));
        }
        break;
      }
      case 9:  // a lock that another thread may hold while it asks for memory
        if (lock_owner_ == Schedule::self()) break;
        schedule_.lock(lock_owner_);
        schedule_.step("a hook that has the program's lock");
        schedule_.unlock(lock_owner_);
        break;
      default:
        if (random_.one_in(3)) {
          set_policy(random_);
        } else if (random_.one_in(3)) {
          set_budget(512 + 128 * random_.below(budget_ / 96));
        } else {
          free_one(shelf_);
        }
        break;
    }
  }
  --actor.hooks;
  --actor.callbacks;
  if (throws) {
    ++counted_.hook_throws;
    throw std::runtime_error{"a hook on purpose"};
  }
  return freed;
}

void SimulatedWorld::add_listener(Actor& actor) {
  auto id = std::make_shared<std::optional<ListenerId>>();
  const std::uint64_t kind = actor.random.below(6);
  const auto added = guard_->add_pressure_listener([this, id, kind](PressureChange const& change) {
    EXPECT_NE(change.from, change.to);
    hear(id, kind);
  });
  ASSERT_TRUE(added);
  *id = *added;
  actor.listeners.push_back(*added);
}

void SimulatedWorld::hear(std::shared_ptr<std::optional<ListenerId>> const& id, std::uint64_t kind) {
  ++counted_.notices;
  if (Schedule::self() < 0) return;
  Actor& actor = me();
  // Listeners that cause changes themselves are told of those as well, up to 256 at a time, and each of them may wait: enough.
  if (actor.callbacks > 3 || listener_acts_ == kMostListenerActs) return;
  ++listener_acts_;
  ++actor.callbacks;
  schedule_.step("a listener");
  switch (kind) {
    case 0:
      if (actor.hooks == 0 || random_.one_in(2)) allocate_inside(random_, shelf_);
      break;
    case 1:
      if (*id) guard_->remove_pressure_listener(**id);
      break;
    case 2: free_one(shelf_); break;
    case 3: --actor.callbacks; throw std::runtime_error{"a listener on purpose"};
    case 4:
      if (lock_owner_ == Schedule::self()) break;
      schedule_.lock(lock_owner_);
      schedule_.step("a listener that has the program's lock");
      schedule_.unlock(lock_owner_);
      break;
    default: break;
  }
  --actor.callbacks;
}

void SimulatedWorld::set_callback(Actor& actor) {
  std::function<void()> callback;
  if (!actor.random.one_in(6)) callback = [this] { checkpoint(); };
  EXPECT_TRUE(guard_->on_oom(std::move(callback)));
}

void SimulatedWorld::checkpoint() {
  ++counted_.checkpoints;
  Actor& actor = me();
  ++actor.callbacks;
  schedule_.step("the on_oom callback");
  switch (random_.below(5)) {
    case 0: allocate_inside(random_, shelf_); break;
    case 1: free_one(shelf_); break;
    case 2: guard_->on_oom([this] { checkpoint(); }); break;
    case 3: --actor.callbacks; throw std::runtime_error{"a callback on purpose"};
    default: break;
  }
  --actor.callbacks;
}

}  // namespace headroom::test
