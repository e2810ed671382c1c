// headroom: the books' histograms in Prometheus's terms.
//
// The books count into half-open buckets [low, high); Prometheus counts what is ≤ a bound. Sizes are whole bytes, so the bound of
// [2^(i−1), 2^i) is 2^i − 1: with 2^i, an allocation of exactly 1 MiB would be missing from the bucket that says le="1048576".
// Durations and ratios are continuous, there the upper end itself serves. The last bucket of each is open, hence le="+Inf".
// The count is the sum of the buckets, never another counter, so that a histogram is consistent even while it grows.
#pragma once

#include <prometheus/client_metric.h>
#include <headroom/flight_reader.hpp>

namespace headroom::exporter {

[[nodiscard]] prometheus::ClientMetric::Histogram size_histogram(flight::CounterSums const& counters);
[[nodiscard]] prometheus::ClientMetric::Histogram duration_histogram(flight::CounterSums const& counters);
[[nodiscard]] prometheus::ClientMetric::Histogram hook_duration_histogram(flight::HookSnapshot const& hook);
/// The books hold no sum of ratios; it is added up from the middles of the buckets and off by at most 1/128 a sample.
[[nodiscard]] prometheus::ClientMetric::Histogram use_histogram(flight::CounterSums const& counters);

}  // namespace headroom::exporter
