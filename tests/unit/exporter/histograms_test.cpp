// Histograms: bounds that are true, counts that add up.
#include "histograms.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace headroom::exporter {
namespace {

TEST(SizeHistogram, an_allocation_of_exactly_a_power_of_two_lies_under_the_next_bound) {
  flight::CounterSums counters;
  counters.size_histogram[0] = 3;   // zero bytes
  counters.size_histogram[21] = 2;  // [2^20, 2^21)
  counters.size_histogram[47] = 1;
  counters.allocation_bytes = 2 * 1048576 + 70368744177664;
  const auto histogram = size_histogram(counters);
  ASSERT_EQ(histogram.bucket.size(), flight::kSizeBuckets);
  EXPECT_EQ(histogram.bucket[0].upper_bound, 0.0);
  EXPECT_EQ(histogram.bucket[0].cumulative_count, 3U);
  EXPECT_EQ(histogram.bucket[20].upper_bound, 1048575.0);
  EXPECT_EQ(histogram.bucket[20].cumulative_count, 3U);
  EXPECT_EQ(histogram.bucket[21].upper_bound, 2097151.0);
  EXPECT_EQ(histogram.bucket[21].cumulative_count, 5U);
  EXPECT_EQ(histogram.bucket[47].upper_bound, HUGE_VAL);
  EXPECT_EQ(histogram.bucket[47].cumulative_count, 6U);
  EXPECT_EQ(histogram.sample_count, 6U);
  EXPECT_EQ(histogram.sample_sum, 70368746274816.0);
}

TEST(DurationHistogram, is_in_seconds) {
  flight::CounterSums counters;
  counters.duration_histogram[10] = 4;  // [512, 1024) ns
  counters.allocation_ns = 3000;
  const auto histogram = duration_histogram(counters);
  ASSERT_EQ(histogram.bucket.size(), flight::kDurationBuckets);
  EXPECT_EQ(histogram.bucket[9].cumulative_count, 0U);
  EXPECT_DOUBLE_EQ(histogram.bucket[10].upper_bound, 1.024e-6);
  EXPECT_EQ(histogram.bucket[10].cumulative_count, 4U);
  EXPECT_EQ(histogram.sample_count, 4U);
  EXPECT_DOUBLE_EQ(histogram.sample_sum, 3e-6);
}

TEST(UseHistogram, has_64_steps_and_a_sum_from_the_middles) {
  flight::CounterSums counters;
  counters.use_histogram[31] = 2;  // [31/64, 32/64)
  counters.use_histogram[63] = 1;  // from 63/64
  const auto histogram = use_histogram(counters);
  ASSERT_EQ(histogram.bucket.size(), 64U);
  EXPECT_DOUBLE_EQ(histogram.bucket[31].upper_bound, 0.5);
  EXPECT_EQ(histogram.bucket[31].cumulative_count, 2U);
  EXPECT_EQ(histogram.bucket[62].upper_bound, 63.0 / 64);
  EXPECT_EQ(histogram.bucket[63].upper_bound, HUGE_VAL);
  EXPECT_EQ(histogram.sample_count, 3U);
  EXPECT_DOUBLE_EQ(histogram.sample_sum, (2 * 31.5 + 63.5) / 64);
}

TEST(Histograms, of_nothing_are_zero_and_never_NaN) {
  const flight::CounterSums counters;
  for (auto const& histogram : {size_histogram(counters), duration_histogram(counters), use_histogram(counters)}) {
    EXPECT_EQ(histogram.sample_count, 0U);
    EXPECT_EQ(histogram.sample_sum, 0.0);
    for (std::size_t index = 1; index < histogram.bucket.size(); ++index) {
      EXPECT_LT(histogram.bucket[index - 1].upper_bound, histogram.bucket[index].upper_bound);
    }
  }
}

}  // namespace
}  // namespace headroom::exporter
