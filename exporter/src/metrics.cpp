#include "metrics.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "gpu_metrics.hpp"
#include "hook_metrics.hpp"
#include "ledger_metrics.hpp"
#include "tag_places.hpp"

namespace headroom::exporter {
namespace {

using flight::InFlight;

constexpr std::array<std::pair<InFlight, std::string_view>, 5> kOperations{{
    {InFlight::allocating, "allocating"},
    {InFlight::freeing, "freeing"},
    {InFlight::reserving, "reserving"},
    {InFlight::spending, "spending"},
    {InFlight::dropping, "dropping"},
}};

constexpr std::uint32_t kOfAnyManager = 0;  // a hook's ledger, when it found no cell of its own
constexpr double kNanosecondsPerSecond = 1e9;

double seconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / kNanosecondsPerSecond; }

/// std::chrono's steady clock is CLOCK_MONOTONIC here, the clock of the file's syncs.
std::uint64_t monotonic_now_ns() {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

void add_process(Families& families, flight::Liveness liveness, flight::ProcessInfo const& process, Labels const& labels) {
  families.add(Metric::build_info, with_label(labels, "version", process.version), 1.0);
  families.add(Metric::process_start_time_seconds, labels, seconds(process.start_realtime_ns));
  if (liveness != flight::Liveness::unknown) {
    families.add(Metric::process_up, labels, std::uint64_t{liveness == flight::Liveness::living});
  }
  if (process.last_activity_realtime_ns != 0) {
    families.add(Metric::last_activity_timestamp_seconds, labels, seconds(process.last_activity_realtime_ns));
  }
}

void add_recorder(Families& families, flight::ProcessInfo const& process, Labels const& labels, CollectOptions const& options) {
  families.add(Metric::events_recorded_total, labels, process.events_recorded);
  families.add(Metric::events_refused_total, with_label(labels, "reason", "no_lane"), process.refused_no_lane);
  families.add(Metric::events_refused_total, with_label(labels, "reason", "reentrant"), process.refused_reentrant);
  families.add(Metric::events_refused_total, with_label(labels, "reason", "early"), process.refused_early);
  if (options.events_lost) families.add(Metric::events_lost_total, labels, *options.events_lost);
  families.add(Metric::tags_folded_total, labels, process.tags_folded);
  families.add(Metric::lanes_in_use, labels, std::uint64_t{process.lanes_in_use});
}

std::uint64_t now_ns(CollectOptions const& options) { return options.monotonic_ns ? *options.monotonic_ns : monotonic_now_ns(); }

struct InFlightSum {
  std::uint64_t count = 0;
  std::uint64_t oldest_ns = 0;
};
using InFlightSums = std::map<std::pair<std::uint32_t, InFlight>, InFlightSum>;  // by ledger cell and operation

InFlightSums sum_in_flight(flight::FlightView const& view, CollectOptions const& options) {
  InFlightSums sums;
  const auto operations = view.in_flight();
  if (operations.empty()) return sums;
  const auto clock = view.clock();
  const std::uint64_t now = now_ns(options);
  for (auto const& operation : operations) {
    const std::uint64_t since = clock.monotonic_ns(operation.since_ticks);
    auto& sum = sums[{operation.ledger, operation.operation}];
    ++sum.count;
    sum.oldest_ns = std::max(sum.oldest_ns, now > since ? now - since : 0);
  }
  return sums;
}

void add_in_flight(Families& families, InFlightSums const& sums, std::uint32_t cell, Labels const& labels) {
  for (auto const& [operation, word] : kOperations) {
    const auto found = sums.find({cell, operation});
    const InFlightSum sum = found == sums.end() ? InFlightSum{} : found->second;
    const Labels with_operation = with_label(labels, "operation", word);
    families.add(Metric::inflight_operations, with_operation, sum.count);
    families.add(Metric::inflight_oldest_seconds, with_operation, seconds(sum.oldest_ns));
  }
}

/// Names every ledger so that no two are equal: Prometheus would keep one of two equal series and drop the other in silence. Of two
/// managers with one name on one device the one that was opened beside the other has its directory id added, as the file says, and keeps
/// it when that other is gone. Where the file does not say it (of an earlier version, or names that differ only in what no label may
/// have), the later of those that are shown has.
class ManagerNames {
public:
  Labels labels_of(Labels const& device, flight::LedgerSnapshot const& ledger) {
    auto labels = with_label(device, "manager", ledger.name);
    if (ledger.is_namesake || !seen_.insert(labels).second) {
      std::string numbered = "#";  // step by step: g++ -O3 suspects `"#" + std::to_string(…)` of copying over itself
      numbered += std::to_string(ledger.directory_id);
      labels = with_label(device, "manager", numbered + " " + ledger.name);
      seen_.insert(labels);
    }
    return labels;
  }

private:
  std::set<Labels> seen_;
};

}  // namespace

Labels process_labels(flight::ProcessInfo const& process, bool with_host) {
  Labels labels = with_label({}, "process", process.program);
  labels = with_label(std::move(labels), "pid", std::to_string(process.pid));
  labels = with_label(std::move(labels), "run", flight::short_run(process.run));
  return with_host ? with_label(std::move(labels), "host", process.host) : labels;
}

void collect_into(Families& families, flight::FlightView const& view, CollectOptions const& options) {
  const auto process = view.process();
  collect_into(families, view, process, view.ledgers(), options);
}

void collect_into(Families& families, flight::FlightView const& view, flight::ProcessInfo const& process,
                  std::vector<flight::LedgerSnapshot> ledgers, CollectOptions const& options) {
  const Labels labels = process_labels(process, options.with_host);
  keep_to_tag_places(ledgers);
  add_process(families, options.liveness ? *options.liveness : view.liveness(), process, labels);
  add_recorder(families, process, labels, options);

  // A device account knows its device best, so it speaks first; the order of managers is that of their making.
  std::ranges::stable_sort(ledgers, [](auto const& left, auto const& right) {
    return std::pair{!left.is_device_account, left.directory_id} < std::pair{!right.is_device_account, right.directory_id};
  });
  const auto in_flight = sum_in_flight(view, options);
  const auto told = add_gpus(families, options.gpus, options.visible, ledgers, labels);
  const auto hooks = view.all_hooks();
  const HookClock hook_clock{view.clock(), now_ns(options)};
  ManagerNames names;
  std::set<Labels> accounts;
  std::set<Labels> devices_with_memory;
  for (auto const& ledger : ledgers) {
    const Labels device = device_labels(labels, ledger);
    if (ledger.is_device_account) {
      if (accounts.insert(device).second) add_device_account(families, ledger, device);
    } else {
      const Labels manager = names.labels_of(device, ledger);
      const bool is_over = ledger.state == flight::LedgerState::closed && ledger.claimed == 0;
      const bool before = is_over && families.set_counters_only(true);
      add_manager(families, ledger, manager);
      add_in_flight(families, in_flight, ledger.cell, manager);
      if (is_over) families.set_counters_only(before);
      if (ledger.directory_id != kOfAnyManager) add_hooks(families, hooks, ledger.directory_id, hook_clock, manager);
    }
    const bool knows_memory = ledger.device_total || ledger.device_free || ledger.device_outside;
    if (knows_memory && devices_with_memory.insert(device).second) {
      auto untold = told.without(ledger);
      if (options.told != nullptr) untold = options.told->without(std::move(untold));
      add_device_memory(families, untold, device);
    }
  }
  add_hooks(families, hooks, kOfAnyManager, hook_clock, labels);
}

std::vector<prometheus::MetricFamily> collect(flight::FlightView const& view, CollectOptions const& options) {
  Families families;
  collect_into(families, view, options);
  return families.take();
}

}  // namespace headroom::exporter
