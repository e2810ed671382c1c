// The last handle of a guard goes inside an operation of that guard: the guard lives until the operation is over, and no longer.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "guards.hpp"

namespace headroom::test {
namespace {

// Owned by a hook of the guard, and gone with it.
class Alive {
public:
  void stay_in(MemoryGuard const& guard) {
    auto token = std::make_shared<int>(0);
    token_ = token;
    ASSERT_TRUE(guard.register_hook({.name = "token", .priority = 1000, .callback = [token](HookContext const&) {
                                       return static_cast<std::uint64_t>(*token);
                                     }}));
  }
  explicit operator bool() const noexcept { return !token_.expired(); }

private:
  std::weak_ptr<int> token_;
};

// A budget of 1,000 bytes on a device of 1 MiB, and a listener that drops the guard's last handle at the first change.
struct Dropped {
  std::shared_ptr<HostResource> resource = HostResource::create({.total_bytes = 1 << 20, .touch_memory = false}).value();
  GpuMemoryManager manager = GpuMemoryManager::create(host_device_over(resource).value(), MemoryBudget::with_limit(1000)).value();
  std::unique_ptr<MemoryGuard> guard;
  Alive alive;
  std::uint64_t drops = 0;
  bool lived_on = false;

  explicit Dropped(void (*configure)(MemoryGuardBuilder&) = [](MemoryGuardBuilder&) {}) {
    MemoryGuardBuilder builder{manager};
    configure(builder);
    guard = std::make_unique<MemoryGuard>(builder.build().value());
    alive.stay_in(*guard);
  }
  void drop_at_the_next_change() {
    ASSERT_TRUE(guard->add_pressure_listener([this](PressureChange const&) {
      if (guard == nullptr) return;
      guard.reset();
      ++drops;
      lived_on = static_cast<bool>(alive);
    }));
  }
  void expect_dropped() const {
    EXPECT_EQ(drops, 1U) << "the listener was called";
    EXPECT_TRUE(lived_on) << "the operation was not over";
    EXPECT_FALSE(alive) << "the operation is over";
    EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
  }
};

TEST(GuardLifetime, the_last_handle_may_go_inside_a_listener_of_a_request) {
  Dropped dropped;
  dropped.drop_at_the_next_change();
  const auto granted = dropped.guard->safe_alloc<std::byte>(900);
  EXPECT_TRUE(granted);
  dropped.expect_dropped();
}

TEST(GuardLifetime, the_last_handle_may_go_inside_a_listener_of_a_request_that_is_refused) {
  for (const bool hooks : {false, true}) {
    Dropped dropped;
    std::uint64_t calls = 0, checkpoints = 0;
    dropped.guard->set_oom_policy(OomPolicy::checkpoint_and_fail());
    ASSERT_TRUE(dropped.guard->register_hook({.name = "h", .callback = [&](HookContext const&) { return ++calls * 0; }}));
    dropped.guard->on_oom([&] { ++checkpoints; });
    dropped.resource->faults().add({.operation = FaultOperation::allocate, .times = kFaultForever});
    dropped.drop_at_the_next_change();  // the claim of 900 bytes is one, before the device says no
    const auto refused = hooks ? dropped.guard->safe_alloc_with_hooks<std::byte>(900) : dropped.guard->safe_alloc<std::byte>(900);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::device_out_of_memory);
    EXPECT_EQ(calls, hooks ? 1U : 0U) << "the operation goes on as if the handle were there";
    EXPECT_EQ(checkpoints, 1U);
    dropped.expect_dropped();
  }
}

TEST(GuardLifetime, the_last_handle_may_go_inside_a_listener_of_a_free_that_fills_the_reserve_up) {
  Dropped dropped{[](MemoryGuardBuilder& builder) { builder.emergency_reserve_bytes(10); }};
  auto held = take(*dropped.guard, 900);
  dropped.drop_at_the_next_change();
  EXPECT_TRUE(dropped.guard->free(std::move(held)));
  dropped.expect_dropped();
  EXPECT_EQ(dropped.manager.claimed_bytes(), 0U);
}

TEST(GuardLifetime, the_last_handle_may_go_inside_a_listener_of_a_plain_free) {
  Dropped dropped;
  auto held = take(*dropped.guard, 900);
  dropped.drop_at_the_next_change();
  EXPECT_TRUE(dropped.guard->free(std::move(held)));
  EXPECT_EQ(dropped.drops, 1U);
  EXPECT_FALSE(dropped.alive);
  EXPECT_EQ(dropped.manager.claimed_bytes(), 0U);
}

TEST(GuardLifetime, the_last_handle_may_go_inside_a_listener_of_a_released_reservation) {
  Dropped dropped{[](MemoryGuardBuilder& builder) { builder.reserve_bytes(900).count_reservation_against_budget(true); }};
  dropped.drop_at_the_next_change();
  EXPECT_EQ(dropped.guard->release_reservation(), 900U);
  dropped.expect_dropped();
  EXPECT_EQ(dropped.manager.claimed_bytes(), 0U);
  EXPECT_EQ(snapshot_of(dropped.manager).sentinel_bytes, 0U);
}

TEST(GuardLifetime, the_last_handle_may_go_inside_a_listener_of_a_changed_budget) {
  Dropped dropped;
  const auto held = take(*dropped.guard, 500);
  dropped.drop_at_the_next_change();
  dropped.guard->set_budget(500);
  dropped.expect_dropped();
  EXPECT_EQ(dropped.manager.budget(), MemoryBudget::with_limit(500));
}

// The handle in use goes on this thread; the last one goes on another, while the listener runs.
TEST(GuardLifetime, the_operations_handle_may_go_before_the_last_one_goes_elsewhere) {
  Dropped dropped;
  auto other = std::make_unique<MemoryGuard>(*dropped.guard);
  const auto held = take(*dropped.guard, 500);
  bool lived_on = false;
  std::uint64_t calls = 0;
  ASSERT_TRUE(dropped.guard->add_pressure_listener([&](PressureChange const&) {
    if (other == nullptr) return;
    ++calls;
    dropped.guard.reset();
    std::thread{[&] { other.reset(); }}.join();
    lived_on = static_cast<bool>(dropped.alive);
  }));
  dropped.guard->set_budget(500);
  EXPECT_EQ(calls, 1U);
  EXPECT_TRUE(lived_on);
  EXPECT_FALSE(dropped.alive);
}

TEST(GuardLifetime, a_handle_may_become_another_guards_inside_an_operation) {
  Dropped dropped;
  auto other = host_guard(1000);
  const auto held = take(*dropped.guard, 500);
  bool lived_on = false;
  ASSERT_TRUE(dropped.guard->add_pressure_listener([&](PressureChange const&) {
    *dropped.guard = other.guard;
    lived_on = static_cast<bool>(dropped.alive);
  }));
  dropped.guard->set_budget(500);
  EXPECT_TRUE(lived_on);
  EXPECT_FALSE(dropped.alive);
  EXPECT_EQ(*dropped.guard, other.guard);
  EXPECT_EQ(other.guard.budget(), 1000U);
}

// An operation inside an operation of the same guard: the outer one needs it longer.
TEST(GuardLifetime, what_goes_inside_an_inner_operation_lives_until_the_outer_one_is_over) {
  Dropped dropped;
  const auto held = take(*dropped.guard, 1000);
  bool lived_on = false;
  std::vector<std::string> order;
  ASSERT_TRUE(dropped.guard->register_hook({.name = "a", .callback = [&](HookContext const&) {
                                              order.emplace_back("a");
                                              dropped.drop_at_the_next_change();
                                              dropped.guard->set_budget(5000);
                                              lived_on = static_cast<bool>(dropped.alive);
                                              dropped.manager.set_budget(MemoryBudget::with_limit(1000));
                                              return 0U;
                                            }}));
  std::vector<std::string>& later = order;
  ASSERT_TRUE(dropped.guard->register_hook(
      {.name = "b", .priority = 1, .callback = [&later](HookContext const&) { return later.emplace_back("b"), 0U; }}));
  EXPECT_FALSE(dropped.guard->safe_alloc_with_hooks<std::byte>(1));
  EXPECT_EQ(dropped.drops, 1U);
  EXPECT_TRUE(lived_on) << "the inner operation is over, the outer one is not";
  EXPECT_EQ(order, (std::vector<std::string>{"a", "b"})) << "the round goes on without a handle";
  EXPECT_FALSE(dropped.alive);
}

// Only its own operations keep a guard.
TEST(GuardLifetime, an_operation_of_another_guard_keeps_nothing) {
  Dropped dropped;
  auto other = host_guard(1000);
  const auto held = take(other.guard, 500);
  bool lived_on = true;
  ASSERT_TRUE(other.guard.add_pressure_listener([&](PressureChange const&) {
    dropped.guard.reset();
    lived_on = static_cast<bool>(dropped.alive);
  }));
  other.guard.set_budget(500);
  EXPECT_FALSE(lived_on);
}

}  // namespace
}  // namespace headroom::test
