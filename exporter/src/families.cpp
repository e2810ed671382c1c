#include "families.hpp"

#include <array>
#include <cmath>
#include <string>
#include <utility>

namespace headroom::exporter {
namespace {

using prometheus::MetricType;

constexpr std::array<Descriptor, kMetricCount> kDescriptors{{
    {Metric::build_info, "build_info", MetricType::Gauge, "Always 1; the labels say which version of headroom runs."},
    {Metric::process_start_time_seconds, "process_start_time_seconds", MetricType::Gauge,
     "When the process began to record, in seconds since 1970 UTC."},
    {Metric::process_up, "process_up", MetricType::Gauge, "1 while the process lives, 0 when only its flight file is left."},
    {Metric::last_activity_timestamp_seconds, "last_activity_timestamp_seconds", MetricType::Gauge,
     "When the process last recorded anything (to about a second), in seconds since 1970 UTC."},
    {Metric::budget_bytes, "budget_bytes", MetricType::Gauge, "Budget in force; absent while it is unlimited."},
    {Metric::budget_enforcing, "budget_enforcing", MetricType::Gauge,
     "1 when requests over the budget are refused, 0 when they are only counted or there is no budget."},
    {Metric::allocated_bytes, "allocated_bytes", MetricType::Gauge, "Bytes in live allocations."},
    {Metric::claimed_bytes, "claimed_bytes", MetricType::Gauge,
     "Bytes taken from the budget: allocated, reserved and not yet spent, and requests on their way to the driver."},
    {Metric::remaining_bytes, "remaining_bytes", MetricType::Gauge,
     "Budget less claimed, never below 0; absent while unlimited."},
    {Metric::over_budget_bytes, "over_budget_bytes", MetricType::Gauge,
     "Claimed bytes above the budget, as after the budget was lowered."},
    {Metric::peak_bytes, "peak_bytes", MetricType::Gauge,
     "High-water mark of allocated bytes since the start or the last reset."},
    {Metric::reserved_unspent_bytes, "reserved_unspent_bytes", MetricType::Gauge,
     "Bytes in reservations that are not yet spent."},
    {Metric::sentinel_bytes, "sentinel_bytes", MetricType::Gauge, "Bytes that a guard holds back for emergencies."},
    {Metric::live_allocations, "live_allocations", MetricType::Gauge, "Allocations that are live."},
    {Metric::live_untracked, "live_untracked", MetricType::Gauge,
     "Live allocations that found no slot in the table of allocations; their bytes are counted all the same."},
    {Metric::device_total_bytes, "device_total_bytes", MetricType::Gauge,
     "Physical memory of the device by the driver's library (NVML); what the program's resource said where that "
     "says nothing; absent while unknown."},
    {Metric::device_driver_reserved_bytes, "device_driver_reserved_bytes", MetricType::Gauge,
     "Part of the physical memory that driver and firmware keep, and no program can have; absent while unknown."},
    {Metric::device_usable_bytes, "device_usable_bytes", MetricType::Gauge,
     "Physical memory less what the driver reserves; absent while unknown."},
    {Metric::device_free_bytes, "device_free_bytes", MetricType::Gauge,
     "Free memory of the device by NVML, read at the scrape; where that says nothing, as the program last saw it (at opening, "
     "in a shortage, after a budget change, on refresh). Absent while unknown."},
    {Metric::device_used_outside_bytes, "device_used_outside_bytes", MetricType::Gauge,
     "Memory of the device in use, but not by this process's managers (contexts, libraries, others), as last seen; absent while "
     "unknown."},
    {Metric::device_budget_bytes, "device_budget_bytes", MetricType::Gauge,
     "Budget that the managers of one device share; absent while unlimited."},
    {Metric::device_claimed_bytes, "device_claimed_bytes", MetricType::Gauge,
     "Bytes claimed from the budget that the managers of one device share."},
    {Metric::device_account_pending_free_bytes, "device_account_pending_free_bytes", MetricType::Gauge,
     "Bytes that were freed on a stream and that the device does not have back yet; part of the claimed bytes."},
    {Metric::allocations_total, "allocations_total", MetricType::Counter, "Allocations that succeeded."},
    {Metric::frees_total, "frees_total", MetricType::Counter, "Frees that were accepted."},
    {Metric::allocation_bytes_total, "allocation_bytes_total", MetricType::Counter, "Bytes of the allocations that succeeded."},
    {Metric::deallocation_bytes_total, "deallocation_bytes_total", MetricType::Counter, "Bytes of the frees that were accepted."},
    {Metric::inflight_operations, "inflight_operations", MetricType::Gauge, "Operations that threads are in the middle of."},
    {Metric::inflight_oldest_seconds, "inflight_oldest_seconds", MetricType::Gauge,
     "For how long the oldest operation in flight has been running; 0 when there is none."},
    {Metric::allocation_failures_total, "allocation_failures_total", MetricType::Counter,
     "Requests that failed, by what went wrong and by the layer that said no."},
    {Metric::deallocation_failures_total, "deallocation_failures_total", MetricType::Counter,
     "Frees that failed, by what went wrong; their bytes stay charged."},
    {Metric::deallocation_failure_bytes, "deallocation_failure_bytes", MetricType::Gauge,
     "Bytes now charged because their free failed; falls when the free is retried or written off."},
    {Metric::pressure_level, "pressure_level", MetricType::Gauge,
     "Pressure on the budget: 0 none, 1 low, 2 medium, 3 high, 4 critical."},
    {Metric::pressure_transitions_total, "pressure_transitions_total", MetricType::Counter, "Changes of the pressure level."},
    {Metric::allocation_size_bytes, "allocation_size_bytes", MetricType::Histogram,
     "Sizes of the allocations that succeeded; bounds are one byte below the powers of two."},
    {Metric::allocation_duration_seconds, "allocation_duration_seconds", MetricType::Histogram,
     "Time from request to memory of the allocations that succeeded."},
    {Metric::budget_use_ratio, "budget_use_ratio", MetricType::Histogram,
     "Claimed bytes as a share of the budget at each allocation, in steps of 1/64; a bucket holds the ratios below its bound, "
     "and the "
     "sum is added up from the middles of the buckets."},
    {Metric::tag_allocated_bytes, "tag_allocated_bytes", MetricType::Gauge, "Bytes in live allocations of one tag."},
    {Metric::tag_at_peak_bytes, "tag_at_peak_bytes", MetricType::Gauge,
     "Bytes that the tag held when its manager reached its peak."},
    {Metric::tag_allocations_total, "tag_allocations_total", MetricType::Counter, "Allocations of one tag that succeeded."},
    {Metric::oom_policy_runs_total, "oom_policy_runs_total", MetricType::Counter,
     "Requests of guards about which an out-of-memory policy was asked."},
    {Metric::oom_recoveries_total, "oom_recoveries_total", MetricType::Counter,
     "Requests of guards that were refused, and granted after hooks or policy; by the policy in force."},
    {Metric::oom_failures_total, "oom_failures_total", MetricType::Counter,
     "Requests of guards that failed for good although hooks or policy tried something."},
    {Metric::oom_waiters, "oom_waiters", MetricType::Gauge, "Requests that wait for room in the budget now."},
    {Metric::oom_waits_total, "oom_waits_total", MetricType::Counter,
     "Requests that began to wait for room, in the budget or on the device."},
    {Metric::oom_wait_seconds_total, "oom_wait_seconds_total", MetricType::Counter, "Time that requests spent waiting for room."},
    {Metric::oom_checkpoints_total, "oom_checkpoints_total", MetricType::Counter, "Runs of the on_oom callback."},
    {Metric::hook_runs_total, "hook_runs_total", MetricType::Counter,
     "Runs of a hook that ended, by returning or by an exception."},
    {Metric::hook_freed_bytes_total, "hook_freed_bytes_total", MetricType::Counter,
     "Bytes that were really freed on the hook's thread during its runs."},
    {Metric::hook_reported_bytes_total, "hook_reported_bytes_total", MetricType::Counter,
     "Bytes that the hook said it freed; nothing but this figure depends on it."},
    {Metric::hook_skips_total, "hook_skips_total", MetricType::Counter,
     "Turns without a run: the hook needed more memory than was left (overhead), or ran on another thread for too long (busy)."},
    {Metric::hook_errors_total, "hook_errors_total", MetricType::Counter, "Runs of a hook that ended by an exception."},
    {Metric::hook_overruns_total, "hook_overruns_total", MetricType::Counter,
     "Runs of a hook that took longer than its limit, counted as soon as another thread waits for it in vain."},
    {Metric::hook_running_seconds, "hook_running_seconds", MetricType::Gauge,
     "For how long the present run of the hook has been going on; 0 while it does not run."},
    {Metric::hook_duration_seconds, "hook_duration_seconds", MetricType::Histogram, "Duration of a hook's runs."},
    {Metric::events_recorded_total, "events_recorded_total", MetricType::Counter, "Events written into the flight file."},
    {Metric::events_refused_total, "events_refused_total", MetricType::Counter,
     "Events that could not be written; the books hold their bytes all the same."},
    {Metric::events_lost_total, "events_lost_total", MetricType::Counter,
     "Events that this exporter's own reader was too slow to see; no other figure depends on them."},
    {Metric::tags_folded_total, "tags_folded_total", MetricType::Counter,
     "Tags that found no cell of their own and count as other."},
    {Metric::lanes_in_use, "lanes_in_use", MetricType::Gauge, "Event lanes that a thread holds now."},
    {Metric::exited_allocations_total, "exited_allocations_total", MetricType::Counter,
     "Allocations that succeeded in what has no series of its own any more, by the name of the process: processes that ended, "
     "managers "
     "that were closed, processes beyond the exporter's bound. With the series that there are: all since the exporter began."},
    {Metric::exited_frees_total, "exited_frees_total", MetricType::Counter,
     "Frees that were accepted, of what has no series of its own any more."},
    {Metric::exited_allocation_bytes_total, "exited_allocation_bytes_total", MetricType::Counter,
     "Bytes of the allocations of what has no series of its own any more."},
    {Metric::exited_deallocation_bytes_total, "exited_deallocation_bytes_total", MetricType::Counter,
     "Bytes of the frees of what has no series of its own any more."},
    {Metric::exited_allocation_failures_total, "exited_allocation_failures_total", MetricType::Counter,
     "Requests that failed, of what has no series of its own any more."},
    {Metric::exited_deallocation_failures_total, "exited_deallocation_failures_total", MetricType::Counter,
     "Frees that failed, of what has no series of its own any more."},
    {Metric::exited_pressure_transitions_total, "exited_pressure_transitions_total", MetricType::Counter,
     "Changes of the pressure level, of what has no series of its own any more."},
    {Metric::exited_oom_policy_runs_total, "exited_oom_policy_runs_total", MetricType::Counter,
     "Requests about which an out-of-memory policy was asked, of what has no series of its own any more."},
    {Metric::exited_oom_recoveries_total, "exited_oom_recoveries_total", MetricType::Counter,
     "Requests that were refused, and granted after hooks or policy, of what has no series of its own any more."},
    {Metric::exited_oom_failures_total, "exited_oom_failures_total", MetricType::Counter,
     "Requests that failed for good although something was tried, of what has no series of its own any more."},
    {Metric::exited_oom_waits_total, "exited_oom_waits_total", MetricType::Counter,
     "Requests that began to wait for room, of what has no series of its own any more."},
    {Metric::exited_oom_wait_seconds_total, "exited_oom_wait_seconds_total", MetricType::Counter,
     "Time that requests spent waiting for room, of what has no series of its own any more."},
    {Metric::exited_oom_checkpoints_total, "exited_oom_checkpoints_total", MetricType::Counter,
     "Runs of the on_oom callback, of what has no series of its own any more."},
    {Metric::exited_events_recorded_total, "exited_events_recorded_total", MetricType::Counter,
     "Events written into flight files that have no series of their own any more."},
    {Metric::exited_events_refused_total, "exited_events_refused_total", MetricType::Counter,
     "Events that could not be written, of processes that have no series of their own any more."},
    {Metric::exited_tags_folded_total, "exited_tags_folded_total", MetricType::Counter,
     "Tags that found no cell of their own, of processes that have no series of their own any more."},
    {Metric::processes_died_total, "processes_died_total", MetricType::Counter,
     "Processes that ended while the exporter looked, by how: exited (in good order), killed, unknown."},
    {Metric::died_live_bytes, "died_live_bytes", MetricType::Gauge,
     "Bytes in live allocations of a process when it ended, for as long as its counters are kept."},
    {Metric::post_mortems_total, "post_mortems_total", MetricType::Counter,
     "Post-mortems written of processes that were killed."},
    {Metric::post_mortem_failures_total, "post_mortem_failures_total", MetricType::Counter,
     "Processes that were killed and of which no post-mortem could be written; their flight files stay where they are."},
    {Metric::node_processes, "node_processes", MetricType::Gauge,
     "Processes that the exporter knows: living; unknown (nobody can tell whether they live: counters only); kept (ended, "
     "counters "
     "still served); folded (living, and beyond the bound: in sums only)."},
    {Metric::node_processes_found_dead_total, "node_processes_found_dead_total", MetricType::Counter,
     "Processes that had ended before the exporter first saw their files, and began before it did: in no sum."},
    {Metric::node_processes_folded_early_total, "node_processes_folded_early_total", MetricType::Counter,
     "Ended processes whose counters went into the sums before their time, since too many were kept."},
    {Metric::node_folded_allocated_bytes, "node_folded_allocated_bytes", MetricType::Gauge,
     "Bytes in live allocations of the living processes that are beyond the bound and have no series of their own."},
    {Metric::node_files_skipped_total, "node_files_skipped_total", MetricType::Counter,
     "Flight files that could not be served, each once: unreadable, broken, unsupported (another version), foreign (not the "
     "folder "
     "owner's), duplicate (of a process that is served), vanished (before it could be opened), truncated (while it was served), "
     "too_many."},
    {Metric::node_folders, "node_folders", MetricType::Gauge,
     "Folders of flight files: watched; missing; refused (not to be trusted or not readable)."},
    {Metric::exporter_scrape_duration_seconds, "exporter_scrape_duration_seconds", MetricType::Histogram,
     "Time to collect and print the metrics, of all scrapes before this one."},
    {Metric::exporter_errors_total, "exporter_errors_total", MetricType::Counter,
     "What went wrong in the exporter: collecting, answering, or accepting a connection."},
}};

constexpr bool table_follows_the_enumeration() {
  for (std::size_t index = 0; index < kDescriptors.size(); ++index) {
    if (static_cast<std::size_t>(kDescriptors[index].metric) != index || kDescriptors[index].name == nullptr) return false;
  }
  return true;
}
static_assert(table_follows_the_enumeration());
static_assert(static_cast<std::size_t>(Metric::exporter_errors_total) + 1 == kMetricCount);

}  // namespace

std::span<Descriptor const> descriptors() noexcept { return kDescriptors; }

Families::Families() : families_(kMetricCount) {
  for (std::size_t index = 0; index < kMetricCount; ++index) {
    families_[index].name = std::string{"headroom_"} + kDescriptors[index].name;
    families_[index].help = kDescriptors[index].help;
    families_[index].type = kDescriptors[index].type;
  }
}

void Families::add(Metric metric, Labels labels, double value) {
  if (!std::isfinite(value)) return;
  auto& family = families_[static_cast<std::size_t>(metric)];
  if (counters_only_ && family.type == MetricType::Gauge) return;
  prometheus::ClientMetric sample;
  sample.label = std::move(labels);
  (family.type == MetricType::Counter ? sample.counter.value : sample.gauge.value) = value;
  family.metric.push_back(std::move(sample));
}

void Families::add(Metric metric, Labels labels, prometheus::ClientMetric::Histogram histogram) {
  if (!std::isfinite(histogram.sample_sum)) return;
  prometheus::ClientMetric sample;
  sample.label = std::move(labels);
  sample.histogram = std::move(histogram);
  families_[static_cast<std::size_t>(metric)].metric.push_back(std::move(sample));
}

void Families::add(Metric metric, prometheus::ClientMetric sample) {
  families_[static_cast<std::size_t>(metric)].metric.push_back(std::move(sample));
}

Families::Mark Families::mark() const {
  Mark sizes;
  sizes.reserve(families_.size());
  for (auto const& family : families_) sizes.push_back(family.metric.size());
  return sizes;
}

void Families::rollback(Mark const& mark) {
  for (std::size_t index = 0; index < families_.size(); ++index) families_[index].metric.resize(mark[index]);
}

std::size_t Families::sample_count() const noexcept {
  std::size_t count = 0;
  for (auto const& family : families_) count += family.metric.size();
  return count;
}

std::vector<std::pair<Metric, prometheus::ClientMetric>> Families::take_samples() {
  std::vector<std::pair<Metric, prometheus::ClientMetric>> samples;
  for (std::size_t index = 0; index < families_.size(); ++index) {
    for (auto& sample : families_[index].metric) samples.emplace_back(static_cast<Metric>(index), std::move(sample));
    families_[index].metric.clear();
  }
  return samples;
}

std::vector<prometheus::MetricFamily> Families::take() {
  auto taken = std::exchange(families_, Families{}.families_);
  std::erase_if(taken, [](prometheus::MetricFamily const& family) { return family.metric.empty(); });
  return taken;
}

}  // namespace headroom::exporter
