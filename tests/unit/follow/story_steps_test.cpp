// What is told while a request is being dealt with, and afterwards: waits, retries, checkpoints and hooks of other threads, by real
// guards.
#include <atomic>
#include <chrono>
#include <thread>

#include <headroom/fault_resource.hpp>

#include "base/clock.hpp"
#include "guards.hpp"
#include "story_events.hpp"

namespace headroom::follow {
namespace {

using flight::PolicyStep;
using std::chrono::hours;
using test::Bytes;
using test::Cache;
using test::host_guard;
using test::take;

std::vector<PolicyStep> steps_of(FailureStory const& story) {
  std::vector<PolicyStep> steps;
  for (auto const& step : story.policy) steps.push_back(step.step);
  return steps;
}

TEST(FollowStorySteps, a_wait_is_told_while_it_lasts_and_when_it_is_over) {
  auto const since = ticks_now();
  auto host = host_guard(1000, OomPolicy::wait_and_retry(hours{1}));
  auto held = take(host.guard, 900);
  std::thread waiting{[&] { EXPECT_TRUE(host.guard.safe_alloc<std::byte>(500)); }};
  test::wait_until([&] { return test::waiters(host.guard) == 1; });
  auto const meanwhile = stories_of(host.guard, since);
  EXPECT_TRUE(host.guard.free(std::move(held)));
  waiting.join();

  ASSERT_EQ(meanwhile.size(), 1U);
  EXPECT_EQ(meanwhile[0].end, FailureEnd::under_way) << "not: failed at once";
  EXPECT_EQ(meanwhile[0].doing, PolicyStep::waited);
  EXPECT_GE(meanwhile[0].doing_since, meanwhile[0].ticks);
  EXPECT_TRUE(meanwhile[0].policy.empty());

  auto const stories = stories_of(host.guard, since);
  ASSERT_EQ(stories.size(), 1U);
  EXPECT_EQ(stories[0].end, FailureEnd::recovered);
  EXPECT_FALSE(stories[0].doing.has_value());
  EXPECT_EQ(steps_of(stories[0]), (std::vector{PolicyStep::waited, PolicyStep::recovered}));
  EXPECT_EQ(stories[0].policy[0].bytes, 500U);
  EXPECT_EQ(stories[0].policy[0].policy, 2U);
  EXPECT_FALSE(stories[0].incomplete);
}

TEST(FollowStorySteps, a_retry_is_told) {
  auto const since = ticks_now();
  auto host = host_guard(1000, OomPolicy::retry_after_free());
  host.resource->faults().add({.operation = FaultOperation::allocate});
  EXPECT_TRUE(host.guard.safe_alloc<std::byte>(500));
  auto const held = take(host.guard, 900);
  EXPECT_FALSE(host.guard.safe_alloc<std::byte>(200));
  auto const stories = stories_of(host.guard, since);
  ASSERT_EQ(stories.size(), 2U);
  EXPECT_EQ(stories[0].kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(stories[0].end, FailureEnd::recovered);
  EXPECT_EQ(steps_of(stories[0]), (std::vector{PolicyStep::retried, PolicyStep::recovered}));
  EXPECT_EQ(stories[1].kind, ErrorKind::over_budget);
  EXPECT_EQ(stories[1].end, FailureEnd::gave_up);
  EXPECT_EQ(steps_of(stories[1]), (std::vector{PolicyStep::retried, PolicyStep::gave_up}));
}

// The same size, the same place in the program: only what it is inside of tells the two apart.
TEST(FollowStorySteps, a_checkpoint_is_told_while_it_runs_and_what_it_asks_for_in_vain_is_inside) {
  auto const since = ticks_now();
  auto host = host_guard(1000, OomPolicy::checkpoint_and_fail());
  auto const held = take(host.guard, 900);
  auto const ask = [&] { return host.guard.safe_alloc<std::byte>(500).has_value(); };
  std::vector<FailureStory> meanwhile;
  host.guard.on_oom([&] {
    EXPECT_FALSE(ask());
    meanwhile = stories_of(host.guard, since);
  });
  EXPECT_FALSE(ask());

  ASSERT_EQ(meanwhile.size(), 2U);
  EXPECT_EQ(meanwhile[0].end, FailureEnd::under_way) << "not: failed at once";
  EXPECT_EQ(meanwhile[0].doing, PolicyStep::checkpoint);
  EXPECT_FALSE(meanwhile[0].inside_hook);
  EXPECT_TRUE(meanwhile[1].inside_hook);
  EXPECT_EQ(meanwhile[1].end, FailureEnd::failed);

  auto const stories = stories_of(host.guard, since);
  ASSERT_EQ(stories.size(), 2U);
  EXPECT_EQ(stories[0].end, FailureEnd::gave_up);
  EXPECT_FALSE(stories[0].doing.has_value());
  EXPECT_EQ(steps_of(stories[0]), (std::vector{PolicyStep::checkpoint, PolicyStep::gave_up}));
  EXPECT_EQ(stories[1].end, FailureEnd::failed);
  EXPECT_TRUE(stories[1].inside_hook);
  EXPECT_TRUE(stories[1].policy.empty());
}

TEST(FollowStorySteps, a_later_try_that_meets_another_error_is_no_story_of_its_own) {
  auto const broken = [](OomPolicy policy, bool hooks) {
    auto const since = ticks_now();
    auto host = host_guard(4096, policy);
    host.resource->faults().add({.operation = FaultOperation::allocate, .times = 1});
    host.resource->faults().add({.operation = FaultOperation::allocate, .nth = 2, .kind = ErrorKind::driver, .device_code = 700});
    EXPECT_TRUE(host.guard.register_hook({.name = "in vain", .callback = [](HookContext const&) { return 0U; }}));
    EXPECT_FALSE(hooks ? host.guard.safe_alloc_with_hooks<std::byte>(1000) : host.guard.safe_alloc<std::byte>(1000));
    return stories_of(host.guard, since);
  };
  struct Row {
    OomPolicy policy;
    bool hooks;
    std::vector<PolicyStep> steps;
  };
  for (auto const& row : {Row{OomPolicy::fail(), true, {PolicyStep::gave_up}},
                          Row{OomPolicy::retry_after_free(), false, {PolicyStep::retried, PolicyStep::gave_up}},
                          Row{OomPolicy::wait_and_retry(hours{1}), false, {PolicyStep::waited, PolicyStep::gave_up}}}) {
    SCOPED_TRACE("policy " + std::to_string(static_cast<int>(row.policy.kind())));
    auto const stories = broken(row.policy, row.hooks);
    ASSERT_EQ(stories.size(), 1U);
    EXPECT_EQ(stories[0].kind, ErrorKind::device_out_of_memory);
    EXPECT_EQ(stories[0].device_code, 2);
    EXPECT_EQ(stories[0].later_kind, ErrorKind::driver);
    EXPECT_EQ(stories[0].later_code, 700);
    EXPECT_TRUE(stories[0].later_layer.has_value());
    EXPECT_EQ(stories[0].hooks.size(), row.hooks ? 1U : 0U);
    EXPECT_EQ(stories[0].end, FailureEnd::gave_up);
    EXPECT_EQ(steps_of(stories[0]), row.steps);
  }
}

TEST(FollowStorySteps, a_hook_that_ran_for_another_threads_request_is_told_for_who_waited) {
  auto const since = ticks_now();
  auto host = host_guard(1000);
  auto const held = take(host.guard, 900);
  std::atomic<bool> begun{false};
  std::atomic<bool> let_go{false};
  std::atomic<int> runs{0};
  // 10 minutes: nobody's wait ends before the run does.
  ASSERT_TRUE(host.guard.register_hook({.name = "slow",
                                        .callback =
                                            [&](HookContext const&) {
                                              if (runs++ == 0) {
                                                begun = true;
                                                begun.notify_all();
                                                let_go.wait(false);
                                              }
                                              return std::uint64_t{0};
                                            },
                                        .time_limit = std::chrono::minutes{10}}));
  std::thread runs_it{[&] { EXPECT_FALSE(host.guard.safe_alloc_with_hooks<std::byte>(300)); }};
  begun.wait(false);
  std::string message;
  std::thread waits{[&] {
    auto const refused = host.guard.safe_alloc_with_hooks<std::byte>(400);
    ASSERT_FALSE(refused);
    message = refused.error().message;
  }};
  auto const of_size = [&](std::uint64_t bytes) {
    auto stories = stories_of(host.guard, since);
    std::erase_if(stories, [&](FailureStory const& story) { return story.requested != bytes; });
    return stories;
  };
  std::vector<FailureStory> meanwhile;
  test::wait_until([&] {
    meanwhile = of_size(400);
    return meanwhile.size() == 1 && meanwhile[0].doing.has_value();
  });
  let_go = true;
  let_go.notify_all();
  runs_it.join();
  waits.join();
  EXPECT_EQ(runs, 1);

  EXPECT_EQ(meanwhile[0].end, FailureEnd::under_way);
  EXPECT_EQ(meanwhile[0].doing, PolicyStep::none) << "a wait for another thread's run of a hook";

  auto const stories = of_size(400);
  ASSERT_EQ(stories.size(), 1U);
  ASSERT_EQ(stories[0].hooks.size(), 1U);
  EXPECT_EQ(stories[0].hooks[0].name, "slow");
  EXPECT_EQ(stories[0].hooks[0].result, HookResult::elsewhere);
  EXPECT_EQ(stories[0].hooks[0].begin_ticks, meanwhile[0].doing_since);
  EXPECT_EQ(stories[0].end, FailureEnd::gave_up) << "something was tried";
  EXPECT_EQ(steps_of(stories[0]), (std::vector{PolicyStep::gave_up}));
  EXPECT_NE(message.find("a wait for 1 hook run on another thread"), std::string::npos) << message;
  auto const of_runner = of_size(300);
  ASSERT_EQ(of_runner.size(), 1U);
  EXPECT_EQ(of_runner[0].hooks.at(0).result, HookResult::ran);
  EXPECT_EQ(of_runner[0].hooks.at(0).limit_ns, 600'000'000'000U);
}

TEST(FollowStorySteps, a_hook_that_asks_often_in_vain_does_not_cost_its_request_the_end) {
  auto const since = ticks_now();
  auto host = host_guard(1000);
  auto held = take(host.guard, 900);
  ASSERT_TRUE(host.guard.register_hook({.name = "asks", .callback = [&](HookContext const&) {
                                          for (std::uint64_t i = 0; i < 20; ++i) {
                                            EXPECT_FALSE(host.guard.safe_alloc<std::byte>(200 + i));
                                          }
                                          EXPECT_TRUE(host.guard.free(std::move(held)));
                                          return std::uint64_t{900};
                                        }}));
  EXPECT_TRUE(host.guard.safe_alloc_with_hooks<std::byte>(500));
  auto const stories = stories_of(host.guard, since);
  ASSERT_EQ(stories.size(), 21U);
  EXPECT_EQ(stories[0].requested, 500U);
  EXPECT_EQ(stories[0].end, FailureEnd::recovered);
  EXPECT_EQ(stories[0].hooks.at(0).result, HookResult::ran);
  EXPECT_EQ(stories[0].hooks.at(0).freed, 900U);
  for (std::size_t i = 1; i < stories.size(); ++i) {
    EXPECT_TRUE(stories[i].inside_hook);
    EXPECT_EQ(stories[i].end, FailureEnd::failed);
  }
}

}  // namespace
}  // namespace headroom::follow
