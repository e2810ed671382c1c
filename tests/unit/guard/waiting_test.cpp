// WaitAndRetry: who wakes a request, and that none is forgotten. Timeouts are an hour where something must wake it: a lost wake-up is
// a test that does not end.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "guards.hpp"
#include "scale.hpp"

namespace headroom::test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

const OomPolicy kPatient = OomPolicy::wait_and_retry(hours{1});

// A request on a thread of its own, and what became of it.
struct Asking {
  std::optional<Result<Bytes>> result;
  std::thread thread;
  Asking(MemoryGuard const& guard, std::uint64_t bytes)
      : thread{[this, guard, bytes] { result = guard.safe_alloc<std::byte>(bytes); }} {}
  Result<Bytes>& join() {
    thread.join();
    return *result;
  }
};

TEST(GuardWait, is_ended_by_another_threads_free_through_whichever_door) {
  for (int door = 0; door < 3; ++door) {
    auto host = host_guard(1024, kPatient);
    GpuMemoryManager manager = host.guard.manager();
    auto held = manager.alloc<std::byte>(512).value();
    std::optional<GpuMemoryReservation> reservation = manager.reserve_bytes(512).value();
    Asking asking{host.guard, 512};
    wait_until([&] { return waiters(host.guard) == 1; });
    if (door == 0) {
      EXPECT_TRUE(host.guard.free(std::move(held)));
    }
    if (door == 1) held = {};
    if (door == 2) reservation.reset();
    auto& got = asking.join();
    ASSERT_TRUE(got);
    EXPECT_EQ(waiters(host.guard), 0U);
    EXPECT_EQ(host.guard.stats().recoveries, 1U);
    EXPECT_EQ(host.guard.stats().claimed, 1024U);
  }
}

TEST(GuardWait, ends_at_its_deadline_and_not_before) {
  auto host = host_guard(1024, OomPolicy::wait_and_retry(milliseconds{20}));
  const auto held = take(host.guard, 1024);
  const auto begin = std::chrono::steady_clock::now();
  const auto refused = host.guard.safe_alloc<std::byte>(1);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds{20});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(host.guard.stats().waits, 1U);
  EXPECT_EQ(waiters(host.guard), 0U);
}

TEST(GuardWait, is_ended_by_a_larger_budget) {
  auto host = host_guard(1024, kPatient);
  const auto held = take(host.guard, 1024);
  Asking asking{host.guard, 100};
  wait_until([&] { return waiters(host.guard) == 1; });
  host.guard.set_budget(1124);
  EXPECT_TRUE(asking.join());
}

TEST(GuardWait, is_ended_by_a_budget_that_the_request_can_never_fit) {
  auto host = host_guard(1024, kPatient);
  const auto held = take(host.guard, 1024);
  Asking asking{host.guard, 100};
  wait_until([&] { return waiters(host.guard) == 1; });
  host.guard.set_budget(99);
  EXPECT_FALSE(asking.join());
}

TEST(GuardWait, a_request_above_the_limit_does_not_wait) {
  auto host = host_guard(1024, kPatient);
  EXPECT_FALSE(host.guard.safe_alloc<std::byte>(1025));
  EXPECT_EQ(host.guard.stats().waits, 0U);
  auto small = host_guard(0, kPatient, {.total_bytes = 4096, .touch_memory = false});
  EXPECT_EQ(small.guard.safe_alloc<std::byte>(4097).error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(small.guard.stats().waits, 0U) << "nor one above the device";
}

TEST(GuardWait, is_ended_by_another_policy_which_then_has_its_turn) {
  for (const OomPolicy next : {OomPolicy::fail(), OomPolicy::retry_after_free(), OomPolicy::checkpoint_and_fail(),
                               OomPolicy::wait_and_retry(milliseconds{0})}) {
    SCOPED_TRACE(next.to_string());
    auto host = host_guard(1024, kPatient);
    std::uint64_t checkpoints = 0;
    host.guard.on_oom([&] { ++checkpoints; });
    const auto held = take(host.guard, 1024);
    Asking asking{host.guard, 100};
    wait_until([&] { return waiters(host.guard) == 1; });
    host.guard.set_oom_policy(next);
    auto& refused = asking.join();
    ASSERT_FALSE(refused);
    EXPECT_EQ(checkpoints, next == OomPolicy::checkpoint_and_fail() ? 1U : 0U);
    const bool retried = refused.error().message.find("one more try") != std::string::npos;
    EXPECT_EQ(retried, next == OomPolicy::retry_after_free()) << refused.error().message;
  }
}

TEST(GuardWait, for_a_device_without_memory_is_ended_by_memory_and_by_another_policy) {
  const HostOptions kTiny{.total_bytes = 4096, .touch_memory = false};
  for (const bool freed : {true, false}) {
    auto host = host_guard(0, kPatient, kTiny);
    auto held = take(host.guard, 4096);
    Asking asking{host.guard, 1024};
    wait_until([&] { return host.guard.stats().waits == 1; });
    if (freed) {
      EXPECT_TRUE(host.guard.free(std::move(held)));
    } else {
      host.guard.set_oom_policy(OomPolicy::fail());
    }
    EXPECT_EQ(asking.join().has_value(), freed);
    EXPECT_EQ(host.guard.stats().refusals, 1U);
  }
}

TEST(GuardWait, sixty_four_requests_are_all_granted_at_once_when_there_is_room_for_all) {
  constexpr std::uint64_t kThreads = 64, kEach = 100;
  auto host = host_guard(kThreads * kEach, kPatient);
  auto held = take(host.guard, kThreads * kEach);
  std::atomic<std::uint64_t> granted{0};
  std::vector<Bytes> got(kThreads);
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      got[i] = host.guard.safe_alloc<std::byte>(kEach).value();
      ++granted;
    });
  }
  wait_until([&] { return waiters(host.guard) == kThreads; });
  EXPECT_TRUE(host.guard.free(std::move(held)));
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(granted.load(), kThreads);
  const GuardStats stats = host.guard.stats();
  EXPECT_EQ(stats.used, kThreads * kEach);
  EXPECT_EQ(stats.peak, kThreads * kEach);
  EXPECT_EQ(stats.recoveries, kThreads);
  EXPECT_EQ(stats.refusals, kThreads);
  EXPECT_EQ(waiters(host.guard), 0U);
  got.clear();
  expect_clean(host.guard);
}

