// The figures of a history: those that were recorded beside the shipped ones, by hand for the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "histories.hpp"
#include "trace/live_blocks.hpp"

namespace headroom::test {
namespace {

using testing::HasSubstr;

struct Shipped {
  std::string file;
  std::uint64_t allocations, frees, failures, peak_bytes, live_bytes, live_allocations, threads;
  friend void PrintTo(Shipped const& shipped, std::ostream* out) { *out << shipped.file; }
};

class ShippedHistory : public testing::TestWithParam<Shipped> {};

TEST_P(ShippedHistory, adds_up_to_its_figures) {
  auto const& expected = GetParam();
  auto const summary = summarize_trace(std::string{HEADROOM_TEST_DATA "/"} + expected.file + ".csv.xz");
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  EXPECT_EQ(summary->allocations, expected.allocations);
  EXPECT_EQ(summary->frees, expected.frees);
  EXPECT_EQ(summary->trace_failures, expected.failures);
  EXPECT_EQ(summary->peak_bytes, expected.peak_bytes);
  EXPECT_EQ(summary->live_bytes, expected.live_bytes);
  EXPECT_EQ(summary->live_allocations, expected.live_allocations);
  EXPECT_EQ(summary->threads, expected.threads);
  EXPECT_EQ(summary->events, expected.allocations + expected.frees + expected.failures);
  EXPECT_EQ(summary->unmatched_frees, 0U);
  EXPECT_EQ(summary->duplicate_allocations, 0U);
  EXPECT_EQ(summary->size_mismatches, 0U);
}

// vit_threads: the four of its name, and the main thread that loads the weights.
INSTANTIATE_TEST_SUITE_P(all, ShippedHistory,
                         testing::Values(Shipped{"resnet", 4'143, 4'140, 0, 3'192'592'912, 68'157'440, 3, 1},
                                         Shipped{"gpt2", 6'176, 6'176, 0, 10'579'622'600, 0, 0, 1},
                                         Shipped{"vit_threads", 8'608, 8'600, 0, 1'125'873'568, 138'412'032, 8, 5},
                                         Shipped{"oom_batch", 1'283, 1'283, 43, 5'698'655'552, 0, 0, 1}),
                         [](testing::TestParamInfo<Shipped> const& test) { return test.param.file; });

class Summary : public testing::Test {
protected:
  [[nodiscard]] Result<TraceSummary> summary_of(std::string const& records) const {
    return summarize_trace(folder_.write(std::string{kHeader} + records));
  }

  TempFolder folder_;
};

TEST_F(Summary, counts_by_hand) {
  auto const summary = summary_of(
      "1,10,allocate,0xa,100,0\n"
      "2,5,allocate,0xb,50,0\n"  // 150: the peak
      "1,11,allocate failure,(nil),1000,0\n"
      "1,12,free,0xa,100,0\n"
      "1,30,allocate,0xc,7,0\n");
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(*summary, (TraceSummary{.events = 5,
                                    .allocations = 3,
                                    .frees = 1,
                                    .trace_failures = 1,
                                    .unmatched_frees = 0,
                                    .duplicate_allocations = 0,
                                    .size_mismatches = 0,
                                    .peak_bytes = 150,
                                    .live_bytes = 57,
                                    .live_allocations = 2,
                                    .threads = 2,
                                    .first_time_us = 5,
                                    .last_time_us = 30,
                                    .at_peak = {SizeClassSum{.bytes = 150, .allocations = 2}},
                                    .devices = {DeviceSum{.device = 0,
                                                          .allocations = 3,
                                                          .frees = 1,
                                                          .trace_failures = 1,
                                                          .peak_bytes = 150,
                                                          .live_bytes = 57,
                                                          .live_allocations = 2}}}));
}

TEST_F(Summary, who_held_the_peak_by_class_of_size) {
  // 2 MiB − 1 + 32 MiB + 33 MiB is the peak; the same sum later, in other sizes, is no new one.
  auto const summary = summary_of(
      "1,1,allocate,0xa,1048575,0\n"
      "1,2,allocate,0xb,1048576,0\n"
      "1,3,allocate,0xc,33554432,0\n"
      "1,4,allocate,0xd,34603008,0\n"
      "1,5,free,0xd,34603008,0\n"
      "1,6,free,0xb,1048576,0\n"
      "1,7,allocate,0xe,35651584,0\n");
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->peak_bytes, 1'048'575U + 1'048'576U + 33'554'432U + 34'603'008U);
  EXPECT_EQ(summary->live_bytes, summary->peak_bytes);
  EXPECT_EQ(summary->at_peak[0], (SizeClassSum{.bytes = 1'048'575, .allocations = 1}));
  EXPECT_EQ(summary->at_peak[1], (SizeClassSum{.bytes = 1'048'576 + 33'554'432, .allocations = 2}));
  EXPECT_EQ(summary->at_peak[2], (SizeClassSum{.bytes = 34'603'008, .allocations = 1}));
}

TEST_F(Summary, of_nothing_is_zero) { EXPECT_EQ(summary_of(""), TraceSummary{}); }

TEST_F(Summary, free_without_allocation_is_counted_and_changes_nothing) {
  auto const summary = summary_of("0,1,free,0xdead,100,0\n0,2,allocate,0xa,8,0\n0,3,free,0xa,8,0\n0,4,free,0xa,8,0\n");
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->frees, 3U);
  EXPECT_EQ(summary->unmatched_frees, 2U);
  EXPECT_EQ(summary->peak_bytes, 8U);
  EXPECT_EQ(summary->live_bytes, 0U);
}

TEST_F(Summary, allocation_logged_before_the_free_of_its_address_comes_out_even) {
  // Thread 1 freed 0xa and thread 2 got it, but logged first.
  auto const summary = summary_of("1,1,allocate,0xa,100,0\n2,2,allocate,0xa,30,0\n1,3,free,0xa,100,0\n2,4,free,0xa,30,0\n");
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->duplicate_allocations, 1U);
  EXPECT_EQ(summary->unmatched_frees, 0U);
  EXPECT_EQ(summary->size_mismatches, 0U);
  EXPECT_EQ(summary->peak_bytes, 130U);
  EXPECT_EQ(summary->live_bytes, 0U);
}

TEST_F(Summary, allocation_whose_predecessor_was_never_freed_leaves_it_live) {
  auto const summary = summary_of("1,1,allocate,0xa,100,0\n1,2,allocate,0xa,30,0\n1,3,free,0xa,30,0\n");
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->duplicate_allocations, 1U);
  EXPECT_EQ(summary->live_bytes, 100U);
  EXPECT_EQ(summary->live_allocations, 1U);
}

TEST_F(Summary, free_with_another_size_gives_back_what_was_allocated) {
  auto const summary = summary_of("1,1,allocate,0xa,100,0\n1,2,free,0xa,30,0\n");
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->size_mismatches, 1U);
  EXPECT_EQ(summary->live_bytes, 0U);
  EXPECT_EQ(summary->unmatched_frees, 0U);
}

TEST_F(Summary, nothing_at_null_is_neither_live_nor_unmatched) {
  auto const summary = summary_of("1,1,allocate,(nil),0,0\n1,2,allocate,(nil),0,0\n1,3,free,0x0,0,0\n");
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->allocations, 2U);
  EXPECT_EQ(summary->frees, 1U);
  EXPECT_EQ(summary->duplicate_allocations + summary->unmatched_frees + summary->live_allocations, 0U);
}

TEST_F(Summary, sum_beyond_64_bits_is_an_error_with_its_line) {
  auto const summary = summary_of("1,1,allocate,0xa,18446744073709551615,0\n1,2,allocate,0xb,1,0\n");
  ASSERT_FALSE(summary.has_value());
  EXPECT_EQ(summary.error().kind, ErrorKind::overflow);
  EXPECT_EQ(summary.error().requested, 1U);
  EXPECT_THAT(summary.error().message, HasSubstr("history.csv:3: size 1 brings the live bytes above 2^64 - 1"));
  auto const largest = summary_of("1,1,allocate,0xa,18446744073709551615,0\n1,2,free,0xa,1,0\n");
  EXPECT_EQ(largest->peak_bytes, 18'446'744'073'709'551'615U);
}

TEST_F(Summary, passes_on_the_error_of_a_bad_line) {
  auto const summary = summary_of("1,1,allocate,0xa,100,0\n1,1,allocate,0xa\n");
  ASSERT_FALSE(summary.has_value());
  EXPECT_THAT(summary.error().message, HasSubstr(":3: "));
}

TEST(LiveBlocks, three_at_one_address_come_back_by_size_or_by_age) {
  trace::LiveBlocks<int> live;
  EXPECT_TRUE(live.insert(0xa, 10, 1));
  EXPECT_FALSE(live.insert(0xa, 20, 2));
  EXPECT_FALSE(live.insert(0xa, 30, 3));
  EXPECT_TRUE(live.insert(0xb, 40, 4));
  EXPECT_EQ(live.size(), 4U);
  EXPECT_EQ(live.take(0xa, 20)->value, 2);  // by size
  EXPECT_EQ(live.take(0xa, 99)->value, 1);  // the oldest
  int sum = 0;
  live.for_each([&sum](std::uint64_t, auto const& one) { sum += one.value; });
  EXPECT_EQ(sum, 7);
  EXPECT_EQ(live.take(0xa, 99)->value, 3);
  EXPECT_FALSE(live.take(0xa, 30).has_value());
  EXPECT_EQ(live.size(), 1U);
}

}  // namespace
}  // namespace headroom::test
