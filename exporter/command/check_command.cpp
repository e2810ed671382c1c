// headroom check: is a file what it should be?
#include <iostream>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <headroom/byte_size.hpp>
#include <headroom/flight_check.hpp>
#include <headroom/post_mortem_reader.hpp>
#include <headroom/trace_check.hpp>

#include "command/output.hpp"
#include "command/process_figures.hpp"
#include "command/progress.hpp"
#include "command/source.hpp"
#include "command/subcommand.hpp"

namespace headroom::command {
namespace {

constexpr std::string_view kWho = "headroom check";

/// The findings were printed: how many more there are, and what the shell is told.
ExitCode conclude(std::uint64_t found, std::uint64_t shown) {
  if (found > shown) std::cout << "and " << counted(found - shown, "finding") << " more\n";
  return found == 0 ? ExitCode::good : ExitCode::finding;
}

[[nodiscard]] std::string verdict(std::uint64_t found) {
  return found == 0 ? painted("sound", Colour::green) : painted(counted(found, "finding"), Colour::red);
}

[[nodiscard]] Result<ExitCode> check_a_flight(Source& source) {
  auto const view = source.flight();
  if (!view) return tl::unexpected{view.error()};
  auto const check = flight::check_flight(*view, {});
  auto const process = process_figures(*view);
  auto const name = printable(source.name());
  std::cout << name << ": flight file of " << printable(process.info.program) << ", pid " << process.info.pid << ", "
            << process.state << ": " << verdict(check.found) << " (" << counted(check.names, "name") << ", "
            << counted(check.ledgers, "ledger") << ", " << counted(check.live_allocations, "live allocation") << ", "
            << counted(check.records, "record") << (check.quiet ? "" : "; only of the dead: whether the books balance") << ")\n";
  for (auto const& finding : check.findings) {
    std::cout << name << ": byte " << format_count(finding.offset) << ": " << printable(finding.text) << '\n';
  }
  return conclude(check.found, check.findings.size());
}

[[nodiscard]] Result<ExitCode> check_a_post_mortem(Source& source) {
  auto const dump = source.post_mortem();
  if (!dump) return tl::unexpected{dump.error()};
  auto const findings = check_post_mortem(*dump);
  auto const name = printable(source.name());
  std::cout << name << ": post-mortem of " << printable(dump->process.program) << ", pid " << dump->process.pid << ": "
            << verdict(findings.size()) << " (" << counted(dump->names.size(), "name") << ", "
            << counted(dump->ledgers.size(), "ledger") << ", " << counted(dump->live.size(), "live allocation") << ", "
            << counted(dump->events.size(), "event") << (dump->complete ? "" : "; incomplete") << ")\n";
  for (auto const& finding : findings) std::cout << name << ": " << printable(finding) << '\n';
  return conclude(findings.size(), findings.size());
}

[[nodiscard]] Result<TraceCheck> check_with_progress(Source const& source, TraceReader& reader) {
  Progress const progress{[&source] { return reading_line(source); }};
  return check_trace(reader);
}

[[nodiscard]] Result<ExitCode> check_a_history(Source& source) {
  auto reader = source.history();
  if (!reader) return tl::unexpected{reader.error()};
  auto const check = check_with_progress(source, *reader);
  if (!check) return tl::unexpected{check.error()};
  auto const name = printable(source.name());
  auto const& summary = check->summary;
  std::cout << name << ": recorded history: " << verdict(check->found()) << " (" << counted(summary.events, "event") << ", "
            << counted(summary.threads, "thread") << ", " << counted(summary.live_allocations, "allocation") << " never freed)\n";
  for (auto const& finding : check->findings) std::cout << name << ':' << finding.line << ": " << to_string(finding) << '\n';
  return conclude(check->found(), check->findings.size());
}

[[nodiscard]] Result<ExitCode> check_file(std::string const& path) {
  auto source = Source::open(path);
  if (!source) return tl::unexpected{source.error()};
  switch (source->kind()) {
    case SourceKind::flight: return check_a_flight(*source);
    case SourceKind::dump: return check_a_post_mortem(*source);
    case SourceKind::history: break;
  }
  return check_a_history(*source);
}

ExitCode run_check(std::string const& path) {
  auto const code = check_file(path);
  return code ? *code : complain_about(kWho, code.error(), ExitCode::broken_input);
}

}  // namespace

Subcommand add_check(CLI::App& app) {
  auto const file = std::make_shared<std::string>();
  auto* const check = app.add_subcommand("check", "Is a file what it should be? Says where it is not, and what was expected");
  check->add_option("file", *file, "A flight file, a post-mortem or a recorded history (- is standard input)")
      ->required()
      ->type_name("FILE");
  check->footer(
      "What a file is, is told by its content, never by its name. Findings are in a file that can be read, but whose figures "
      "are\n"
      "doubtful: books that do not balance, records out of place, frees without their allocations, an end that is missing. They "
      "stand on stdout, with "
      "line\n"
      "or byte; what ends the reading stands on stderr.\n"
      "\n"
      "Examples:\n"
      "  headroom check resnet.csv.xz\n"
      "  headroom check /dev/shm/headroom-1000/train.4711.0123456789abcdef.flight\n"
      "\n"
      "Exit status: 0 sound, 1 findings, 2 wrong usage, 3 the file cannot be read.\n");
  return {.app = check, .run = [file] { return run_check(*file); }};
}

}  // namespace headroom::command