TEST(GuardWait, sixty_four_threads_that_take_turns_at_one_place_are_all_served) {
  constexpr std::uint64_t kThreads = 64, kTurns = 20;
  auto host = host_guard(1000, kPatient);
  auto held = take(host.guard, 1000);
  std::atomic<std::uint64_t> inside{0}, turns{0};
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t turn = 0; turn < kTurns; ++turn) {
        auto buffer = host.guard.safe_alloc<std::byte>(501).value();  // two never fit
        EXPECT_EQ(inside.fetch_add(1), 0U);
        ++turns;
        inside.fetch_sub(1);
        if (turn % 2 != 0) continue;  // the destructor frees it
        EXPECT_TRUE(host.guard.free(std::move(buffer)));
      }
    });
  }
  wait_until([&] { return waiters(host.guard) == kThreads; });
  EXPECT_TRUE(host.guard.free(std::move(held)));
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(turns.load(), kThreads * kTurns);
  EXPECT_EQ(host.guard.stats().claimed, 0U);
  expect_clean(host.guard);
}

// Beside threads that don't wait, and take what there is: nobody who waits fails before the deadline, an hour from here.
TEST(GuardWait, three_hundred_requests_beside_threads_that_do_not_wait_all_succeed) {
  auto host = host_guard(1000, kPatient);
  auto manager = host.guard.manager();
  std::atomic<bool> over{false};
  std::vector<std::thread> greedy;
  for (int i = 0; i < 2; ++i) {
    greedy.emplace_back([&] {
      while (!over) {
        const auto block = manager.alloc<std::byte>(400);
        std::this_thread::yield();
      }
    });
  }
  std::uint64_t failed = 0;
  for (int i = 0; i < 300; ++i) failed += host.guard.safe_alloc<std::byte>(400) ? 0U : 1U;
  over = true;
  for (auto& thread : greedy) thread.join();
  EXPECT_EQ(failed, 0U);
  EXPECT_LE(host.guard.stats().peak, 1000U);
  expect_clean(host.guard);
}

// What each of them sleeps on is in wait_order_test.cpp.
TEST(GuardWait, those_short_of_the_device_and_those_short_of_the_budget_wait_side_by_side) {
  auto host = host_guard(5000, kPatient, {.total_bytes = 8192, .context_overhead_bytes = 4096, .touch_memory = false});
  auto held = take(host.guard, 4096);
  Asking first{host.guard, 400};
  Asking second{host.guard, 400};
  Asking third{host.guard, 950};  // 904 are left of the budget
  wait_until([&] { return host.guard.stats().waits == 3; });
  EXPECT_TRUE(host.guard.free(std::move(held)));
  EXPECT_TRUE(first.join());
  EXPECT_TRUE(second.join());
  EXPECT_TRUE(third.join());
  EXPECT_EQ(host.guard.stats().claimed, 1750U);
  expect_clean(host.guard);
}

// Lost wake-ups hide in races: budget changes, frees and waits at once, again and again.
TEST(GuardWait, nothing_is_lost_between_frees_and_changes_of_budget_and_policy) {
  auto host = host_guard(1000, kPatient);
  const std::uint64_t rounds = scaled(300);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    auto held = take(host.guard, 1000);
    Asking asking{host.guard, 600};
    switch (round % 3) {
      case 0: EXPECT_TRUE(host.guard.free(std::move(held))); break;
      case 1: host.guard.set_budget(1600); break;
      default: host.guard.set_oom_policy(OomPolicy::fail()); break;
    }
    EXPECT_EQ(asking.join().has_value(), round % 3 != 2);
    asking.result.reset();
    held = {};
    host.guard.set_budget(1000);
    host.guard.set_oom_policy(kPatient);
  }
  expect_clean(host.guard);
}

}  // namespace
}  // namespace headroom::test
