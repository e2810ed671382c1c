// headroom: the metric families, described in one table and filled in any order.
//
// Adding a metric: a name in `Metric`, a line in the table of families.cpp at the same place, and the one call that adds its
// samples. A family without samples is not served: what is unknown is absent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
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
  // What a node exporter sums up of what has no series of its own any more; see node_totals.hpp.
  exited_allocations_total,
  exited_frees_total,
  exited_allocation_bytes_total,
  exited_deallocation_bytes_total,
  exited_allocation_failures_total,
  exited_deallocation_failures_total,
  exited_pressure_transitions_total,
  exited_oom_policy_runs_total,
  exited_oom_recoveries_total,
  exited_oom_failures_total,
  exited_oom_waits_total,
  exited_oom_wait_seconds_total,
  exited_oom_checkpoints_total,
  exited_events_recorded_total,
  exited_events_refused_total,
  exited_tags_folded_total,
  // … and what it knows of processes and their files.
  processes_died_total,
  died_live_bytes,
  post_mortems_total,
  post_mortem_failures_total,
  node_processes,
  node_processes_found_dead_total,
  node_processes_folded_early_total,
  node_folded_allocated_bytes,
  node_files_skipped_total,
  node_folders,
  // The exporter itself.
  exporter_scrape_duration_seconds,
  exporter_errors_total,
};
inline constexpr std::size_t kMetricCount = 88;

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
  /// One that was taken with take_samples().
  void add(Metric metric, prometheus::ClientMetric sample);

  /// While it is on, gauges are dropped: of what has ended, only counters and histograms are still true.
  /// Returns what was set before.
  bool set_counters_only(bool on) noexcept { return std::exchange(counters_only_, on); }

  /// How many samples each family has, for rollback(): what was added since is taken back.
  using Mark = std::vector<std::size_t>;
  [[nodiscard]] Mark mark() const;
  void rollback(Mark const& mark);

  [[nodiscard]] std::size_t sample_count() const noexcept;
  /// All samples, each with its metric; leaves this object empty.
  [[nodiscard]] std::vector<std::pair<Metric, prometheus::ClientMetric>> take_samples();

  /// The families that have samples, in the order of the table; leaves this object empty.
  [[nodiscard]] std::vector<prometheus::MetricFamily> take();
  /// Shows these families to `visit(metric, family)`, and leaves this object empty with room for as many samples.
  template <class Visit>
  void drain(Visit const& visit) {
    for (std::size_t index = 0; index < families_.size(); ++index) {
      auto& family = families_[index];
      if (family.metric.empty()) continue;
      visit(static_cast<Metric>(index), std::as_const(family));
      family.metric.clear();
    }
  }

private:
  std::vector<prometheus::MetricFamily> families_;
  bool counters_only_ = false;
};

}  // namespace headroom::exporter
