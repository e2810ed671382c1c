// What a guard holds back: device memory from the start, and bytes of the budget for hooks and the callback.
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include <headroom/device_account.hpp>
#include <headroom/runtime.hpp>

#include "guards.hpp"
#include "stop_at.hpp"

namespace headroom::test {
namespace {

constexpr HostOptions kSmall{.total_bytes = 8192, .touch_memory = false};

struct Held {
  std::shared_ptr<HostResource> resource = HostResource::create(kSmall).value();
  MemoryGuardBuilder builder{host_device_over(resource).value()};
};

TEST(GuardReservation, is_real_device_memory_outside_the_budget) {
  Held held;
  auto guard = held.builder.budget_bytes(2048).reserve_bytes(1024).build().value();
  EXPECT_TRUE(guard.has_reservation());
  EXPECT_EQ(held.resource->usage().live, 1024U);
  EXPECT_EQ(guard.stats().device_free, 7168U);
  EXPECT_EQ(guard.stats().claimed, 0U);
  EXPECT_EQ(guard.stats().reservation, 1024U);
  EXPECT_EQ(snapshot_of(guard.manager()).sentinel_bytes, 1024U);
  EXPECT_TRUE(guard.safe_alloc<std::byte>(2048)) << "the budget is whole";
  expect_clean(guard);
}

TEST(GuardReservation, is_an_allocation_under_the_budget_if_asked_for) {
  Held held;
  auto guard = held.builder.budget_bytes(2048).reserve_bytes(1024).count_reservation_against_budget(true).build().value();
  EXPECT_EQ(guard.stats().used, 1024U);
  EXPECT_EQ(guard.stats().live_allocations, 1U);
  EXPECT_EQ(tag_bytes(snapshot_of(guard.manager()), "reservation"), 1024U);
  EXPECT_FALSE(guard.safe_alloc<std::byte>(1025));
  EXPECT_EQ(guard.release_reservation(), 1024U);
  EXPECT_EQ(guard.stats().used, 0U);
  EXPECT_TRUE(guard.safe_alloc<std::byte>(2048));
  expect_clean(guard);
}

TEST(GuardReservation, gives_its_bytes_once_and_ordinary_requests_may_use_them) {
  Held held;
  auto guard = held.builder.reserve_bytes(4096).build().value();
  EXPECT_EQ(guard.safe_alloc<std::byte>(8192).error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(guard.release_reservation(), 4096U);
  EXPECT_FALSE(guard.has_reservation());
  EXPECT_EQ(guard.release_reservation(), 0U);
  EXPECT_EQ(guard.stats().reservation, 0U);
  EXPECT_EQ(snapshot_of(guard.manager()).sentinel_bytes, 0U);
  EXPECT_TRUE(guard.safe_alloc<std::byte>(8192));
}

TEST(GuardReservation, threads_that_release_at_once_get_it_once) {
  for (int round = 0; round < 50; ++round) {
    Held held;
    auto guard = held.builder.reserve_bytes(4096).build().value();
    std::atomic<std::uint64_t> got{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) threads.emplace_back([&] { got += guard.release_reservation(); });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(got.load(), 4096U);
    EXPECT_EQ(held.resource->bytes_outstanding(), 0U);
  }
}

TEST(GuardReservation, there_is_none_unless_asked_for) {
  auto host = host_guard(1000);
  EXPECT_FALSE(host.guard.has_reservation());
  EXPECT_EQ(host.guard.release_reservation(), 0U);
}

TEST(GuardReservation, goes_back_with_its_guard) {
  for (const bool counted : {false, true}) {
    Held held;
    {
      const auto guard = held.builder.reserve_bytes(4096).count_reservation_against_budget(counted).build().value();
    }
    EXPECT_EQ(held.resource->bytes_outstanding(), 0U);
  }
}

TEST(GuardReservation, that_the_device_does_not_take_back_stays_held) {
  for (const bool counted : {false, true}) {
    Held held;
    auto guard = held.builder.reserve_bytes(1024).count_reservation_against_budget(counted).build().value();
    held.resource->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver, .device_code = 700});
    EXPECT_EQ(guard.release_reservation(), 0U);
    EXPECT_TRUE(guard.has_reservation());
    EXPECT_EQ(guard.manager().deallocation_failure_count(), 1U);
    EXPECT_EQ(guard.release_reservation(), 1024U);
    EXPECT_EQ(held.resource->bytes_outstanding(), 0U);
    expect_clean(guard);
  }
}

TEST(GuardReservation, that_the_device_does_not_take_at_its_guards_end_is_the_managers_to_retry_or_gone) {
  for (const bool counted : {false, true}) {
    auto resource = HostResource::create(kSmall).value();
    auto manager = GpuMemoryManager::create(host_device_over(resource).value(), MemoryBudget::with_limit(4096)).value();
    {
      const auto guard =
          MemoryGuardBuilder(manager).reserve_bytes(1024).count_reservation_against_budget(counted).build().value();
      // Twice: it is tried a second time.
      resource->faults().add(
          {.operation = FaultOperation::deallocate, .times = 2, .kind = ErrorKind::driver, .device_code = 700});
    }
    EXPECT_EQ(resource->bytes_outstanding(), 1024U);
    EXPECT_EQ(snapshot_of(manager).sentinel_bytes, 0U) << "nobody holds it back any longer";
    EXPECT_EQ(manager.claimed_bytes(), counted ? 1024U : 0U);
    EXPECT_EQ(manager.deallocation_failure_count(), 2U) << "each try";
    EXPECT_EQ(manager.retry_failed_deallocations(), counted ? 1U : 0U);
    EXPECT_EQ(manager.claimed_bytes(), 0U);
    EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
  }
}

TEST(GuardReservation, that_the_device_takes_at_the_second_try_of_its_guards_end_is_back) {
  for (const bool counted : {false, true}) {
    Held held;
    {
      const auto guard = held.builder.reserve_bytes(1024).count_reservation_against_budget(counted).build().value();
      held.resource->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver, .device_code = 700});
    }
    EXPECT_EQ(held.resource->bytes_outstanding(), 0U);
  }
}

