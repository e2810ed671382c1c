#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.hpp"

namespace headroom {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

TEST(Clock, kind_is_chosen_once_and_is_one_of_three) {
  auto const kind = clock_kind();
  EXPECT_TRUE(kind == ClockKind::monotonic || kind == ClockKind::tsc || kind == ClockKind::cntvct);
  EXPECT_EQ(clock_kind(), kind);
  EXPECT_NE(to_string(kind), "unknown");
}

TEST(Clock, numbers_are_those_of_the_file_format) {
  EXPECT_EQ(static_cast<int>(ClockKind::monotonic), 1);
  EXPECT_EQ(static_cast<int>(ClockKind::tsc), 2);
  EXPECT_EQ(static_cast<int>(ClockKind::cntvct), 3);
}

TEST(Clock, ticks_do_not_go_back_in_one_thread) {
  auto last = ticks_now();
  for (int i = 0; i < 100'000; ++i) {
    auto const now = ticks_now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Clock, an_ordered_reading_is_later_than_what_another_thread_told_of) {
  constexpr std::uint64_t kTurns = 4'000;
  std::vector<std::uint64_t> ticks(kTurns);
  std::atomic<std::uint64_t> turn{0};
  auto const player = [&](std::uint64_t parity) {
    for (auto mine = parity; mine < kTurns; mine += 2) {
      while (turn.load(std::memory_order_acquire) != mine) std::this_thread::yield();
      ticks[mine] = ticks_now_ordered();
      turn.store(mine + 1, std::memory_order_release);
    }
  };
  std::thread even{player, 0};
  std::thread odd{player, 1};
  even.join();
  odd.join();
  EXPECT_TRUE(std::ranges::is_sorted(ticks));
}

TEST(Clock, all_threads_are_told_the_same_rate) {
  std::vector<std::uint64_t> rates(8);
  std::vector<std::thread> threads;
  for (auto& rate : rates) threads.emplace_back([&rate] { rate = ticks_per_second(); });
  for (auto& thread : threads) thread.join();
  for (auto const rate : rates) EXPECT_EQ(rate, ticks_per_second());
  EXPECT_GE(ticks_per_second(), 1'000'000U);  // no counter in use is slower than 1 MHz
}

TEST(Clock, a_second_of_ticks_is_a_second) {
  EXPECT_EQ(ticks_to_ns(0), 0U);
  auto const second = ticks_to_ns(ticks_per_second());
  EXPECT_GE(second, 1'000'000'000U);
  EXPECT_LE(second, 1'000'000'001U);
  constexpr std::uint64_t kSecondsOfAYear = 31'536'000;
  auto const year = ticks_to_ns(ticks_per_second() * kSecondsOfAYear);
  EXPECT_GE(year, kSecondsOfAYear * 1'000'000'000);
  EXPECT_LE(year, kSecondsOfAYear * 1'000'000'000 + 1'000);  // a microsecond in a year
}

TEST(Clock, ticks_advance_with_the_monotonic_clock) {
  auto const start = clock_triple_now();
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  auto const end = clock_triple_now();
  auto const by_ticks = ticks_to_ns(end.ticks - start.ticks);
  auto const by_clock = end.monotonic_ns - start.monotonic_ns;
  EXPECT_GE(by_clock, 50 * kMs);
  // 0.5 %: the calibration is good to 0.01 %, the triples to a microsecond, and the machine may be busy.
  EXPECT_NEAR(static_cast<double>(by_ticks), static_cast<double>(by_clock), static_cast<double>(by_clock) * 0.005);
}

std::uint64_t wall_clock_ns() {
  auto const now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

TEST(Clock, triple_is_between_its_neighbours) {
  auto const wall_before = wall_clock_ns();
  auto const before = ticks_now();
  auto const triple = clock_triple_now();
  auto const after = ticks_now();
  auto const wall_after = wall_clock_ns();
  EXPECT_GE(triple.ticks, before);
  EXPECT_LE(triple.ticks, after);
  EXPECT_GE(triple.realtime_ns, wall_before);
  EXPECT_LE(triple.realtime_ns, wall_after);
}

TEST(Clock, fall_back_counts_nanoseconds) {
  auto const before = detail::read_monotonic_ns();
  auto const ticks = detail::read_ticks(ClockKind::monotonic);
  auto const after = detail::read_monotonic_ns();
  EXPECT_GE(ticks, before);
  EXPECT_LE(ticks, after);
}

}  // namespace
}  // namespace headroom
