// Hooks and several threads: turns that run elsewhere, removal, locks of the program, limits of time.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "hook_rounds.hpp"

namespace headroom::test {
namespace {

using namespace std::chrono_literals;

/// A flag that threads wait for.
class Gate {
public:
  void open() {
    open_ = true;
    open_.notify_all();
  }
  void wait() const { open_.wait(false); }
  [[nodiscard]] bool is_open() const { return open_; }

private:
  std::atomic<bool> open_{false};
};

class HookThreads : public Hooks {
protected:
  /// A hook that begins, and ends when it is let go.
  void add_blocked(std::chrono::nanoseconds limit) {
    auto blocked = hook("blocked", [this] {
      begun.open();
      let_go.wait();
      ended.open();
      return 0;
    });
    blocked.time_limit = limit;
    add(blocked);
  }
  /// Runs a round on a thread of its own, and returns once its hook has begun.
  std::thread start_round() {
    std::thread thread{[this] { elsewhere = round_for(4096); }};
    begun.wait();
    return thread;
  }

  Gate begun, let_go, ended;
  RoundResult elsewhere;
};

TEST_F(HookThreads, a_run_on_another_thread_is_waited_for_and_was_the_hooks_turn) {
  if (!kTestPoints) GTEST_SKIP() << "this build has no test points";
  auto cache = take(1024);
  const auto rest = take(1024);
  EventWatch watch;
  int runs = 0;
  add(hook("frees", [&] {
    begun.open();
    let_go.wait();
    ++runs;
    return cache.release() ? 1024 : 0;
  }));
  auto other = start_round();
  RoundResult here;
  const PassedPoint waits{TestPoint::hook_before_wait};
  std::uint32_t second_thread = 0;
  std::thread second{[&] {
    second_thread = flight::this_thread().thread_id;
    here = round_for(1024);
  }};
  PassedPoint::wait_until_passed();
  let_go.open();
  second.join();
  other.join();
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(here.claimed());  // 4096 never fit: the room is there for the one who waited
  ASSERT_EQ(here.turns.size(), 1U);
  EXPECT_EQ(here.turns[0].outcome, HookOutcome::ran_elsewhere);
  EXPECT_TRUE(here.made_progress);
  EXPECT_EQ(here.runs, 0U);
  EXPECT_EQ(elsewhere.runs, 1U);
  // It is written down for who waited, with how long that took, and counts as no skip.
  const auto skips = watch.of(manager, flight::EventKind::hook_skip);
  ASSERT_EQ(skips.size(), 1U);
  EXPECT_EQ(skips[0].words[6], static_cast<std::uint64_t>(flight::HookSkip::elsewhere));
  EXPECT_EQ(skips[0].words[2], 1024U);
  EXPECT_EQ(skips[0].hook(), shown("frees").directory_id);
  EXPECT_EQ(skips[0].thread(), second_thread);
  EXPECT_EQ(skips[0].duration_ns(), std::min<std::int64_t>(here.turns[0].duration.count(), 0xFFFFFFFF));
  EXPECT_EQ(shown("frees").skips, 0U);
  EXPECT_EQ(shown("frees").busy_skips, 0U);
  EXPECT_EQ(registry.totals().skips, 0U);
}

TEST_F(HookThreads, who_is_about_to_wait_for_a_run_hears_of_it_first_and_under_no_lock) {
  add_blocked(kForEver);
  auto other = start_round();
  int told = 0;
  HookRound round;
  round.context.requested_bytes = 4096;
  // The run ends here: had the registry been locked, its end could not be written down.
  round.before_wait = [&] {
    ++told;
    let_go.open();
    other.join();
  };
  const auto here = registry.run_round(round);
  EXPECT_EQ(told, 1);
  ASSERT_EQ(here.turns.size(), 1U);
  EXPECT_EQ(here.turns[0].outcome, HookOutcome::ran_elsewhere);
  EXPECT_EQ(elsewhere.runs, 1U);
}

TEST_F(HookThreads, a_run_longer_than_its_limit_is_skipped_and_seen_while_it_lasts) {
  EventWatch watch;
  add_blocked(1ms);
  add_noting("next", 1);
  auto other = start_round();
  const auto running = shown("blocked");
  EXPECT_TRUE(running.running_since_ticks.has_value());
  EXPECT_NE(running.running_thread, 0U);
  EXPECT_NE(running.running_thread, flight::this_thread().thread_id);
  EXPECT_EQ(running.limit_ns, 1'000'000U);
  const auto here = round_for(4096);
  ASSERT_EQ(here.turns.size(), 2U);
  EXPECT_EQ(here.turns[0].outcome, HookOutcome::skipped_busy);
  EXPECT_GE(here.turns[0].duration, 1ms);
  EXPECT_EQ(here.turns[1].outcome, HookOutcome::ran);
  EXPECT_FALSE(here.made_progress);
  EXPECT_EQ(shown("blocked").busy_skips, 1U);
  EXPECT_EQ(shown("blocked").overruns, 1U);  // while it still runs
  EXPECT_EQ(shown("blocked").runs, 0U);
  EXPECT_FALSE(ended.is_open());
  let_go.open();
  other.join();
  EXPECT_EQ(shown("blocked").runs, 1U);
  EXPECT_EQ(shown("blocked").overruns, 1U);  // its own thread does not count it again
  EXPECT_FALSE(shown("blocked").running_since_ticks.has_value());
  EXPECT_TRUE(elsewhere.turns.at(0).overran);
  const auto overruns = watch.of(manager, flight::EventKind::hook_overrun);
  ASSERT_EQ(overruns.size(), 1U);
  EXPECT_EQ(overruns[0].words[2], 1'000'000U);
  EXPECT_GE(overruns[0].words[3], 1'000'000U);
  EXPECT_EQ(overruns[0].words[4], running.running_since_ticks);
  EXPECT_EQ(overruns[0].words[6], running.running_thread);
  EXPECT_EQ(overruns[0].thread(), flight::this_thread().thread_id);
  EXPECT_EQ(overruns[0].hook(), running.directory_id);
}

TEST_F(HookThreads, a_wait_for_a_run_ends_at_the_deadline_of_the_request) {
  add_blocked(kForEver);
  auto other = start_round();
  HookRound round;
  round.context.deadline = std::chrono::steady_clock::now() + 1ms;
  const auto here = registry.run_round(round);
  // The deadline may pass before its turn comes.
  if (!here.turns.empty()) {
    EXPECT_EQ(here.turns[0].outcome, HookOutcome::skipped_busy);
    EXPECT_EQ(shown("blocked").overruns, 0U);  // it has ten minutes
  } else {
    EXPECT_EQ(here.end, RoundEnd::deadline);
  }
  let_go.open();
  other.join();
}

// The hook gave its memory up, and goes on with something else.
TEST_F(HookThreads, a_request_is_tried_after_a_wait_in_vain) {
  auto cache = take(1024);
  const auto rest = take(1024);
  auto slow = hook("slow", [&] {
    EXPECT_TRUE(cache.release());
    begun.open();
    let_go.wait();
    return 1024;
  });
  slow.time_limit = 1ms;
  add(slow);
  auto other = start_round();
  const auto here = round_for(512);
  EXPECT_TRUE(here.claimed());
  EXPECT_EQ(here.turns.at(0).outcome, HookOutcome::skipped_busy);
  let_go.open();
  other.join();
}

// The hook wants L; the thread that holds L is short of memory and needs the hook.
TEST_F(HookThreads, a_lock_that_a_short_thread_holds_is_no_deadlock) {
  std::mutex lock_of_program;
  auto cache = take(1024);
  const auto rest = take(1024);
  auto locks = hook("locks", [&] {
    begun.open();
    const std::scoped_lock lock{lock_of_program};
    return cache.release() ? 1024 : 0;
  });
  locks.time_limit = 1ms;
  add(locks);
  RoundResult here;
  std::thread other;
  {
    const std::scoped_lock lock{lock_of_program};
    other = std::thread{[&] { elsewhere = round_for(1024); }};
    begun.wait();
    here = round_for(512);
  }
  other.join();
  EXPECT_EQ(here.turns.at(0).outcome, HookOutcome::skipped_busy);
  EXPECT_FALSE(here.claimed());
  EXPECT_TRUE(elsewhere.claimed());
}

TEST_F(HookThreads, removal_waits_for_a_run_elsewhere) {
  if (!kTestPoints) GTEST_SKIP() << "this build has no test points";
  add_blocked(kForEver);
  auto other = start_round();
  const PassedPoint waits{TestPoint::removal_before_wait};
  bool had_ended = false;
  std::thread remover{[&] {
    EXPECT_TRUE(registry.remove("blocked"));
    had_ended = ended.is_open();
  }};
  PassedPoint::wait_until_passed();
  EXPECT_EQ(registry.size(), 0U);
  let_go.open();
  remover.join();
  other.join();
  EXPECT_TRUE(had_ended);
}

TEST_F(HookThreads, removal_waits_no_longer_than_the_hooks_limit) {
  add_blocked(1ms);
  auto other = start_round();
  EXPECT_TRUE(registry.remove("blocked"));
  EXPECT_FALSE(ended.is_open());
  let_go.open();
  other.join();
}

/// A clock that moves only when somebody sleeps, and then to the end of that sleep.
struct SleepersClock {
  using Time = TestWaits::Deadline;
  static inline std::atomic<Time> time{Time{}};
  static Time now() noexcept { return time; }
  static bool sleep(void const* /*key*/, Time deadline) noexcept {
    Time present = time;
    while (present < deadline && !time.compare_exchange_weak(present, deadline)) {
    }
    return true;
  }
  static void wake(void const* /*key*/) noexcept {}
  static constexpr TestWaits kWaits{.now = now, .sleep = sleep, .wake = wake};
  SleepersClock() {
    time = std::chrono::steady_clock::now();
    test_waits.store(&kWaits);
  }
  ~SleepersClock() { test_waits.store(nullptr); }
  SleepersClock(SleepersClock const&) = delete;
  SleepersClock& operator=(SleepersClock const&) = delete;
};

TEST_F(HookThreads, removal_of_several_waits_for_all_of_them_together) {
  if (!kTestPoints) GTEST_SKIP() << "this build has no test points";
  const SleepersClock clock;
  std::atomic<int> running{0};
  for (int i = 0; i < 4; ++i) {
    auto blocked = hook("namesake", [&] {
      ++running;
      let_go.wait();
      return 0;
    });
    blocked.priority = i;
    blocked.time_limit = std::chrono::milliseconds{200 - i};
    add(blocked);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { static_cast<void>(registry.run_round({})); });
  while (running != 4) std::this_thread::yield();
  const auto before = SleepersClock::now();
  EXPECT_TRUE(registry.remove("namesake"));
  EXPECT_EQ(SleepersClock::now() - before, 200ms);
  let_go.open();
  for (auto& thread : threads) thread.join();
}

TEST_F(HookThreads, removal_from_inside_a_hook_never_waits) {
  add_blocked(kForEver);
  auto other = start_round();
  HookRegistry second{ledger};
  bool had_ended = true;
  ASSERT_TRUE(second.add(hook("removes", [&] {
    EXPECT_TRUE(registry.remove("blocked"));
    had_ended = ended.is_open();
    return 0;
  })));
  EXPECT_EQ(second.run_round({}).runs, 1U);
  EXPECT_FALSE(had_ended);
  let_go.open();
  other.join();
}

TEST_F(HookThreads, two_that_run_at_once_may_remove_each_other) {
  Gate running[2];
  const auto removes = [&](std::size_t self, std::string const& other) {
    auto made = hook(self == 0 ? "a" : "b", [this, &running, self, other] {
      running[self].open();
      running[1 - self].wait();
      EXPECT_TRUE(registry.remove(other));
      return 0;
    });
    made.priority = static_cast<std::int32_t>(self);
    made.time_limit = 1ms;  // the second round gives "a" up soon, and runs "b"
    return made;
  };
  add(removes(0, "b"));
  add(removes(1, "a"));
  std::thread first{[&] { elsewhere = round_for(4096); }};
  running[0].wait();
  const auto here = round_for(4096);
  first.join();
  EXPECT_EQ(registry.size(), 0U);
  EXPECT_EQ(elsewhere.runs, 1U);
  EXPECT_EQ(here.runs, 1U);
}

// Threads short at once, hooks that free and fill again, the list changing all the while: the books balance, nobody hangs.
TEST_F(HookThreads, many_rounds_at_once_leave_the_books_whole) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 60;
  std::mutex caches_mutex;
  std::vector<Bytes> caches;
  const auto fill = [&] {
    const std::scoped_lock lock{caches_mutex};
    while (caches.size() < 4) {
      auto cache = manager.alloc<std::byte>(256);
      if (!cache) break;
      caches.push_back(std::move(*cache));
    }
  };
  const auto drop = [&]() -> std::uint64_t {
    Bytes gone;
    const std::scoped_lock lock{caches_mutex};
    if (caches.empty()) return 0;
    gone = std::move(caches.back());
    caches.pop_back();
    return 256;
  };
  fill();
  add(hook("drops", drop, 0));
  add(hook("drops too", drop, 1));
  std::atomic<std::uint64_t> granted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "own " + std::to_string(t);
      for (int i = 0; i < kRounds; ++i) {
        if (i % 8 == 0) add(hook(name, [] { return 0; }, 2));
        HookRound round;
        round.context.requested_bytes = 512;
        std::optional<Bytes> mine;
        round.try_claim = [&] {
          auto buffer = manager.alloc<std::byte>(512);
          if (buffer) mine = std::move(*buffer);
          return mine.has_value();
        };
        const auto result = registry.run_round(round);
        EXPECT_EQ(result.claimed(), mine.has_value());
        if (mine) ++granted;
        mine.reset();
        if (i % 8 == 4 && !registry.remove(name)) ADD_FAILURE() << name << " was not there";
        if (i % 4 == 0) fill();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GT(granted.load(), 0U);
  caches.clear();
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_LE(manager.peak_bytes(), 2048U);
}

}  // namespace
}  // namespace headroom::test
