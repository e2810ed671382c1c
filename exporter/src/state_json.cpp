#include "state_json.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include <headroom/pressure.hpp>

#include "state_parts.hpp"

namespace headroom::exporter {
namespace {

constexpr std::string_view kSchema = "headroom-state";
constexpr int kVersion = 1;
constexpr std::string_view kIfAlone = "auto";

std::string_view state_word(Look const& look) noexcept {
  if (look.liveness == flight::Liveness::living) return "living";
  if (look.process.state == flight::ProcessState::closed) return "exited";
  return look.liveness == flight::Liveness::dead ? "killed" : "unknown";
}

/// The sums that a list of processes shows; peaks need not have been at the same time.
struct Sums {
  std::uint64_t allocated = 0, claimed = 0, peak = 0, budget = 0, live = 0, failures = 0;
  bool is_limited = true;
  PressureLevel pressure = PressureLevel::none;

  void add(flight::LedgerSnapshot const& ledger) {
    allocated += ledger.allocated;
    claimed += ledger.claimed;
    peak += ledger.peak;
    budget += ledger.limit.value_or(0);
    live += ledger.live_allocations;
    failures += ledger.failures();
    is_limited = is_limited && ledger.limit.has_value();
    pressure = std::max(pressure, ledger.pressure);
  }
};

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find(','), text.size());
    if (end != 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

void add_details(Json& json, Look const& look, std::span<flight::LedgerSnapshot const* const> managers,
                 std::span<GpuDevice const> gpus) {
  const DeviceList devices{look.ledgers, gpus};
  json["devices"] = devices.json();
  auto list = Json::array();
  for (auto const* const manager : managers) list.push_back(manager_json(*manager, look, devices.place_of(*manager)));
  json["managers"] = std::move(list);
  json["hooks"] = hooks_json(look);
  json["threads"] = threads_json(look);
  json["last_failures"] = failures_json(look);
  json["losses"] = losses_json(look);
}

}  // namespace

StateRequest StateRequest::from_query(std::multimap<std::string, std::string> const& query) {
  StateRequest request;
  const auto [first, last] = query.equal_range("detail");
  for (auto at = first; at != last; ++at) {
    if (!request.detail) request.detail.emplace();
    std::ranges::move(split(at->second), std::back_inserter(*request.detail));
  }
  if (const auto since = query.find("since"); since != query.end()) {
    const auto text = since->second;
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc{} && end == text.data() + text.size()) request.since_second = number;
  }
  return request;
}

bool StateRequest::wants(std::string const& id, std::size_t processes) const {
  if (!detail) return true;
  const auto names = [this](std::string_view name) { return std::ranges::find(*detail, name) != detail->end(); };
  return names(id) || (processes == 1 && names(kIfAlone));
}

std::string state_id(flight::ProcessInfo const& process) {
  return std::to_string(process.pid) + "-" + flight::short_run(process.run);
}

Json process_json(Look const& look, bool with_details, std::span<GpuDevice const> gpus) {
  std::vector<flight::LedgerSnapshot const*> managers;
  for (auto const& ledger : look.ledgers) {
    if (!ledger.is_device_account) managers.push_back(&ledger);
  }
  // In the order of their making.
  std::ranges::stable_sort(managers, {}, [](auto const* ledger) { return ledger->directory_id; });
  Sums sums;
  for (auto const* const manager : managers) sums.add(*manager);
  auto const& process = look.process;

  Json json;
  json["id"] = state_id(process);
  json["pid"] = figure(process.pid);
  json["run"] = flight::short_run(process.run);
  json["program"] = process.program;
  json["command"] = name_or_null(process.command);
  json["host"] = name_or_null(process.host);
  json["version"] = name_or_null(process.version);
  json["state"] = state_word(look);
  // A clock that was set back must not make an age of 584 years.
  json["age_seconds"] = seconds(look.realtime_ns - std::min(process.start_realtime_ns, look.realtime_ns));
  json["ended_seconds"] = nullptr;
  json["start_unix_seconds"] = seconds(process.start_realtime_ns);
  json["budget_bytes"] = sums.is_limited && !managers.empty() ? figure(sums.budget) : Json(nullptr);
  json["allocated_bytes"] = figure(sums.allocated);
  json["claimed_bytes"] = figure(sums.claimed);
  json["peak_bytes"] = figure(sums.peak);
  json["live_allocations"] = figure(sums.live);
  json["pressure"] = to_string(sums.pressure);
  json["failures"] = figure(sums.failures);
  json["manager_count"] = managers.size();
  if (with_details) add_details(json, look, managers, gpus);
  return json;
}

std::string state_text(std::string_view serves, std::vector<Json> processes, std::uint64_t exporter_errors,
                       StateLeftOut const& left_out) {
  const auto now = [](auto clock) {
    return static_cast<std::uint64_t>(std::chrono::nanoseconds{decltype(clock)::now().time_since_epoch()}.count());
  };
  Json json;
  json["schema"] = {{"name", kSchema}, {"version", kVersion}};
  json["headroom"] = HEADROOM_VERSION;
  json["serves"] = serves;
  json["now_unix_seconds"] = seconds(now(std::chrono::system_clock{}));
  json["now_second"] = seconds(now(std::chrono::steady_clock{}));
  json["history_seconds"] = Samples::kSeconds;
  json["exporter_errors"] = figure(exporter_errors);
  json["left_out"] = {{"processes", figure(left_out.processes)},
                      {"ended", figure(left_out.ended)},
                      {"details", figure(left_out.details)},
                      {"histories", figure(left_out.histories)}};
  json["processes"] = std::move(processes);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headroom::exporter
