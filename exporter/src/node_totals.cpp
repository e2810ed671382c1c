#include "node_totals.hpp"

#include <algorithm>
#include <limits>
#include <string_view>

#include "ledger_metrics.hpp"

namespace headroom::exporter {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

std::uint64_t sum(std::uint64_t left, std::uint64_t right) noexcept { return left > kMost - right ? kMost : left + right; }

}  // namespace

Totals Totals::of_ledger(flight::LedgerSnapshot const& ledger) {
  Totals totals;
  auto& figures = totals.figures_;
  figures[0] = ledger.counters.allocations;
  figures[1] = ledger.counters.frees;
  figures[2] = ledger.counters.allocation_bytes;
  figures[3] = ledger.counters.deallocation_bytes;
  for (std::size_t kind = 0; kind < kErrorKindCount; ++kind) {
    for (std::size_t layer = 0; layer < kLayerCount; ++layer) figures[refusal(kind, layer)] = ledger.refusals[kind][layer];
    figures[kFreeFailures + kind] = ledger.free_failures[kind];
  }
  for (std::size_t from = 0; from < kLevels; ++from) {
    for (std::size_t to = 0; to < kLevels; ++to) {
      if (from != to) figures[transition(from, to)] = ledger.transitions[from][to];
    }
  }
  auto const& guard = ledger.guard;
  for (std::size_t policy = 0; policy < flight::kOomPolicyCount; ++policy) {
    figures[kPolicyRuns + policy] = guard.policy_runs[policy];
    figures[kRecoveries + policy] = guard.recoveries[policy];
  }
  figures[kGaveUp] = guard.gave_up;
  figures[kWaits] = guard.policy_waits;
  figures[kWaitNs] = guard.policy_wait_ns;
  figures[kCheckpoints] = guard.checkpoints;
  return totals;
}

Totals Totals::of_earlier(flight::EarlierSums const& earlier) {
  Totals totals;
  totals.figures_[0] = earlier.allocations;
  totals.figures_[1] = earlier.frees;
  totals.figures_[2] = earlier.allocation_bytes;
  totals.figures_[3] = earlier.deallocation_bytes;
  return totals;
}

Totals Totals::of_recorder(flight::ProcessInfo const& process) {
  Totals totals;
  totals.figures_[kRecorded] = process.events_recorded;
  totals.figures_[kRefusedNoLane] = process.refused_no_lane;
  totals.figures_[kRefusedReentrant] = process.refused_reentrant;
  totals.figures_[kRefusedEarly] = process.refused_early;
  totals.figures_[kTagsFolded] = process.tags_folded;
  return totals;
}

Totals Totals::counters() const {
  Totals part;
  std::copy_n(figures_.begin(), kCounters, part.figures_.begin());
  return part;
}

Totals Totals::without_counters() const {
  Totals part = *this;
  std::fill_n(part.figures_.begin(), kCounters, 0);
  return part;
}

Totals& Totals::operator+=(Totals const& other) noexcept {
  std::ranges::transform(figures_, other.figures_, figures_.begin(), sum);
  return *this;
}

Totals Totals::beyond(Totals const& part) const noexcept {
  Totals rest;
  std::ranges::transform(figures_, part.figures_, rest.figures_.begin(),
                         [](std::uint64_t all, std::uint64_t some) { return all > some ? all - some : 0; });
  return rest;
}

Totals Totals::or_more(Totals const& other) const noexcept {
  Totals most;
  std::ranges::transform(figures_, other.figures_, most.figures_.begin(),
                         [](std::uint64_t left, std::uint64_t right) { return std::max(left, right); });
  return most;
}

void Totals::add_to(Families& families, Labels const& labels) const {
  const auto always = [&](Metric metric, std::size_t place) { families.add(metric, labels, figures_[place]); };
  const auto if_any = [&](Metric metric, std::size_t place, auto const& make_labels) {
    if (figures_[place] != 0) families.add(metric, make_labels(), figures_[place]);
  };
  always(Metric::exited_allocations_total, 0);
  always(Metric::exited_frees_total, 1);
  always(Metric::exited_allocation_bytes_total, 2);
  always(Metric::exited_deallocation_bytes_total, 3);
  for (std::size_t kind = 0; kind < kErrorKindCount; ++kind) {
    const auto reason = to_string(static_cast<ErrorKind>(kind));
    for (std::size_t layer = 0; layer < kLayerCount; ++layer) {
      if_any(Metric::exited_allocation_failures_total, refusal(kind, layer),
             [&] { return with_label(with_label(labels, "reason", reason), "layer", to_string(static_cast<Layer>(layer))); });
    }
    if_any(Metric::exited_deallocation_failures_total, kFreeFailures + kind,
           [&] { return with_label(labels, "reason", reason); });
  }
  for (std::size_t from = 0; from < kLevels; ++from) {
    for (std::size_t to = 0; to < kLevels; ++to) {
      const auto word = [](std::size_t level) { return to_string(static_cast<PressureLevel>(level)); };
      if_any(Metric::exited_pressure_transitions_total, transition(from, to),
             [&] { return with_label(with_label(labels, "from", word(from)), "to", word(to)); });
    }
  }
  for (std::size_t policy = 0; policy < flight::kOomPolicyCount; ++policy) {
    const auto of_policy = [&] { return with_label(labels, "policy", kOomPolicyWords[policy]); };
    if_any(Metric::exited_oom_policy_runs_total, kPolicyRuns + policy, of_policy);
    if_any(Metric::exited_oom_recoveries_total, kRecoveries + policy, of_policy);
  }
  always(Metric::exited_oom_failures_total, kGaveUp);
  always(Metric::exited_oom_waits_total, kWaits);
  families.add(Metric::exited_oom_wait_seconds_total, labels, static_cast<double>(figures_[kWaitNs]) * 1e-9);
  always(Metric::exited_oom_checkpoints_total, kCheckpoints);
  always(Metric::exited_events_recorded_total, kRecorded);
  families.add(Metric::exited_events_refused_total, with_label(labels, "reason", "no_lane"), figures_[kRefusedNoLane]);
  families.add(Metric::exited_events_refused_total, with_label(labels, "reason", "reentrant"), figures_[kRefusedReentrant]);
  families.add(Metric::exited_events_refused_total, with_label(labels, "reason", "early"), figures_[kRefusedEarly]);
  always(Metric::exited_tags_folded_total, kTagsFolded);
}

}  // namespace headroom::exporter