// The request was refused before another one released the reservation and took a part of it: there is room for both.
TEST(GuardReservation, that_another_request_released_meanwhile_helps_all_the_same) {
  Held held;
  auto guard = held.builder.reserve_bytes(8192).release_reservation_on_oom(true).build().value();
  std::optional<Bytes> first;
  std::optional<Bytes> late;
  const auto ask = [&](std::optional<Bytes>& into) {
    if (auto buffer = guard.safe_alloc<std::byte>(1024)) into = std::move(*buffer);
  };
  while_stopped_at(TestPoint::refusal_before_record, [&] { ask(late); }, [&] { ask(first); });
  EXPECT_TRUE(first);
  EXPECT_TRUE(late) << "7,168 bytes were free";
  expect_clean(guard);
}

TEST(GuardReservation, is_the_last_resort_of_a_request_that_would_fail_for_want_of_it) {
  Held held;
  auto guard = held.builder.reserve_bytes(4096).release_reservation_on_oom(true).build().value();
  std::uint64_t checkpoints = 0;
  guard.on_oom([&] { ++checkpoints; });
  guard.set_oom_policy(OomPolicy::checkpoint_and_fail());
  EXPECT_EQ(guard.safe_alloc<std::byte>(9000).error().kind, ErrorKind::device_out_of_memory);
  EXPECT_TRUE(guard.has_reservation()) << "more than the device has: it would be for nothing";
  EXPECT_EQ(checkpoints, 1U);
  EXPECT_TRUE(guard.safe_alloc<std::byte>(6000));
  EXPECT_FALSE(guard.has_reservation());
  EXPECT_EQ(checkpoints, 1U) << "it did not fail";
  EXPECT_EQ(guard.stats().recoveries, 1U);
}

TEST(GuardReservation, outside_the_budget_does_not_go_for_a_budget_without_room) {
  for (const bool counted : {false, true}) {
    Held held;
    auto guard = held.builder.budget_bytes(2048)
                     .reserve_bytes(1024)
                     .count_reservation_against_budget(counted)
                     .release_reservation_on_oom(true)
                     .build()
                     .value();
    const auto rest = take(guard, counted ? 1024 : 2048);
    const auto more = guard.safe_alloc<std::byte>(1024);
    EXPECT_EQ(more.has_value(), counted);
    EXPECT_EQ(guard.has_reservation(), !counted);
    EXPECT_LE(guard.stats().peak, 2048U);
  }
}

// ── the emergency reserve: S39 ──

/// A hook that takes so many bytes and keeps them.
void register_keeper(MemoryGuard const& guard, std::uint64_t bytes, std::optional<Bytes>& kept) {
  ASSERT_TRUE(guard.register_hook({.name = "keeper", .callback = [&guard, bytes, &kept](HookContext const&) {
                                     if (auto buffer = guard.safe_alloc<std::byte>(bytes)) kept = std::move(*buffer);
                                     return 0U;
                                   }}));
}

