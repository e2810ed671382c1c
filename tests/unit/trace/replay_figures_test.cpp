// What a replay counts, on histories small enough to be worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replays.hpp"

namespace headroom::test {
namespace {

TEST(replay, repeats_a_history_without_budget_exactly) {
  auto const history = history_of(
      "7,0,allocate,0xa,1000,0\n"
      "7,1,allocate,0xb,500,0\n"  // 1500: the peak
      "7,2,free,0xa,1000,0\n"
      "7,3,allocate,0xc,700,0\n"  // 1200 at the end
      "7,4,allocate failure,(nil),9999,0\n");
  auto const manager = manager_with(MemoryBudget::unlimited());
  auto const result = replayed(history, manager);
  auto const& figures = result.figures();
  EXPECT_EQ(figures.allocations, 3U);
  EXPECT_EQ(figures.frees, 1U);
  EXPECT_EQ(figures.trace_failures, 1U);
  EXPECT_EQ(figures.refused, 0U);
  EXPECT_EQ(figures.unmatched_frees, 0U);
  EXPECT_EQ(figures.peak_bytes, 1500U);
  EXPECT_EQ(figures.live_bytes, 1200U);
  EXPECT_EQ(figures.claimed_bytes, 1200U);
  EXPECT_EQ(figures.live_allocations, 2U);
  EXPECT_EQ(figures.loops, 1U);
  EXPECT_EQ(figures.loop_frees, 0U);
  EXPECT_EQ(figures.budget_bytes, std::nullopt);
  EXPECT_EQ(result.first_refusal(), std::nullopt);
}

TEST(replay, refuses_one_byte_over_and_skips_the_free_of_what_was_refused) {
  auto const history = history_of(
      "0,0,allocate,0xa,600,0\n"
      "0,1,allocate,0xb,401,0\n"  // 1001: refused
      "0,2,allocate,0xc,400,0\n"  // 1000: an exact fit
      "0,3,free,0xb,401,0\n"      // skipped
      "0,4,free,0xa,600,0\n"
      "0,5,allocate,0xb,401,0\n");  // 801: granted this time
  auto const manager = manager_with(MemoryBudget::with_limit(1000));
  auto const result = replayed(history, manager);
  auto const& figures = result.figures();
  EXPECT_EQ(figures.allocations, 3U);
  EXPECT_EQ(figures.frees, 1U);
  EXPECT_EQ(figures.refused, 1U);
  EXPECT_EQ(figures.unmatched_frees, 0U);
  EXPECT_EQ(figures.peak_bytes, 1000U);
  EXPECT_EQ(figures.live_bytes, 801U);
  EXPECT_EQ(figures.live_allocations, 2U);
  EXPECT_EQ(figures.budget_bytes, 1000U);
  ASSERT_NE(result.first_refusal(), std::nullopt);
  EXPECT_EQ(result.first_refusal()->line, 3U) << "1 is the header";
  EXPECT_EQ(result.first_refusal()->bytes, 401U);
  EXPECT_EQ(result.first_refusal()->error.kind, ErrorKind::over_budget);
  EXPECT_EQ(result.first_refusal()->error.limit, 1000U);
}

TEST(replay, counts_frees_without_an_allocation) {
  auto const history = history_of(
      "0,0,free,0xdead,64,0\n"
      "0,1,allocate,0xa,64,0\n"
      "0,2,free,0xa,64,0\n"
      "0,3,free,0xa,64,0\n");
  auto const result = replayed(history, manager_with(MemoryBudget::unlimited()));
  EXPECT_EQ(result.figures().frees, 1U);
  EXPECT_EQ(result.figures().unmatched_frees, 2U);
  EXPECT_EQ(result.figures().live_bytes, 0U);
}

TEST(replay, keeps_two_blocks_of_one_address_and_frees_the_one_of_that_size) {
  auto const history = history_of(
      "0,0,allocate,0xa,100,0\n"
      "1,1,allocate,0xa,200,0\n"  // its log line came before the other thread's free
      "1,2,free,0xa,200,0\n");
  auto const result = replayed(history, manager_with(MemoryBudget::unlimited()));
  EXPECT_EQ(result.figures().peak_bytes, 300U);
  EXPECT_EQ(result.figures().live_bytes, 100U);
  EXPECT_EQ(result.figures().live_allocations, 1U);
}

TEST(replay, of_zero_bytes_holds_nothing) {
  auto const history = history_of("0,0,allocate,(nil),0,0\n0,1,free,(nil),0,0\n0,2,allocate,0xa,0,0\n0,3,free,0xa,0,0\n");
  auto const result = replayed(history, manager_with(MemoryBudget::with_limit(0)));
  EXPECT_EQ(result.figures().allocations, 2U);
  EXPECT_EQ(result.figures().frees, 2U);
  EXPECT_EQ(result.figures().refused, 0U);
  EXPECT_EQ(result.figures().peak_bytes, 0U);
}

TEST(replay, counts_what_no_ledger_can_hold_and_what_the_device_refuses_as_refused) {
  auto const history = history_of(
      "0,0,allocate,0xa,18446744073709551615,0\n"  // overflow
      "0,1,allocate,0xb,2097152,0\n"               // more than the device has
      "0,2,allocate,0xc,4096,0\n");
  auto const manager = manager_with(MemoryBudget::unlimited(), std::uint64_t{1} << 20);
  auto const result = replayed(history, manager);
  EXPECT_EQ(result.figures().refused, 2U);
  EXPECT_EQ(result.figures().allocations, 1U);
  EXPECT_EQ(result.figures().live_bytes, 4096U);
  EXPECT_EQ(result.first_refusal()->error.kind, ErrorKind::overflow);
}

TEST(replay, holds_what_is_live_until_its_result_goes) {
  auto const history = history_of("0,0,allocate,0xa,1000,0\n0,1,allocate,0xb,500,0\n0,2,free,0xa,1000,0\n");
  auto const manager = manager_with(MemoryBudget::unlimited());
  ReplayOptions options;
  options.stop_after = 2;
  {
    auto const result = replayed(history, manager, options);
    EXPECT_EQ(result.figures().live_bytes, 1500U);
    EXPECT_EQ(result.figures().live_allocations, 2U);
    EXPECT_EQ(manager.allocated_bytes(), 1500U);
  }
  EXPECT_EQ(manager.allocated_bytes(), 0U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(replay, of_an_empty_history_is_over_at_once) {
  auto const history = history_of("");
  ReplayOptions options;
  options.loops = kReplayForever;
  options.stretch = std::chrono::hours{1};
  auto const result = replayed(history, manager_with(MemoryBudget::with_limit(1)), options);
  EXPECT_EQ(result.figures().allocations, 0U);
}

TEST(replay, refuses_options_without_meaning) {
  auto const history = history_of("0,0,allocate,0xa,1000,0\n");
  auto const manager = manager_with(MemoryBudget::unlimited());
  auto const kind_of = [&](ReplayOptions const& options) { return replay(history, manager, options).error().kind; };
  ReplayOptions options;
  options.loops = 0;
  EXPECT_EQ(kind_of(options), ErrorKind::invalid_argument);
  options = {};
  options.speed = 0;
  EXPECT_EQ(kind_of(options), ErrorKind::invalid_argument);
  options = {};
  options.stretch = std::chrono::seconds{0};
  EXPECT_EQ(kind_of(options), ErrorKind::invalid_argument);
}

TEST(trace_history, knows_who_holds_what_at_the_peak) {
  auto const history = history_of(
      "1,0,allocate,0xa,1048575,5\n"   // <1MiB
      "2,1,allocate,0xb,1048576,6\n"   // 1-32MiB
      "2,2,allocate,0xc,33554432,6\n"  // 1-32MiB
      "2,3,allocate,0xd,33554433,6\n"  // >32MiB: the peak
      "1,4,free,0xc,33554432,5\n"      // freed on another thread and stream
      "1,5,allocate,0xe,4096,5\n");
  auto const by_size = history.holders_at_peak(ReplayTags::size);
  ASSERT_EQ(by_size.size(), 3U);
  EXPECT_EQ(by_size[0].tag, "1-32MiB");
  EXPECT_EQ(by_size[0].bytes, 34603008U);
  EXPECT_EQ(by_size[0].allocations, 2U);
  EXPECT_EQ(by_size[1].tag, ">32MiB");
  EXPECT_EQ(by_size[1].bytes, 33554433U);
  EXPECT_EQ(by_size[2].tag, "<1MiB");
  EXPECT_EQ(by_size[2].bytes, 1048575U);
  auto const by_thread = history.holders_at_peak(ReplayTags::thread);
  ASSERT_EQ(by_thread.size(), 2U);
  EXPECT_EQ(by_thread[0].tag, "thread 2");
  EXPECT_EQ(by_thread[0].bytes, 1048576U + 33554432U + 33554433U);
  auto const by_stream = history.holders_at_peak(ReplayTags::stream);
  ASSERT_EQ(by_stream.size(), 2U);
  EXPECT_EQ(by_stream[0].tag, "stream 6");
  EXPECT_EQ(by_stream[0].bytes, 1048576U + 33554432U + 33554433U);
}

}  // namespace
}  // namespace headroom::test
