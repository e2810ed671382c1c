#include "hook_metrics.hpp"

#include <algorithm>
#include <string>

#include "histograms.hpp"

namespace headroom::exporter {
namespace {

constexpr double kNanosecondsPerSecond = 1e9;

struct HookSum {
  flight::HookSnapshot totals;
  std::uint64_t running_ns = 0;  // of the longest run going on
  bool lives = false;            // one of them is registered
};

void add_to(HookSum& sum, flight::HookSnapshot const& hook, HookClock const& clock) {
  auto& totals = sum.totals;
  sum.lives = sum.lives || !hook.ended;
  totals.runs += hook.runs;
  totals.errors += hook.errors;
  totals.overruns += hook.overruns;
  totals.skips += hook.skips;
  totals.busy_skips += hook.busy_skips;
  totals.reported_bytes += hook.reported_bytes;
  totals.freed_bytes += hook.freed_bytes;
  totals.duration_ns += hook.duration_ns;
  for (std::size_t i = 0; i < totals.duration_histogram.size(); ++i) totals.duration_histogram[i] += hook.duration_histogram[i];
  if (!hook.running_since_ticks) return;
  const std::uint64_t since = clock.map.monotonic_ns(*hook.running_since_ticks);
  sum.running_ns = std::max(sum.running_ns, clock.now_ns > since ? clock.now_ns - since : 0);
}

void add_samples(Families& families, HookSum const& sum, Labels const& labels) {
  auto const& totals = sum.totals;
  families.add(Metric::hook_runs_total, labels, totals.runs);
  families.add(Metric::hook_freed_bytes_total, labels, totals.freed_bytes);
  families.add(Metric::hook_reported_bytes_total, labels, totals.reported_bytes);
  families.add(Metric::hook_skips_total, with_label(labels, "reason", "overhead"), totals.skips);
  families.add(Metric::hook_skips_total, with_label(labels, "reason", "busy"), totals.busy_skips);
  families.add(Metric::hook_errors_total, labels, totals.errors);
  families.add(Metric::hook_overruns_total, labels, totals.overruns);
  families.add(Metric::hook_running_seconds, labels, static_cast<double>(sum.running_ns) / kNanosecondsPerSecond);
  families.add(Metric::hook_duration_seconds, labels, hook_duration_histogram(totals));
}

}  // namespace

void add_hooks(Families& families, std::vector<flight::HookSnapshot> const& hooks, std::uint32_t ledger_id,
               HookClock const& clock, Labels const& labels) {
  std::map<std::string, HookSum> by_name;
  for (auto const& hook : hooks) {
    if (hook.ledger_id == ledger_id) add_to(by_name[safe_label_value(hook.name)], hook, clock);
  }
  for (auto const& [name, sum] : by_name) {
    if (sum.lives) add_samples(families, sum, with_label(labels, "hook", name));
  }
}

}  // namespace headroom::exporter
