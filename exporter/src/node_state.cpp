#include "node_state.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "labels.hpp"
#include "page.hpp"
#include "state_parts.hpp"
#include "status_text.hpp"

namespace headroom::exporter {
namespace {

constexpr std::size_t kMostNamed = 20;  // processes in a refusal
constexpr std::size_t kRunDigits = 8;

std::uint64_t realtime_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 20 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

bool is_run(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == kRunDigits && std::ranges::all_of(text, is_digit);
}

/// PID or PID-RUN.
bool is_process_name(std::string_view text) {
  const auto dash = text.find('-');
  if (dash == std::string_view::npos) return is_number(text);
  return is_number(text.substr(0, dash)) && is_run(text.substr(dash + 1));
}

bool is_named(std::string_view name, std::string_view wanted) {
  return name == wanted || (wanted.find('-') == std::string_view::npos && name.substr(0, name.find('-')) == wanted);
}

template <class Processes>
std::string list_of(Processes const& processes) {
  std::string text;
  for (std::size_t i = 0; i < std::min(processes.size(), kMostNamed); ++i) text += (i == 0 ? "" : ", ") + processes[i]->name;
  if (processes.size() > kMostNamed) text += " and " + std::to_string(processes.size() - kMostNamed) + " more";
  return processes.empty() ? "none" : text;
}

template <class Processes>
Reply has_ended_refusal(std::string const& name, Processes const& living) {
  return refusal(
      404, "404: process '" + name +
               "' has ended; of one that was killed there is a post-mortem file. Expected one that lives: " + list_of(living));
}

std::size_t managers_of(Look const& look) {
  return static_cast<std::size_t>(std::ranges::count(look.ledgers, false, &flight::LedgerSnapshot::is_device_account));
}

/// As it was, but for the seconds that the client has already.
Look look_since(Look look, std::uint64_t second) {
  for (auto& [key, history] : look.histories) {
    history.erase(history.begin(), std::ranges::lower_bound(history, second, {}, &Samples::Second::number));
  }
  return look;
}

}  // namespace

struct NodeState::Answer {
  StateRequest wanted{};
  std::size_t all = 0;  // processes
  std::vector<Json> processes{};
  std::size_t details = 0, managers = 0;
  StateLeftOut left_out{};
  std::shared_ptr<GpuSample const> gpus{};

