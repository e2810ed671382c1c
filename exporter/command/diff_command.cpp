// headroom diff: what grew, vanished and appeared between two files, by tag and site.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <headroom/byte_size.hpp>

#include "command/arguments.hpp"
#include "command/diff_sources.hpp"
#include "command/figures.hpp"
#include "command/history_file.hpp"
#include "command/output.hpp"
#include "command/source.hpp"
#include "command/subcommand.hpp"

namespace headroom::command {
namespace {

constexpr std::string_view kWho = "headroom diff";

struct DiffArguments {
  std::string a, b;
  std::string at = "now";
  std::optional<std::string> tag, trace_device;
  bool json = false;
};

[[nodiscard]] Result<follow::Holdings> holdings_of(std::string const& path, HoldingsOptions const& options) {
  auto source = Source::open(path);
  if (!source) return tl::unexpected{source.error()};
  return source->kind() == SourceKind::history ? holdings_of_history(*source, options) : holdings_of_books(*source, options);
}

[[nodiscard]] nlohmann::ordered_json to_json(std::vector<follow::HoldingChange> const& changes) {
  auto json = nlohmann::ordered_json::array();
  for (auto const& change : changes) {
    nlohmann::ordered_json row;
    row["tag"] = change.holder.tag;
    row["site"] = change.holder.site.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(change.holder.site);
    row["bytes_a"] = change.bytes_a;
    row["bytes_b"] = change.bytes_b;
    json.push_back(std::move(row));
  }
  return json;
}

void print_changes(std::string_view title, std::vector<follow::HoldingChange> const& changes, Colour colour) {
  if (changes.empty()) return;
  constexpr std::size_t kMostRows = 20;
  using enum Table::Align;
  std::cout << painted(title, colour) << '\n';
  Table table{{{"TAG", left}, {"SITE", left}, {"A", right}, {"B", right}, {"CHANGE", right}}, "  "};
  for (std::size_t i = 0; i < std::min(changes.size(), kMostRows); ++i) {
    auto const& change = changes[i];
    auto const sign = change.bytes_b > change.bytes_a ? '+' : '-';
    table.add({printable(change.holder.tag), change.holder.site.empty() ? "-" : place_of(change.holder.site),
               format_bytes(change.bytes_a), format_bytes(change.bytes_b), sign + format_bytes(change.size())});
  }
  table.print(std::cout);
  if (changes.size() > kMostRows) std::cout << "  and " << format_count(changes.size() - kMostRows) << " more\n";
}

void print_for_people(DiffArguments const& arguments, follow::HoldingsDifference const& difference) {
  std::cout << (arguments.at == "peak" ? "at the peak: " : "live: ") << format_bytes_exact(difference.bytes_a) << " in "
            << printable(arguments.a) << ", " << format_bytes_exact(difference.bytes_b) << " in " << printable(arguments.b)
            << '\n';
  print_changes("grown", difference.grown, Colour::red);
  print_changes("appeared", difference.appeared, Colour::red);
  print_changes("vanished", difference.vanished, Colour::green);
  print_changes("shrunk", difference.shrunk, Colour::green);
  auto const changes =
      difference.grown.size() + difference.appeared.size() + difference.vanished.size() + difference.shrunk.size();
  if (changes == 0) std::cout << "nobody holds more or less\n";
}

[[nodiscard]] Result<HoldingsOptions> read_options(DiffArguments const& arguments) {
  HoldingsOptions options{.at_peak = arguments.at == "peak"};
  if (arguments.tag) {
    auto const tags = parse_tags(*arguments.tag);
    if (!tags) return tl::unexpected{tags.error()};
    options.tags = *tags;
  }
  auto const trace_device = parse_trace_device(arguments.trace_device);
  if (!trace_device) return tl::unexpected{trace_device.error()};
  options.trace_device = *trace_device;
  if (arguments.at != "now" && arguments.at != "peak") {
    return fail(ErrorKind::invalid_argument, Layer::request, "--at '" + printable(arguments.at) + "'; expected now or peak");
  }
  if (arguments.a == "-" && arguments.b == "-") {
    return fail(ErrorKind::invalid_argument, Layer::request, "A and B are both -; expected standard input once at most");
  }
  return options;
}

ExitCode run_diff(DiffArguments const& arguments) {
  auto const options = read_options(arguments);
  if (!options) return complain_about(kWho, options.error(), ExitCode::usage);
  auto const a = holdings_of(arguments.a, *options);
  if (!a) return complain_about(kWho, a.error(), exit_code_for(a.error()));
  auto const b = holdings_of(arguments.b, *options);
  if (!b) return complain_about(kWho, b.error(), exit_code_for(b.error()));
  auto const difference = follow::compare(*a, *b);
  if (arguments.json) {
    nlohmann::ordered_json json;
    json["grown"] = to_json(difference.grown);
    json["vanished"] = to_json(difference.vanished);
    json["appeared"] = to_json(difference.appeared);
    json["shrunk"] = to_json(difference.shrunk);
    print_json_line(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    print_for_people(arguments, difference);
  }
  return ExitCode::good;
}

}  // namespace

Subcommand add_diff(CLI::App& app) {
  auto const arguments = std::make_shared<DiffArguments>();
  auto* const diff = app.add_subcommand("diff", "What grew, vanished and appeared between two files, by tag and site");
  diff->add_option("A", arguments->a, "A flight file, a post-mortem or a recorded history (- is standard input)")
      ->required()
      ->type_name("FILE");
  diff->add_option("B", arguments->b, "What to compare it with; it need not be of the same kind")->required()->type_name("FILE");
  diff->add_option("--at", arguments->at, "now (default): what is live, or was at the end; peak: at the peak, by tag alone")
      ->type_name("WHEN");
  diff->add_option(
          "--tag", arguments->tag,
          "Of histories: tell allocations apart by: recorded (default where a snapshot has tags), size (default otherwise), "
          "thread, stream or none")
      ->type_name("BY");
  diff->add_option("--trace-device", arguments->trace_device, kTraceDeviceHelp)->type_name("N");
  diff->add_flag("--json", arguments->json, "Print one JSON object: arrays grown, vanished, appeared and shrunk");
  diff->footer(
      "What a file is, is told by its content, never by its name. Managers of one process are added up.\n"
      "\n"
      "Examples:\n"
      "  headroom diff /dev/shm/headroom-1000/train.4711.*.flight /dev/shm/headroom-1000/train.5822.*.flight\n"
      "  headroom diff before.post-mortem.json after.post-mortem.json\n"
      "  headroom diff monday.csv.xz friday.csv.xz --at peak\n"
      "\n"
      "Exit status: 0 good, 2 wrong usage, 3 a file cannot be read.\n");
  return {.app = diff, .run = [arguments] { return run_diff(*arguments); }};
}

}  // namespace headroom::command
