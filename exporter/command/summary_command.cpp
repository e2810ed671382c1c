// headroom summary: totals, peak, who held it and what leaked, of a flight file or a recorded history.
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <headroom/byte_size.hpp>

#include "command/output.hpp"
#include "command/source.hpp"
#include "command/subcommand.hpp"
#include "command/summary_sources.hpp"

namespace headroom::command {
namespace {

constexpr std::string_view kWho = "headroom summary";

struct SummaryArguments {
  std::string file;
  bool json = false;
  std::optional<std::string> fail_above;
};

[[nodiscard]] Result<std::uint64_t> summarize(std::string const& path, SummaryOptions const& options) {
  auto source = Source::open(path);
  if (!source) return tl::unexpected{source.error()};
  return source->kind() == SourceKind::history ? summarize_history(*source, options) : summarize_books(*source, options);
}

ExitCode run_summary(SummaryArguments const& arguments) {
  std::optional<std::uint64_t> most;
  if (arguments.fail_above) {
    auto const parsed = parse_byte_size(*arguments.fail_above);
    if (!parsed) {
      complain(kWho, "--fail-above " + parsed.error().message);
      return ExitCode::usage;
    }
    most = *parsed;
  }
  SummaryOptions const options{.json = arguments.json};
  auto const peak = summarize(arguments.file, options);
  if (!peak) return complain_about(kWho, peak.error(), ExitCode::broken_input);
  if (most && *peak > *most) {
    complain(kWho, "the peak of " + format_bytes_exact(*peak) + " is above " + format_bytes_exact(*most));
    return ExitCode::finding;
  }
  return ExitCode::good;
}

}  // namespace

Subcommand add_summary(CLI::App& app) {
  auto const arguments = std::make_shared<SummaryArguments>();
  auto* const summary = app.add_subcommand("summary", "Totals, peak, who held it, failures and leaks of a file");
  summary
      ->add_option("file", arguments->file,
                   "A flight file of a living or dead process, a post-mortem, or a recorded history (- is standard input)")
      ->required()
      ->type_name("FILE");
  summary->add_flag("--json", arguments->json, "Print the figures as one JSON object");
  summary->add_option("--fail-above", arguments->fail_above, "Exit with 1 when the peak is above this")->type_name("SIZE");
  summary->footer(
      "What a file is, is told by its content, never by its name. Unmatched frees are not among the frees.\n"
      "\n"
      "Examples:\n"
      "  headroom summary resnet.csv.xz --fail-above 3GiB\n"
      "  headroom summary /dev/shm/headroom-1000/train.4711.0123456789abcdef.flight\n"
      "\n"
      "Exit status: 0 good, 1 the peak is above --fail-above, 2 wrong usage, 3 the file cannot be read.\n");
  return {.app = summary, .run = [arguments] { return run_summary(*arguments); }};
}

}  // namespace headroom::command