  [[nodiscard]] bool has_room() const { return details < kDetails && managers < kDetailedManagers; }
};

NodeState::NodeState(NodeFollowed& followed, Options options)
    : followed_(followed),
      is_whole_(std::move(options.is_whole)),
      errors_(std::move(options.errors)),
      gpus_(std::move(options.gpus)) {}

Reply NodeState::status(Request const& request) {
  if (auto page = status_page_if_preferred(request)) return std::move(*page);
  const auto living = followed_.living();
  std::vector<Look> looks;
  for (auto const& process : living) {
    if (looks.size() == MachineStatus::kMostLines) break;
    if (auto look = followed_.look(*process, {.with_details = false})) looks.push_back(std::move(*look));
  }
  const auto all = living.size() + static_cast<std::size_t>(followed_.left_out().processes);
  return {.body = status_text({.looks = looks, .all = all, .ended = followed_.ended().size(), .errors = errors_()}),
          .varies_by_accept = true};
}

void NodeState::add_living(Answer& answer, NodeFollowed::Process& process) {
  bool with_details = answer.wanted.wants(process.name, answer.all);
  if (with_details && (!answer.has_room() || !followed_.attend(process, NodeFollowed::Clock::now()))) {
    ++answer.left_out.details;
    with_details = false;
  }
  const auto look = followed_.look(process, {.with_details = with_details, .since_second = answer.wanted.since_second});
  if (!look) return;
  if (with_details) {
    ++answer.details;
    answer.managers += managers_of(*look);
    if (!answer.gpus) answer.gpus = gpus_ ? gpus_() : nullptr;
  }
  const auto gpus = with_details && answer.gpus ? std::span{answer.gpus->devices} : std::span<GpuDevice const>{};
  answer.processes.push_back(process_json(*look, with_details, gpus));
  // It ended just now, and nobody has taken it to the others yet.
  if (look->liveness == flight::Liveness::dead) answer.processes.back()["ended_seconds"] = seconds(0);
}

void NodeState::add_ended(Answer& answer, NodeFollowed::Ended const& ended) const {
  const bool wants_details = answer.wanted.wants(ended.name, answer.all);
  const bool with_details = wants_details && ended.details && answer.has_room();
  answer.left_out.details += std::uint64_t{wants_details && !with_details};
  if (with_details) {
    ++answer.details;
    answer.managers += managers_of(*ended.details);
    answer.processes.push_back(process_json(look_since(*ended.details, answer.wanted.since_second), true, {}));
  } else {
    answer.processes.push_back(Json::parse(ended.figures));
  }
  const auto now = realtime_ns();
  answer.processes.back()["ended_seconds"] = seconds(now - std::min(now, ended.realtime_ns));
}

Reply NodeState::state(Request const& request) {
  // In this order: who ends in between is listed twice rather than not at all, and then once.
  const auto living = followed_.living();
  const auto ended = followed_.ended();
  const auto left_out = followed_.left_out();
  Answer answer{.wanted = StateRequest::from_query(request.query), .all = living.size() + ended.size()};
  answer.left_out.processes = left_out.processes;
  answer.left_out.ended = left_out.ended;
  answer.left_out.histories = left_out.histories;
  for (auto const& process : living) {
    const bool has_ended =
        std::ranges::any_of(ended, [&](auto const& one) { return one->run == process->run && one->id == process->id; });
    if (!has_ended) add_living(answer, *process);
  }
  for (auto const& one : ended) add_ended(answer, *one);
  return {.body = state_text("machine", std::move(answer.processes), errors_(), answer.left_out),
          .content_type = "application/json",
          .headers = {{"Cross-Origin-Resource-Policy", "same-origin"}}};
}

Reply NodeState::snapshot(Request const& request) {
  const auto living = followed_.living();
  const auto [first, last] = request.query.equal_range("process");
  if (std::distance(first, last) > 1)
    return refusal(400, "400: more than one process; expected one ?process=PID or ?process=PID-RUN");
  std::vector<std::shared_ptr<NodeFollowed::Process>> found = living;
  if (first == last) {
    if (living.empty()) return refusal(404, "404: no process that uses headroom lives here now, so there is nothing to tell");
    if (living.size() > 1) {
      return refusal(400, "400: " + std::to_string(living.size()) +
                              " processes live here; expected ?process=PID or ?process=PID-RUN, one of: " + list_of(living));
    }
  } else {
    auto const& wanted = first->second;
    const auto shown = "'" + safe_label_value(wanted) + "'";
    if (!is_process_name(wanted)) {
      return refusal(400,
                     "400: process " + shown + "; expected PID or PID-RUN, such as 4242-0f3a9c1e, one of: " + list_of(living));
    }
    std::erase_if(found, [&](auto const& process) { return !is_named(process->name, wanted); });
    if (found.size() > 1) {
      return refusal(400,
                     "400: process " + shown + " is not the only one of that PID; expected PID-RUN, one of: " + list_of(found));
    }
    if (found.empty()) {
      const bool has_ended = std::ranges::any_of(followed_.ended(), [&](auto const& one) { return is_named(one->name, wanted); });
      if (has_ended) return has_ended_refusal(wanted, living);
      return refusal(404, "404: process " + shown + " is not known here; expected one of: " + list_of(living));
    }
  }
  const auto chosen = found.front();
  auto& process = *chosen;
  const auto look = followed_.look(process, {.with_details = false});
  if (!look) {
    return refusal(
        404, "404: the flight file of process '" + process.name + "' was truncated by somebody; nothing in it can be trusted");
  }
  if (look->liveness == flight::Liveness::dead) {
    auto others = living;
    std::erase(others, chosen);
    return has_ended_refusal(process.name, others);
  }
  return snapshots_.give(*process.view, request, is_whole_);
}

}  // namespace headroom::exporter