TEST(EmergencyReserve, lets_a_hook_allocate_under_a_full_budget_and_is_whole_afterwards) {
  Held held;
  auto guard = held.builder.budget_bytes(4096).emergency_reserve_bytes(1024).build().value();
  EXPECT_EQ(guard.stats().claimed, 1024U);
  EXPECT_EQ(guard.stats().used, 0U);
  EXPECT_FALSE(guard.safe_alloc<std::byte>(3073)) << "ordinary requests cannot have it";
  Cache cache;
  cache.blocks.push_back(take(guard, 1024));
  const auto kept = take(guard, 2048);
  std::uint64_t scratch_bytes = 0;
  ASSERT_TRUE(guard.register_hook({.name = "spiller", .callback = [&](HookContext const&) {
                                     const auto scratch = guard.safe_alloc<std::byte>(1000);
                                     scratch_bytes = scratch ? scratch->size_bytes() : 0;
                                     EXPECT_FALSE(guard.safe_alloc<std::byte>(25)) << "the reserve has 24 left";
                                     return cache.free_one(guard);
                                   }}));
  const auto granted = guard.safe_alloc_with_hooks<std::byte>(1024);
  ASSERT_TRUE(granted);
  EXPECT_EQ(scratch_bytes, 1000U);
  EXPECT_EQ(guard.stats().used, 3072U);
  EXPECT_EQ(guard.stats().claimed, 4096U);
  EXPECT_EQ(snapshot_of(guard.manager()).unspent, 1024U) << "filled up again";
  EXPECT_EQ(snapshot_of(guard.manager()).unspent_reservations, 1U);
  EXPECT_LE(guard.stats().peak, 4096U);
  expect_clean(guard);
}

TEST(EmergencyReserve, is_filled_up_before_the_request_that_waits_is_tried_again) {
  Held held;
  auto guard = held.builder.budget_bytes(4096).emergency_reserve_bytes(1024).build().value();
  const auto kept = take(guard, 3072);
  ASSERT_TRUE(guard.register_hook({.name = "scratch", .callback = [&](HookContext const&) {
                                     EXPECT_TRUE(guard.safe_alloc<std::byte>(1024));
                                     return std::uint64_t{1024};
                                   }}));
  EXPECT_FALSE(guard.safe_alloc_with_hooks<std::byte>(1024)) << "the hook's scratch memory is not the request's to take";
  EXPECT_EQ(snapshot_of(guard.manager()).unspent, 1024U);
  expect_clean(guard);
}

TEST(EmergencyReserve, what_a_hook_keeps_of_it_comes_back_when_it_is_freed) {
  Held held;
  auto guard = held.builder.budget_bytes(4096).emergency_reserve_bytes(1024).build().value();
  const auto kept = take(guard, 3072);
  std::optional<Bytes> spilled;
  register_keeper(guard, 600, spilled);
  EXPECT_FALSE(guard.safe_alloc_with_hooks<std::byte>(1));
  EXPECT_EQ(snapshot_of(guard.manager()).unspent, 424U);
  ASSERT_TRUE(spilled);
  ASSERT_TRUE(guard.free(std::move(*spilled)));
  EXPECT_EQ(snapshot_of(guard.manager()).unspent, 1024U);
  EXPECT_EQ(guard.stats().claimed, 4096U);
  expect_clean(guard);
}

TEST(EmergencyReserve, without_one_a_hooks_request_fails_at_once) {
  auto host = host_guard(4096);
  const auto kept = take(host.guard, 4096);
  std::optional<ErrorKind> kind;
  ASSERT_TRUE(host.guard.register_hook({.name = "spiller", .callback = [&](HookContext const&) {
                                          kind = host.guard.safe_alloc<std::byte>(1000).error().kind;
                                          return 0U;
                                        }}));
  EXPECT_FALSE(host.guard.safe_alloc_with_hooks<std::byte>(1));
  EXPECT_EQ(kind, ErrorKind::over_budget);
}

TEST(EmergencyReserve, lets_the_checkpoint_allocate) {
  Held held;
  auto guard =
      held.builder.budget_bytes(4096).emergency_reserve_bytes(512).oom_policy(OomPolicy::checkpoint_and_fail()).build().value();
  const auto kept = take(guard, 3584);
  bool had_memory = false;
  guard.on_oom([&] { had_memory = guard.safe_alloc<std::byte>(512).has_value(); });
  EXPECT_FALSE(guard.safe_alloc<std::byte>(1));
  EXPECT_TRUE(had_memory);
  EXPECT_EQ(snapshot_of(guard.manager()).unspent, 512U) << "filled up again";
  expect_clean(guard);
}

