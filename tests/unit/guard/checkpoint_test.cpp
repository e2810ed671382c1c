// The on_oom callback: when it runs, what it may do, and who shares a run.
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "guards.hpp"

namespace headroom::test {
namespace {

using std::chrono::hours;

struct FullGuard {
  HostGuard host = host_guard(1024, OomPolicy::checkpoint_and_fail());
  Bytes held = take(host.guard, 1024);
  MemoryGuard const& guard = host.guard;
};

TEST(Checkpoint, runs_once_for_each_request_that_fails_under_its_policy_and_for_no_other) {
  FullGuard full;
  std::uint64_t runs = 0;
  full.guard.on_oom([&] { ++runs; });
  for (std::uint64_t i = 1; i <= 3; ++i) {
    EXPECT_FALSE(full.guard.safe_alloc<std::byte>(1));
    EXPECT_EQ(runs, i);
  }
  for (const OomPolicy policy :
       {OomPolicy::fail(), OomPolicy::retry_after_free(), OomPolicy::wait_and_retry(std::chrono::nanoseconds{0})}) {
    full.guard.set_oom_policy(policy);
    EXPECT_FALSE(full.guard.safe_alloc<std::byte>(1));
  }
  EXPECT_EQ(runs, 3U);
}

TEST(Checkpoint, runs_on_the_thread_whose_request_fails) {
  FullGuard full;
  std::thread::id ran_on;
  full.guard.on_oom([&] { ran_on = std::this_thread::get_id(); });
  std::thread::id asked_on;
  std::thread asking{[&] {
    asked_on = std::this_thread::get_id();
    EXPECT_FALSE(full.guard.safe_alloc<std::byte>(1));
  }};
  asking.join();
  EXPECT_EQ(ran_on, asked_on);
}

TEST(Checkpoint, the_newest_callback_replaces_the_one_before_and_an_empty_one_takes_it_away) {
  FullGuard full;
  std::uint64_t first = 0, second = 0;
  full.guard.on_oom([&] { ++first; });
  full.guard.on_oom([&] { ++second; });
  EXPECT_FALSE(full.guard.safe_alloc<std::byte>(1));
  full.guard.on_oom({});
  EXPECT_FALSE(full.guard.safe_alloc<std::byte>(1));
  EXPECT_EQ(first, 0U);
  EXPECT_EQ(second, 1U);
}

TEST(Checkpoint, does_not_save_the_request_even_if_it_frees_memory) {
  FullGuard full;
  full.guard.on_oom([&] { EXPECT_TRUE(full.guard.free(std::move(full.held))); });
  EXPECT_FALSE(full.guard.safe_alloc<std::byte>(1)) << "checkpoint, and fail";
  EXPECT_TRUE(full.guard.safe_alloc<std::byte>(1));
}

TEST(Checkpoint, may_allocate_and_fails_at_once_where_it_cannot) {
  FullGuard full;
  full.guard.set_budget(1100);
  std::uint64_t runs = 0, hook_runs = 0;
  ASSERT_TRUE(full.guard.register_hook({.name = "h", .callback = [&](HookContext const&) { return ++hook_runs; }}));
  full.guard.on_oom([&] {
    ++runs;
    EXPECT_TRUE(full.guard.safe_alloc<std::byte>(76)) << "what is free is free";
    EXPECT_FALSE(full.guard.safe_alloc_with_hooks<std::byte>(77));
    EXPECT_FALSE(full.guard.safe_alloc<std::byte>(77));
  });
  EXPECT_FALSE(full.guard.safe_alloc<std::byte>(77));
  EXPECT_EQ(runs, 1U);
  EXPECT_EQ(hook_runs, 0U);
}

TEST(Checkpoint, may_register_another_one_from_inside) {
  FullGuard full;
  std::vector<int> order;
  full.guard.on_oom([&] {
    order.push_back(1);
    full.guard.on_oom([&] { order.push_back(2); });
    order.push_back(3);
  });
  EXPECT_FALSE(full.guard.safe_alloc<std::byte>(1));
  EXPECT_FALSE(full.guard.safe_alloc<std::byte>(1));
  EXPECT_EQ(order, (std::vector<int>{1, 3, 2}));
}

TEST(Checkpoint, that_throws_is_counted_and_the_first_error_comes_out) {
  FullGuard full;
  full.guard.on_oom([] { throw std::runtime_error{"disk full"}; });
  EventWatch watch;
  const auto refused = full.guard.safe_alloc<std::byte>(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_NE(refused.error().message.find("the checkpoint callback threw"), std::string::npos) << refused.error().message;
  EXPECT_EQ(full.guard.stats().checkpoints, 1U);
  const auto events = watch.of(full.guard.manager(), flight::EventKind::policy);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].policy_step(), flight::PolicyStep::begun);
  EXPECT_EQ(events[1].policy_step(), flight::PolicyStep::checkpoint_failed);
  EXPECT_EQ(events[2].policy_step(), flight::PolicyStep::gave_up);
  EXPECT_FALSE(full.guard.safe_alloc<std::byte>(1)) << "it can run again";
  EXPECT_EQ(full.guard.stats().checkpoints, 2U);
}

// All wait; the change of the policy makes all fail, before any run begins: every run that follows is everybody's.
TEST(Checkpoint, requests_that_fail_at_the_same_time_share_one_run) {
  constexpr std::uint64_t kThreads = 16;
  auto guard = MemoryGuardBuilder(host_device({.touch_memory = false}).value())
                   .budget_bytes(1024)
                   .oom_policy(OomPolicy::wait_and_retry(hours{1}))
                   .callback_limit(hours{1})
                   .build()
                   .value();
  const auto held = take(guard, 1024);
  std::atomic<std::uint64_t> runs{0};
  std::atomic<std::uint64_t> at_once{0};
  guard.on_oom([&] {
    EXPECT_EQ(at_once.fetch_add(1), 0U);
    ++runs;
    at_once.fetch_sub(1);
  });
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> told_of_sharing{0};
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const auto refused = guard.safe_alloc<std::byte>(100);
      ASSERT_FALSE(refused);
      if (refused.error().message.find("a run of the checkpoint callback was shared") != std::string::npos) ++told_of_sharing;
    });
  }
  wait_until([&] { return waiters(guard) == kThreads; });
  guard.set_oom_policy(OomPolicy::checkpoint_and_fail());
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(runs.load(), 1U);
  EXPECT_EQ(guard.stats().checkpoints, 1U);
  EXPECT_EQ(told_of_sharing.load(), kThreads - 1);
}

