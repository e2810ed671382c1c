// A child that was forked while another thread held the lists of hooks and listeners: it waits for nobody and calls nobody. A child that
// waited for a thread that it does not have would be ended by its alarm.
#include <thread>

#include "hook_rounds.hpp"
#include "in_child.hpp"
#include "pressure_log.hpp"
#include "stop_at.hpp"

namespace headroom::test {
namespace {

TEST_F(Listeners, are_not_called_in_a_forked_child) {
  bool called = false;
  add([&](PressureChange const&) { called = true; });
  const auto held = take(600);
  expect_in_child([&] {
    manager.set_budget(MemoryBudget::with_limit(500));
    return called ? 1 : 0;
  });
  EXPECT_FALSE(called);
}

TEST_F(Listeners, whose_list_was_held_at_a_fork_keep_no_child) {
  if (!kTestPoints) GTEST_SKIP() << "this build has no test points";
  add([](PressureChange const&) {});
  const auto held = take(600);
  while_stopped_at(
      TestPoint::listeners_locked, [&] { static_cast<void>(listeners.size()); },
      [&] {
        expect_in_child([&] {
          manager.set_budget(MemoryBudget::with_limit(500));
          return 0;
        });
      });
}

TEST_F(Listeners, that_fork_return_in_the_child_whoever_held_the_list) {
  if (!kTestPoints) GTEST_SKIP() << "this build has no test points";
  pid_t child = -1;
  std::thread holds;
  std::unique_ptr<StopAt> stop;
  int calls_after = 0;
  add([&](PressureChange const&) {
    if (child >= 0) return;
    stop = std::make_unique<StopAt>(TestPoint::listeners_locked);
    holds = std::thread{[&] { static_cast<void>(listeners.size()); }};
    StopAt::wait_until_reached();
    child = fork();
    if (child == 0) {
      alarm(kChildSeconds);
    } else {
      StopAt::release();
    }
  });
  add([&](PressureChange const&) { ++calls_after; });
  const auto held = take(1000);
  if (child == 0) _exit(calls_after == 0 ? 0 : 1);
  holds.join();
  stop.reset();
  expect_ended_well(child);
  EXPECT_EQ(calls_after, 1);
}

// The other thread waits for the hook, and stands there with the list held.
TEST_F(Hooks, that_fork_return_in_the_child_whoever_held_the_list) {
  if (!kTestPoints) GTEST_SKIP() << "this build has no test points";
  pid_t child = -1;
  std::thread waits;
  std::unique_ptr<StopAt> stop;
  add(hook("forks", [&] {
    if (child >= 0) return 0;
    stop = std::make_unique<StopAt>(TestPoint::hook_before_wait);
    waits = std::thread{[&] { static_cast<void>(registry.run_round({})); }};
    StopAt::wait_until_reached();
    child = fork();
    if (child == 0) {
      alarm(kChildSeconds);
    } else {
      StopAt::release();
    }
    return 0;
  }));
  add_noting("next", 1);
  const auto result = registry.run_round({});
  if (child == 0) _exit(called.empty() && result.runs == 0 ? 0 : 1);
  waits.join();
  stop.reset();
  expect_ended_well(child);
}

}  // namespace
}  // namespace headroom::test