TEST(EmergencyReserve, is_not_an_ordinary_requests_to_take_when_a_hooks_buffer_is_destroyed) {
  Held held;
  auto guard = held.builder.budget_bytes(4096).emergency_reserve_bytes(1024).build().value();
  const auto kept = take(guard, 3072);
  std::optional<Bytes> spilled;
  register_keeper(guard, 1024, spilled);
  EXPECT_FALSE(guard.safe_alloc_with_hooks<std::byte>(1));
  ASSERT_TRUE(spilled);
  EXPECT_EQ(snapshot_of(guard.manager()).unspent, 0U);
  spilled.reset();  // by the destructor, which knows no guard
  EXPECT_EQ(guard.stats().claimed, 3072U);
  EXPECT_FALSE(guard.safe_alloc<std::byte>(1024)) << "it is claimed back first";
  EXPECT_EQ(snapshot_of(guard.manager()).unspent, 1024U);
  expect_clean(guard);
}

TEST(EmergencyReserve, requests_that_it_serves_are_recoveries_and_those_it_cannot_say_why) {
  Held held;
  auto guard = held.builder.budget_bytes(4096).emergency_reserve_bytes(1024).build().value();
  const auto kept = take(guard, 3072);
  std::string second;
  ASSERT_TRUE(guard.register_hook({.name = "spiller", .callback = [&](HookContext const&) {
                                     EXPECT_TRUE(guard.safe_alloc<std::byte>(100));
                                     held.resource->faults().add(
                                         {.operation = FaultOperation::fill, .kind = ErrorKind::driver, .device_code = 700});
                                     const auto broken = guard.safe_alloc<std::byte>(100);
                                     EXPECT_FALSE(broken);
                                     if (!broken) second = broken.error().message;
                                     return 0U;
                                   }}));
  EXPECT_FALSE(guard.safe_alloc_with_hooks<std::byte>(1));
  EXPECT_THAT(second, ::testing::HasSubstr("a later try met another error"));
  const GuardStats stats = guard.stats();
  EXPECT_EQ(stats.recoveries, 1U);
  EXPECT_EQ(stats.refusals, 4U) << "the outer request, two inner ones, and the device that could not fill";
  expect_clean(guard);
}

// The budget below is full, so that what was used of the reserve cannot be claimed back: that is nobody's refusal.
TEST(EmergencyReserve, that_cannot_be_filled_up_refuses_no_request) {
  auto resource = HostResource::create(kSmall).value();
  const auto device = host_device_over(resource).value();
  auto stack = GlobalDeviceBudget::create(device, MemoryBudget::with_limit(2048)).value();
  auto runtime = DeviceRuntime::create(device, {.stack = stack}).value();
  auto manager = GpuMemoryManager::with_runtime(device, MemoryBudget::with_limit(1536), runtime, "guarded").value();
  auto other = GpuMemoryManager::with_runtime(device, MemoryBudget::unlimited(), runtime, "other").value();
  auto guard = MemoryGuardBuilder(manager).emergency_reserve_bytes(512).build().value();
  const auto kept = take(guard, 1024);
  const auto others = other.alloc<std::byte>(512).value();
  std::optional<Bytes> spilled;
  register_keeper(guard, 512, spilled);
  EXPECT_FALSE(guard.safe_alloc_with_hooks<std::byte>(1));
  ASSERT_TRUE(spilled) << "out of the reserve";
  spilled.reset();
  const auto more = other.alloc<std::byte>(512).value();
  const std::uint64_t before = guard.stats().refusals;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(guard.safe_alloc<std::byte>(128).error().layer, Layer::device_account);
  EXPECT_EQ(guard.stats().refusals, before + 10);
  expect_clean(guard);
}

TEST(EmergencyReserve, goes_back_with_its_guard_also_through_a_device_budget) {
  auto resource = HostResource::create(kSmall).value();
  const auto device = host_device_over(resource).value();
  auto manager = GpuMemoryManager::create(device, MemoryBudget::with_limit(4096)).value();
  {
    const auto guard = MemoryGuardBuilder(manager).emergency_reserve_bytes(1024).build().value();
    EXPECT_EQ(manager.claimed_bytes(), 1024U);
  }
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_TRUE(manager.audit().clean());
}

}  // namespace
}  // namespace headroom::test
