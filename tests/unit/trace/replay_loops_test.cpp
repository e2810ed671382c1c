// Loops, stops and pace.
#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "replays.hpp"
#include "within.hpp"

namespace headroom::test {
namespace {

using namespace std::chrono_literals;

// One loop: 2 allocations, 1 free, peak 1500, 500 bytes live in 1 at the end.
constexpr auto kRecords =
    "0,0,allocate,0xa,1000,0\n"
    "0,10000,allocate,0xb,500,0\n"
    "0,20000,free,0xa,1000,0\n";

class ReplayLoops : public testing::TestWithParam<ReplayOrder> {
protected:
  ReplayOptions options_ = [] {
    ReplayOptions options;
    options.order = GetParam();
    return options;
  }();
};

TEST_P(ReplayLoops, free_what_is_live_between_them_and_show_the_last_one) {
  options_.loops = 3;
  auto const manager = manager_with(MemoryBudget::unlimited());
  auto const result = replayed(history_of(kRecords), manager, options_);
  auto const& figures = result.figures();
  EXPECT_EQ(figures.loops, 3U);
  EXPECT_EQ(figures.loop_frees, 2U) << "one after each loop but the last";
  EXPECT_EQ(figures.allocations, 2U);
  EXPECT_EQ(figures.frees, 1U);
  EXPECT_EQ(figures.peak_bytes, 1500U);
  EXPECT_EQ(figures.live_bytes, 500U);
  EXPECT_EQ(figures.live_allocations, 1U);
}

TEST_P(ReplayLoops, count_refusals_of_the_last_one_and_of_all) {
  options_.loops = 3;
  auto const result = replayed(history_of(kRecords), manager_with(MemoryBudget::with_limit(1200)), options_);
  EXPECT_EQ(result.figures().refused, 1U);
  EXPECT_EQ(result.figures().refused_in_all_loops, 3U);
  EXPECT_EQ(result.figures().live_bytes, 0U);
  EXPECT_EQ(result.figures().loop_frees, 0U);
  EXPECT_EQ(result.first_refusal()->line, 3U);
}

TEST_P(ReplayLoops, stop_after_a_number_of_records_in_a_later_loop) {
  options_.loops = kReplayForever;
  options_.stop_after = 7;  // two loops, and the first record of the third
  auto const result = replayed(history_of(kRecords), manager_with(MemoryBudget::unlimited()), options_);
  EXPECT_EQ(result.figures().loops, 2U);
  EXPECT_EQ(result.figures().loop_frees, 2U);
  EXPECT_EQ(result.figures().allocations, 1U);
  EXPECT_EQ(result.figures().live_bytes, 1000U);
  EXPECT_EQ(result.figures().peak_bytes, 1000U);
}

TEST_P(ReplayLoops, of_no_records_apply_nothing) {
  options_.stop_after = 0;
  auto const result = replayed(history_of(kRecords), manager_with(MemoryBudget::unlimited()), options_);
  EXPECT_EQ(result.figures().allocations, 0U);
  EXPECT_EQ(result.figures().loops, 0U);
}

TEST_P(ReplayLoops, without_end_end_when_they_are_stopped) {
  std::atomic<bool> stop{false};
  ReplayProgress progress;
  options_.loops = kReplayForever;
  options_.stop = &stop;
  options_.progress = &progress;
  auto const manager = manager_with(MemoryBudget::unlimited());
  std::jthread const stopper{[&] {
    while (progress.loops.load() < 10) std::this_thread::sleep_for(1ms);
    stop = true;
  }};
  auto const result = replayed(history_of(kRecords), manager, options_);
  EXPECT_GE(result.figures().loops, 10U);
  EXPECT_EQ(result.figures().live_bytes, manager.allocated_bytes());
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST_P(ReplayLoops, take_as_long_as_they_are_stretched_to) {
  options_.stretch = 120ms;
  expect_within(5s, [&] {
    auto const result = replayed(history_of(kRecords), manager_with(MemoryBudget::unlimited()), options_);
    std::chrono::duration<double> const took{result.figures().elapsed_seconds};
    EXPECT_GE(took, 120ms);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(took);
  });
}

TEST_P(ReplayLoops, take_as_long_as_recorded_at_speed_one_and_longer_below) {
  options_.speed = 1.0;
  auto const recorded = replayed(history_of(kRecords), manager_with(MemoryBudget::unlimited()), options_);
  EXPECT_GE(recorded.figures().elapsed_seconds, 0.02);
  options_.speed = 0.2;
  auto const slower = replayed(history_of(kRecords), manager_with(MemoryBudget::unlimited()), options_);
  EXPECT_GE(slower.figures().elapsed_seconds, 0.1);
}

TEST_P(ReplayLoops, stop_in_the_middle_of_a_wait) {
  std::atomic<bool> stop{false};
  options_.stretch = 1h;
  options_.stop = &stop;
  auto const manager = manager_with(MemoryBudget::unlimited());
  std::jthread const stopper{[&] {
    // However slow the machine: not before the first record was replayed, which is where the wait for the second one begins.
    while (manager.allocated_bytes() == 0) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(20ms);
    stop = true;
  }};
  auto const result = replayed(history_of(kRecords), manager, options_);
  EXPECT_LT(result.figures().elapsed_seconds, 1800.0) << "when the second record was due";
  EXPECT_EQ(result.figures().live_bytes, 1000U) << "only the first record was due";
}

INSTANTIATE_TEST_SUITE_P(orders, ReplayLoops, testing::Values(ReplayOrder::file, ReplayOrder::free),
                         [](auto const& order) { return std::string{to_string(order.param)}; });

TEST(replay, spreads_a_history_without_duration_evenly) {
  ReplayOptions options;
  options.stretch = 90ms;
  auto const history = history_of("0,5,allocate,0xa,8,0\n0,5,allocate,0xb,8,0\n0,5,free,0xa,8,0\n");
  auto const result = replayed(history, manager_with(MemoryBudget::unlimited()), options);
  EXPECT_GE(result.figures().elapsed_seconds, 0.06) << "the third record of three is due after two thirds";
}

}  // namespace
}  // namespace headroom::test
