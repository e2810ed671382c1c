#include "histograms.hpp"

#include <cmath>
#include <limits>
#include <span>

namespace headroom::exporter {
namespace {

using Histogram = prometheus::ClientMetric::Histogram;

/// `bound(i)` is the inclusive upper bound of bucket i; the last bucket has none.
template <class Bound>
Histogram cumulative(std::span<std::uint64_t const> buckets, double sum, Bound bound) {
  Histogram histogram;
  histogram.bucket.reserve(buckets.size());
  std::uint64_t count = 0;
  for (std::size_t index = 0; index < buckets.size(); ++index) {
    count += buckets[index];
    const bool is_last = index + 1 == buckets.size();
    histogram.bucket.push_back({count, is_last ? std::numeric_limits<double>::infinity() : bound(index)});
  }
  histogram.sample_count = count;
  histogram.sample_sum = count == 0 ? 0.0 : sum;
  return histogram;
}

double power_of_two(std::size_t exponent) { return std::ldexp(1.0, static_cast<int>(exponent)); }

Histogram of_nanoseconds(std::span<std::uint64_t const> buckets, std::uint64_t sum_ns) {
  constexpr double kNanosecondsPerSecond = 1e9;
  return cumulative(buckets, static_cast<double>(sum_ns) / kNanosecondsPerSecond,
                    [](std::size_t index) { return power_of_two(index) / kNanosecondsPerSecond; });
}

}  // namespace

Histogram size_histogram(flight::CounterSums const& counters) {
  return cumulative(counters.size_histogram, static_cast<double>(counters.allocation_bytes),
                    [](std::size_t index) { return power_of_two(index) - 1.0; });
}

Histogram duration_histogram(flight::CounterSums const& counters) {
  return of_nanoseconds(counters.duration_histogram, counters.allocation_ns);
}

Histogram hook_duration_histogram(flight::HookSnapshot const& hook) {
  return of_nanoseconds(hook.duration_histogram, hook.duration_ns);
}

Histogram use_histogram(flight::CounterSums const& counters) {
  constexpr auto kSteps = static_cast<double>(flight::kUseBuckets);
  double sum = 0.0;
  for (std::size_t index = 0; index < counters.use_histogram.size(); ++index) {
    sum += static_cast<double>(counters.use_histogram[index]) * (static_cast<double>(index) + 0.5) / kSteps;
  }
  return cumulative(counters.use_histogram, sum, [](std::size_t index) { return static_cast<double>(index + 1) / kSteps; });
}

}  // namespace headroom::exporter
