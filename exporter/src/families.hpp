// headroom: the metric families, described in one table and filled in any order.
//
// Adding a metric: a name in `Metric`, a line in the table of families.cpp at the same place, and the one call that adds its
// samples. A family without samples is not served: what is unknown is absent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <prometheus/metric_family.h>

#include "labels.hpp"

namespace headroom::exporter {

enum class Metric : std::uint8_t {
  // One sample a process.
  build_info,
  process_start_time_seconds,
  process_up,
  last_activity_timestamp_seconds,
  // Gauges of a manager.
  budget_bytes,
  budget_enforcing,
  allocated_bytes,
  claimed_bytes,
  remaining_bytes,
  over_budget_bytes,
  peak_bytes,
  reserved_unspent_bytes,
  sentinel_bytes,
  live_allocations,
  live_untracked,
  // Of a device.
  device_total_bytes,
  device_driver_reserved_bytes,
  device_usable_bytes,
  device_free_bytes,
  device_used_outside_bytes,
  device_budget_bytes,
  device_claimed_bytes,
  device_account_pending_free_bytes,
  // What a manager did.
  allocations_total,
  frees_total,
  allocation_bytes_total,
  deallocation_bytes_total,
  inflight_operations,
  inflight_oldest_seconds,
  allocation_failures_total,
  deallocation_failures_total,
  deallocation_failure_bytes,
  pressure_level,
  pressure_transitions_total,
  allocation_size_bytes,
  allocation_duration_seconds,
  budget_use_ratio,
  tag_allocated_bytes,
  tag_at_peak_bytes,
  tag_allocations_total,
  // What guards did about requests that found no memory.
  oom_policy_runs_total,
  oom_recoveries_total,
  oom_failures_total,
  oom_waiters,
  oom_waits_total,
  oom_wait_seconds_total,
  oom_checkpoints_total,
  // Of a hook.
  hook_runs_total,
  hook_freed_bytes_total,
  hook_reported_bytes_total,
  hook_skips_total,
  hook_errors_total,
  hook_overruns_total,
  hook_running_seconds,
  hook_duration_seconds,
  // The recorder.
  events_recorded_total,
  events_refused_total,
  events_lost_total,
  tags_folded_total,
  lanes_in_use,
  // The exporter itself.
  exporter_scrape_duration_seconds,
  exporter_errors_total,
};
inline constexpr std::size_t kMetricCount = 62;

struct Descriptor {
  Metric metric;
  char const* name;  ///< without the prefix `headroom_`
  prometheus::MetricType type;
  char const* help;
};

/// Every metric there is, in the order in which they are served.
[[nodiscard]] std::span<Descriptor const> descriptors() noexcept;

/// Collects samples by family. Not thread-safe: one for each scrape.
class Families {
public:
  Families();

  /// A gauge's or counter's sample. A value that is no finite number is dropped: unknown is absent, and NaN is never served.
  void add(Metric metric, Labels labels, double value);
  void add(Metric metric, Labels labels, std::uint64_t value) { add(metric, std::move(labels), static_cast<double>(value)); }
  void add(Metric metric, Labels labels, prometheus::ClientMetric::Histogram histogram);

  /// The families that have samples, in the order of the table; leaves this object empty.
  [[nodiscard]] std::vector<prometheus::MetricFamily> take();

private:
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace headroom::exporter
