// headroom fit: the smallest budget under which a recorded history runs, and what smaller ones refuse.
#include <algorithm>
#include <atomic>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <headroom/byte_size.hpp>
#include <headroom/fit.hpp>

#include "command/arguments.hpp"
#include "command/figures.hpp"
#include "command/history_file.hpp"
#include "command/output.hpp"
#include "command/progress.hpp"
#include "command/source.hpp"
#include "command/subcommand.hpp"

namespace headroom::command {
namespace {

constexpr std::string_view kWho = "headroom fit";

struct FitArguments {
  std::string trace;
  std::string points = "32";
  std::optional<std::string> trace_device;
  bool json = false;
};

[[nodiscard]] Fit fit_with_progress(TraceHistory const& history, std::size_t points) {
  std::atomic<std::size_t> done{0};  // written by fit(), read by the progress line; relaxed: it is only shown
  Progress const progress{[&done, points] { return progress_line(done.load(std::memory_order_relaxed), points + 1, "budgets"); }};
  return fit(history, {.points = points, .done = &done});
}

void print_as_json(Fit const& fit) {
  nlohmann::ordered_json json;
  json["smallest_budget_bytes"] =
      fit.smallest_budget_bytes ? nlohmann::ordered_json(*fit.smallest_budget_bytes) : nlohmann::ordered_json(nullptr);
  auto curve = nlohmann::ordered_json::array();
  for (auto const& point : fit.curve) {
    curve.push_back(nlohmann::ordered_json{{"budget_bytes", point.budget_bytes}, {"refused", point.refused}});
  }
  json["curve"] = std::move(curve);
  print_json_line(json.dump(2));
}

void print_for_people(std::string const& name, Fit const& fit) {
  std::cout << printable(name) << ": ";
  if (fit.smallest_budget_bytes) {
    std::cout << painted("runs under " + format_bytes_exact(*fit.smallest_budget_bytes), Colour::green)
              << ", and not under less\n";
  } else {
    std::cout << painted(format_count(fit.refused_at_best) + " refused under any budget", Colour::red)
              << ": they, or what is live at once, are more than 16 TiB\n";
  }
  std::uint64_t most = 1;
  for (auto const& point : fit.curve) most = std::max(most, point.refused);
  constexpr std::size_t kBarWidth = 24;
  using enum Table::Align;
  Table table{{{"BUDGET", right}, {"BYTES", right}, {"REFUSED", right}, {"", left}}, "  "};
  for (auto const& point : fit.curve) {
    table.add({format_bytes(point.budget_bytes), format_count(point.budget_bytes), format_count(point.refused),
               point.refused == 0 ? "" : bar(point.refused, most, kBarWidth)});
  }
  table.print(std::cout);
  std::cout << "each is the smallest budget that refuses just these requests; fewer bytes do not always refuse more\n";
}

ExitCode run_fit(FitArguments const& arguments) {
  constexpr std::uint64_t kMostPoints = 10'000;
  auto const points = parse_count(arguments.points, 1);
  if (!points || *points > kMostPoints) {
    complain(kWho,
             "--points '" + printable(arguments.points) + "'; expected a whole number from 1 to " + format_count(kMostPoints));
    return ExitCode::usage;
  }
  auto const device = parse_trace_device(arguments.trace_device);
  if (!device) return complain_about(kWho, device.error(), ExitCode::usage);
  auto source = Source::open(arguments.trace);
  if (!source) return complain_about(kWho, source.error(), ExitCode::broken_input);
  auto const history = load_history(*source, *device);
  if (!history) return complain_about(kWho, history.error(), exit_code_for(history.error()));
  auto const found = fit_with_progress(*history, *points);
  if (arguments.json) {
    print_as_json(found);
  } else {
    print_for_people(history->name(), found);
  }
  return found.smallest_budget_bytes ? ExitCode::good : ExitCode::finding;
}

}  // namespace

Subcommand add_fit(CLI::App& app) {
  auto const arguments = std::make_shared<FitArguments>();
  auto* const fit = app.add_subcommand("fit", "The smallest budget under which a recorded history runs, and what less refuses");
  fit->add_option("trace", arguments->trace, kTraceHelp)->required()->type_name("TRACE");
  fit->add_option("--points", arguments->points, "How many budgets to look at (default 32), in equal steps")->type_name("N");
  fit->add_option("--trace-device", arguments->trace_device, kTraceDeviceHelp)->type_name("N");
  fit->add_flag("--json", arguments->json, "Print one JSON object");
  fit->footer(
      "Exact to the byte, and the same as headroom replay --budget says, hooks and policies apart. A refused allocation's free "
      "is "
      "skipped.\n"
      "\n"
      "Examples:\n"
      "  headroom fit gpt2.csv.xz\n"
      "  headroom fit gpt2.csv.xz --json | jq .smallest_budget_bytes\n"
      "\n"
      "Exit status: 0 good, 1 no budget is enough, 2 wrong usage, 3 the history cannot be read.\n");
  return {.app = fit, .run = [arguments] { return run_fit(*arguments); }};
}

}  // namespace headroom::command