// The callback asks another thread, which fails as well: nobody waits for ever.
TEST(Checkpoint, a_run_that_waits_for_a_thread_that_would_share_it_ends_all_the_same) {
  auto guard = MemoryGuardBuilder(host_device({.touch_memory = false}).value())
                   .budget_bytes(1024)
                   .oom_policy(OomPolicy::checkpoint_and_fail())
                   .callback_limit(std::chrono::milliseconds{5})
                   .build()
                   .value();
  const auto held = take(guard, 1024);
  std::string inner;
  guard.on_oom([&] {
    std::thread helper{[&] { inner = guard.safe_alloc<std::byte>(1).error().message; }};
    helper.join();
  });
  EXPECT_FALSE(guard.safe_alloc<std::byte>(1));
  EXPECT_NE(inner.find("still busy elsewhere"), std::string::npos) << inner;
  EXPECT_EQ(guard.stats().checkpoints, 1U);
}

TEST(Checkpoint, the_last_handle_may_go_inside_it) {
  auto manager = null_manager(MemoryBudget::with_limit(1024));
  auto guard =
      std::make_unique<MemoryGuard>(MemoryGuardBuilder(manager).oom_policy(OomPolicy::checkpoint_and_fail()).build().value());
  const auto held = take(*guard, 1024);
  guard->on_oom([&] { guard.reset(); });
  EXPECT_FALSE(guard->safe_alloc<std::byte>(1));
  EXPECT_EQ(guard, nullptr);
}

}  // namespace
}  // namespace headroom::test
