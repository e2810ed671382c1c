// headroom ps: which processes on this machine hold how much of which budget, the dead among them.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <headroom/byte_size.hpp>
#include <headroom/flight_reader.hpp>

#include "command/figures.hpp"
#include "command/find_process.hpp"
#include "command/guarded_flight.hpp"
#include "command/output.hpp"
#include "command/process_figures.hpp"
#include "command/subcommand.hpp"
#include "command/thread_activity.hpp"

namespace headroom::command {
namespace {

constexpr std::string_view kWho = "headroom ps";

struct PsArguments {
  bool json = false;
  bool threads = false;
  std::optional<std::string> folder;
};

struct Row {
  GuardedFlight flight;
  ProcessFigures figures;
};

template <class T>
[[nodiscard]] nlohmann::ordered_json value_or_null(bool is_known, T const& value) {
  return is_known ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

[[nodiscard]] nlohmann::ordered_json seconds_json(std::optional<double> const& seconds) {
  return value_or_null(seconds.has_value(), std::round(seconds.value_or(0) * 1000) / 1000);
}

[[nodiscard]] nlohmann::ordered_json utc_json(std::optional<std::uint64_t> const& realtime_ns) {
  return realtime_ns ? nlohmann::ordered_json(format_utc(*realtime_ns)) : nlohmann::ordered_json(nullptr);
}

[[nodiscard]] nlohmann::ordered_json threads_json(Row const& row) {
  auto threads = nlohmann::ordered_json::array();
  for (auto const& activity : thread_activities(row.flight.view(), row.figures)) {
    auto const is_busy = activity.operation != flight::InFlight::none || activity.short_of_memory;
    nlohmann::ordered_json thread;
    thread["thread"] = activity.thread;
    thread["name"] = activity.name;
    thread["operation"] = word_of(activity);
    thread["bytes"] = value_or_null(is_busy, activity.bytes);
    thread["since"] = utc_json(activity.since_realtime_ns);
    thread["seconds"] = seconds_json(activity.seconds);
    thread["manager"] = value_or_null(!activity.manager.empty(), activity.manager);
    thread["device"] = value_or_null(!activity.device.empty(), activity.device);
    thread["hook"] = value_or_null(!activity.hook.empty(), activity.hook);
    thread["hook_since"] = utc_json(activity.hook_since_realtime_ns);
    thread["hook_seconds"] = seconds_json(activity.hook_seconds);
    thread["doing"] = sentence(activity);
    threads.push_back(std::move(thread));
  }
  return threads;
}

[[nodiscard]] nlohmann::ordered_json row_json(Row const& row) {
  auto const& figures = row.figures;
  nlohmann::ordered_json json;
  json["pid"] = figures.info.pid;
  json["run"] = flight::short_run(figures.info.run);
  json["program"] = figures.info.program;
  json["state"] = figures.state;
  json["age_seconds"] = std::round(figures.age_seconds * 1000) / 1000;
  json["budget_bytes"] = figures.budget_bytes ? nlohmann::ordered_json(*figures.budget_bytes) : nlohmann::ordered_json(nullptr);
  json["allocated_bytes"] = figures.allocated_bytes;
  json["claimed_bytes"] = figures.claimed_bytes;
  json["peak_bytes"] = figures.peak_bytes;
  json["live_allocations"] = figures.live_allocations;
  json["pressure"] = std::string{to_string(figures.pressure)};
  json["failures"] = figures.failures;
  auto const serves = figures.living() && figures.info.exporter_state == flight::ExporterState::serving;
  json["port"] = serves ? nlohmann::ordered_json(figures.info.exporter_port) : nlohmann::ordered_json(nullptr);
  json["threads"] = threads_json(row);
  return json;
}

[[nodiscard]] Colour colour_of(PressureLevel level) noexcept {
  if (level >= PressureLevel::high) return Colour::red;
  return level >= PressureLevel::low ? Colour::yellow : Colour::plain;
}

/// The devices of a process, by the beginning of their UUIDs as in `headroom devices`, else by their names.
[[nodiscard]] std::string devices_of(ProcessFigures const& figures) {
  constexpr std::size_t kShortUuid = 12;  // "GPU-8932f937"
  std::vector<std::string> words;
  for (auto const& manager : figures.managers) {
    auto word = printable(manager.device_uuid.empty() ? manager.device_name : manager.device_uuid.substr(0, kShortUuid));
    if (!word.empty() && std::ranges::find(words, word) == words.end()) words.push_back(std::move(word));
  }
  if (words.empty()) return "-";
  return words.size() == 1 ? words.front() : words.front() + " +" + std::to_string(words.size() - 1);
}

void print_table(std::vector<Row> const& rows) {
  using enum Table::Align;
  Table table{{{"PID", right},
               {"PROGRAM", left},
               {"STATE", left},
               {"AGE", right},
               {"BUDGET", right},
               {"USED", right},
               {"PEAK", right},
               {"USE", left},
               {"LIVE", right},
               {"PRESSURE", left},
               {"FAILURES", right},
               {"PORT", right},
               {"DEVICE", left}}};
  constexpr std::size_t kBarWidth = 12;
  for (auto const& row : rows) {
    auto const& figures = row.figures;
    auto const is_living = figures.living();
    auto const serves = is_living && figures.info.exporter_state == flight::ExporterState::serving;
    auto const use = figures.budget_bytes ? bar(figures.claimed_bytes, *figures.budget_bytes, kBarWidth) : std::string{};
    table.add({std::to_string(figures.info.pid),
               printable(figures.info.program),
               {figures.state, is_living                   ? Colour::green
                               : figures.state == "killed" ? Colour::red
                                                           : Colour::dim},
               format_seconds(figures.age_seconds),
               figures.managers.empty() ? "-" : format_budget(figures.budget_bytes),
               format_bytes(figures.allocated_bytes),
               format_bytes(figures.peak_bytes),
               {use, colour_of(figures.pressure)},
               format_count(figures.live_allocations),
               {std::string{to_string(figures.pressure)}, colour_of(figures.pressure)},
               {format_count(figures.failures), figures.failures == 0 ? Colour::plain : Colour::red},
               serves ? std::to_string(figures.info.exporter_port) : "-",
               devices_of(figures)});
  }
  table.print(std::cout);
}

void print_threads(std::vector<Row> const& rows) {
  for (auto const& row : rows) {
    auto const threads = thread_activities(row.flight.view(), row.figures);
    std::cout << '\n'
              << painted(printable(row.figures.info.program) + ", pid " + std::to_string(row.figures.info.pid), Colour::bold)
              << ", " << row.figures.state << (threads.empty() ? ": no thread at work\n" : "\n");
    if (threads.empty()) continue;
    using enum Table::Align;
    Table table{{{"THREAD", right}, {"NAME", left}, {row.figures.living() ? "DOING" : "DID", left}}, "  "};
    for (auto const& activity : threads) {
      auto const colour = activity.idle() ? Colour::dim : !activity.hook.empty() ? Colour::yellow : Colour::plain;
      table.add(
          {activity.thread == 0 ? "?" : std::to_string(activity.thread), printable(activity.name), {sentence(activity), colour}});
    }
    table.print(std::cout);
  }
}

/// The rows of one folder; files that cannot be read are named on stderr and left out.
[[nodiscard]] Result<std::vector<Row>> rows_in(std::string const& folder) {
  auto const found = flight::find_flights(folder);
  if (!found) return tl::unexpected{found.error()};
  std::vector<Row> rows;
  for (auto const& file : *found) {
    auto flight = GuardedFlight::open(file.path);
    if (!flight) {
      // A process that ends while we look takes its file along: nothing to complain about.
      std::error_code unknown;
      auto const is_gone = !std::filesystem::exists(std::filesystem::symlink_status(file.path, unknown));
      if (!is_gone) complain(kWho, flight.error().message);
      continue;
    }
    auto figures = process_figures(flight->view());
    rows.push_back({.flight = std::move(*flight), .figures = std::move(figures)});
  }
  return rows;
}

ExitCode run_ps(PsArguments const& arguments) {
  if (auto const there = check_named_folder(arguments.folder); !there) {
    return complain_about(kWho, there.error(), ExitCode::broken_input);
  }
  auto const folders = folders_or_default(arguments.folder);
  std::vector<Row> rows;
  std::size_t unreadable = 0;
  for (auto const& folder : folders) {
    auto found = rows_in(folder);
    if (!found) {
      complain(kWho, found.error().message);
      ++unreadable;
      continue;
    }
    std::ranges::move(*found, std::back_inserter(rows));
  }
  // Nothing could be looked at: that is not "no processes".
  if (!folders.empty() && unreadable == folders.size()) return ExitCode::broken_input;
  // The living first, each group from the youngest on.
  std::ranges::sort(rows, [](Row const& a, Row const& b) {
    return std::pair{!a.figures.living(), a.figures.age_seconds} < std::pair{!b.figures.living(), b.figures.age_seconds};
  });
  if (arguments.json) {
    auto json = nlohmann::ordered_json::array();
    for (auto const& row : rows) json.push_back(row_json(row));
    print_json_line(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return ExitCode::good;
  }
  if (rows.empty()) {
    std::string places;
    for (auto const& folder : folders) places += (places.empty() ? "" : ", ") + printable(folder);
    std::cout
        << "no flight files in " << places << "\n"
        << "Start a program that uses headroom, such as `headroom replay TRACE --hold 60`, or look elsewhere with --dir DIR.\n";
    return ExitCode::good;
  }
  print_table(rows);
  if (arguments.threads) print_threads(rows);
  return ExitCode::good;
}

}  // namespace

Subcommand add_ps(CLI::App& app) {
  auto const arguments = std::make_shared<PsArguments>();
  auto* const ps = app.add_subcommand("ps", "Living and dead processes here: budget, use, peak, pressure, failures");
  ps->add_flag("--threads", arguments->threads, "Below, what each thread is doing, or did last; JSON has it anyway");
  ps->add_flag("--json", arguments->json, "Print a JSON array, one object for each process");
  ps->add_option("--dir", arguments->folder,
                 "Look in this folder only (default: $HEADROOM_DIR, /dev/shm/headroom-UID, "
                 "$XDG_RUNTIME_DIR/headroom)")
      ->type_name("DIR");
  ps->footer(
      "States: living; exited (in good order); killed; unknown. Of a process with several managers budgets and peaks are "
      "summed.\n"
      "\n"
      "Examples:\n"
      "  headroom ps\n"
      "  headroom ps --threads\n"
      "  headroom ps --json | jq '.[] | select(.pressure == \"critical\") | .pid'\n"
      "\n"
      "Exit status: 0 good, 2 wrong usage, 3 the folder cannot be read.\n");
  return {.app = ps, .run = [arguments] { return run_ps(*arguments); }};
}

}  // namespace headroom::command
