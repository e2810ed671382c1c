#include "ledger_metrics.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "histograms.hpp"

namespace headroom::exporter {
namespace {

using flight::LedgerSnapshot;

/// The failures that can happen in normal operation exist with 0 from the start, so that `increase()` sees the first one; any
/// other pair appears when it happens.
constexpr std::array<std::pair<ErrorKind, Layer>, 14> kExpectedFailures{{
    {ErrorKind::over_budget, Layer::manager},
    {ErrorKind::over_budget, Layer::device_account},
    {ErrorKind::over_budget, Layer::guard},
    {ErrorKind::device_out_of_memory, Layer::driver},
    {ErrorKind::device_out_of_memory, Layer::resource},
    {ErrorKind::overflow, Layer::request},
    {ErrorKind::overflow, Layer::resource},
    {ErrorKind::invalid_argument, Layer::request},
    {ErrorKind::invalid_argument, Layer::resource},
    {ErrorKind::no_runtime, Layer::runtime},
    {ErrorKind::driver, Layer::driver},
    {ErrorKind::stream_misuse, Layer::runtime},
    {ErrorKind::stream_misuse, Layer::resource},
    {ErrorKind::unsupported, Layer::resource},
}};

constexpr std::array<ErrorKind, 6> kExpectedFreeFailures{ErrorKind::driver,          ErrorKind::double_free,
                                                         ErrorKind::unknown_pointer, ErrorKind::wrong_size,
                                                         ErrorKind::wrong_owner,     ErrorKind::use_after_free};

void add_budget(Families& families, LedgerSnapshot const& ledger, Labels const& labels) {
  if (ledger.limit) families.add(Metric::budget_bytes, labels, *ledger.limit);
  families.add(Metric::budget_enforcing, labels, std::uint64_t{ledger.limit && ledger.enforcing});
  families.add(Metric::allocated_bytes, labels, ledger.allocated);
  families.add(Metric::claimed_bytes, labels, ledger.claimed);
  if (const auto remaining = ledger.remaining()) families.add(Metric::remaining_bytes, labels, *remaining);
  families.add(Metric::over_budget_bytes, labels, ledger.limit ? ledger.over_budget() : 0);
  families.add(Metric::peak_bytes, labels, std::max(ledger.peak, ledger.allocated));
  families.add(Metric::reserved_unspent_bytes, labels, ledger.unspent);
  families.add(Metric::sentinel_bytes, labels, ledger.sentinel_bytes);
  families.add(Metric::live_allocations, labels, ledger.live_allocations);
  families.add(Metric::live_untracked, labels, ledger.live_untracked);
}

void add_counters(Families& families, LedgerSnapshot const& ledger, Labels const& labels) {
  families.add(Metric::allocations_total, labels, ledger.counters.allocations);
  families.add(Metric::frees_total, labels, ledger.counters.frees);
  families.add(Metric::allocation_bytes_total, labels, ledger.counters.allocation_bytes);
  families.add(Metric::deallocation_bytes_total, labels, ledger.counters.deallocation_bytes);
  families.add(Metric::allocation_size_bytes, labels, size_histogram(ledger.counters));
  families.add(Metric::allocation_duration_seconds, labels, duration_histogram(ledger.counters));
  families.add(Metric::budget_use_ratio, labels, use_histogram(ledger.counters));
}

void add_failures(Families& families, LedgerSnapshot const& ledger, Labels const& labels) {
  for (std::size_t kind = 0; kind < kErrorKindCount; ++kind) {
    for (std::size_t layer = 0; layer < kLayerCount; ++layer) {
      const std::pair pair{static_cast<ErrorKind>(kind), static_cast<Layer>(layer)};
      const std::uint64_t count = ledger.refusals[kind][layer];
      if (count == 0 && std::ranges::find(kExpectedFailures, pair) == kExpectedFailures.end()) continue;
      families.add(Metric::allocation_failures_total,
                   with_label(with_label(labels, "reason", to_string(pair.first)), "layer", to_string(pair.second)), count);
    }
    const auto reason = static_cast<ErrorKind>(kind);
    const std::uint64_t count = ledger.free_failures[kind];
    if (count == 0 && std::ranges::find(kExpectedFreeFailures, reason) == kExpectedFreeFailures.end()) continue;
    families.add(Metric::deallocation_failures_total, with_label(labels, "reason", to_string(reason)), count);
  }
  families.add(Metric::deallocation_failure_bytes, labels, ledger.failed_free_bytes);
}

void add_pressure(Families& families, LedgerSnapshot const& ledger, Labels const& labels) {
  families.add(Metric::pressure_level, labels, std::uint64_t{static_cast<std::uint8_t>(ledger.pressure)});
  for (std::size_t from = 0; from < ledger.transitions.size(); ++from) {
    for (std::size_t to = 0; to < ledger.transitions[from].size(); ++to) {
      if (from == to) continue;
      const auto word = [](std::size_t level) { return to_string(static_cast<PressureLevel>(level)); };
      families.add(Metric::pressure_transitions_total, with_label(with_label(labels, "from", word(from)), "to", word(to)),
                   ledger.transitions[from][to]);
    }
  }
}

void add_tags(Families& families, LedgerSnapshot const& ledger, Labels const& labels) {
  // Two tags may become one name once they are cut and made valid; two equal series would cost the whole scrape.
  std::map<std::string, flight::TagSnapshot> by_name;
  for (auto const& tag : ledger.tags) {
    auto& sum = by_name[safe_label_value(tag.name)];
    sum.bytes += tag.bytes;
    sum.at_peak_bytes += tag.at_peak_bytes;
    sum.allocations += tag.allocations;
  }
  for (auto const& [name, tag] : by_name) {
    const Labels with_tag = with_label(labels, "tag", name);
    families.add(Metric::tag_allocated_bytes, with_tag, tag.bytes);
    families.add(Metric::tag_at_peak_bytes, with_tag, tag.at_peak_bytes);
    families.add(Metric::tag_allocations_total, with_tag, tag.allocations);
  }
}

// Zeros from the start, so that `increase()` sees the first one.
void add_guard(Families& families, LedgerSnapshot const& ledger, Labels const& labels) {
  auto const& guard = ledger.guard;
  for (std::size_t policy = 0; policy < kOomPolicyWords.size(); ++policy) {
    const Labels of_policy = with_label(labels, "policy", kOomPolicyWords[policy]);
    families.add(Metric::oom_policy_runs_total, of_policy, guard.policy_runs[policy]);
    families.add(Metric::oom_recoveries_total, of_policy, guard.recoveries[policy]);
  }
  families.add(Metric::oom_failures_total, labels, guard.gave_up);
  families.add(Metric::oom_waiters, labels, ledger.waiters);
  families.add(Metric::oom_waits_total, labels, guard.policy_waits);
  families.add(Metric::oom_wait_seconds_total, labels, static_cast<double>(guard.policy_wait_ns) * 1e-9);
  families.add(Metric::oom_checkpoints_total, labels, guard.checkpoints);
}

}  // namespace

Labels device_labels(Labels labels, LedgerSnapshot const& ledger) {
  if (ledger.device_ordinal >= 0) labels = with_label(std::move(labels), "device", std::to_string(ledger.device_ordinal));
  if (!ledger.device_uuid.empty()) labels = with_label(std::move(labels), "uuid", ledger.device_uuid);
  return labels;
}

void add_manager(Families& families, LedgerSnapshot const& ledger, Labels const& labels) {
  add_budget(families, ledger, labels);
  add_counters(families, ledger, labels);
  add_failures(families, ledger, labels);
  add_pressure(families, ledger, labels);
  add_guard(families, ledger, labels);
  add_tags(families, ledger, labels);
}

void add_device_account(Families& families, LedgerSnapshot const& ledger, Labels const& labels) {
  if (ledger.limit) families.add(Metric::device_budget_bytes, labels, *ledger.limit);
  families.add(Metric::device_claimed_bytes, labels, ledger.claimed);
  families.add(Metric::device_account_pending_free_bytes, labels, ledger.pending_free_bytes);
}

void add_device_memory(Families& families, LedgerSnapshot const& ledger, Labels const& labels) {
  if (ledger.device_total) families.add(Metric::device_total_bytes, labels, *ledger.device_total);
  if (ledger.device_free) families.add(Metric::device_free_bytes, labels, *ledger.device_free);
  if (ledger.device_outside) families.add(Metric::device_used_outside_bytes, labels, *ledger.device_outside);
}

}  // namespace headroom::exporter
