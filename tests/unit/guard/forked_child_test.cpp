// In a forked child the threads that held a mutex of the guard are gone: nothing there waits for one.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "guards.hpp"
#include "host_memory.hpp"
#include "in_child.hpp"

namespace headroom::test {
namespace {

/// Stops a thread inside its nth allocation from here on: whatever it holds there, it holds on to.
struct StopInAllocation {
  static inline std::atomic<int> state{0};  // 1: reached, 2: go on
  static inline thread_local std::uint64_t left = 0;
  static void arm(std::uint64_t nth) noexcept {
    left = nth;
    at_host_allocation = handle;
  }
  static void handle() noexcept {
    if (--left != 0) return;
    at_host_allocation = nullptr;
    state = 1;
    state.notify_all();
    state.wait(1);
  }
};

TEST(GuardInForkedChild, listeners_are_neither_added_nor_removed_whoever_held_their_list) {
  bool reached_all = false;
  for (std::uint64_t nth = 1; !reached_all && nth < 12; ++nth) {
    SCOPED_TRACE(nth);
    auto host = host_guard(1000);
    StopInAllocation::state = 0;
    PressureListener listener = [](PressureChange const&) {};
    std::thread adding{[&] {
      StopInAllocation::arm(nth);
      EXPECT_TRUE(host.guard.add_pressure_listener(std::move(listener)));
      at_host_allocation = nullptr;
      int never = 0;
      if (StopInAllocation::state.compare_exchange_strong(never, 3)) StopInAllocation::state.notify_all();
    }};
    StopInAllocation::state.wait(0);
    reached_all = StopInAllocation::state == 3;
    if (reached_all) adding.join();  // a child that ends with a finished thread that nobody joined is a leak to ThreadSanitizer
    expect_in_child([&] {
      if (host.guard.remove_pressure_listener(ListenerId{123456789})) return 1;
      const auto added = host.guard.add_pressure_listener([](PressureChange const&) {});
      return !added && added.error().kind == ErrorKind::unsupported ? 0 : 2;
    });
    if (reached_all) break;
    StopInAllocation::state = 2;
    StopInAllocation::state.notify_all();
    adding.join();
  }
  EXPECT_TRUE(reached_all);
}

// The callback forks, and what comes after it runs twice.
TEST(GuardInForkedChild, the_callback_may_fork_and_the_child_goes_on_without_it) {
  auto host = host_guard(1000, OomPolicy::checkpoint_and_fail());
  const auto held = take(host.guard, 1000);
  pid_t child = -1;
  ASSERT_TRUE(host.guard.on_oom([&] { child = fork(); }));
  const auto refused = host.guard.safe_alloc<std::byte>(1);
  if (child == 0) {
    const auto again = host.guard.safe_alloc<std::byte>(1);
    const auto set = host.guard.on_oom({});
    const bool right =
        !refused && !again && again.error().kind == ErrorKind::unsupported && !set && set.error().kind == ErrorKind::unsupported;
    _exit(right ? 0 : 1);
  }
  expect_ended_well(child);
  EXPECT_FALSE(refused);
  EXPECT_EQ(host.guard.stats().checkpoints, 1U);
}

}  // namespace
}  // namespace headroom::test
