// headroom check: is a file what it should be?
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <headroom/byte_size.hpp>
#include <headroom/flight_check.hpp>
#include <headroom/post_mortem_reader.hpp>
#include <headroom/torch_snapshot.hpp>
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

[[nodiscard]] Result<TraceReader> open_with_progress(Source& source) {
  Progress const progress{[&source] { return reading_line(source); }};
  return source.history();
}

[[nodiscard]] Result<TraceCheck> check_with_progress(Source const& source, TraceReader& reader) {
  Progress const progress{[&source] { return reading_line(source); }};
  return check_trace(reader);
}

/// What a device's segments say is in use, as it was requested.
struct InUse {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  bool is_known = true;  ///< false: a request's size is not recorded, or the sum is beyond 64 bits
};

[[nodiscard]] std::map<std::uint32_t, InUse> in_use_by_segments(TorchSnapshot const& snapshot) {
  std::map<std::uint32_t, InUse> devices;
  for (auto const& segment : snapshot.segments) {
    auto& device = devices[segment.device];
    for (auto const& block : segment.blocks) {
      if (block.state == TorchBlockState::inactive) continue;
      auto const requested = block.requested_bytes.value_or(0);
      device.is_known = device.is_known && block.requested_bytes.has_value() && requested <= UINT64_MAX - device.bytes;
      device.bytes += device.is_known ? requested : 0;
      ++device.blocks;
    }
  }
  return devices;
}

/// What a snapshot says twice, and differently; and what of it was passed over.
[[nodiscard]] std::vector<std::string> doubts_about(TraceReader const& reader, TraceSummary const& summary) {
  std::vector<std::string> doubts;
  auto const* const snapshot = reader.snapshot();
  if (snapshot == nullptr) return doubts;
  if (snapshot->unknown_actions != 0) {
    doubts.push_back(counted(snapshot->unknown_actions, "entry", "entries") +
                     " of a kind that is not known, passed over; expected what torch_snapshot.hpp lists");
  }
  auto const in_use = in_use_by_segments(*snapshot);
  for (auto const& device : summary.devices) {
    auto const found = in_use.find(device.device);
    if (found == in_use.end()) continue;  // a history alone
    auto const& blocks = found->second;
    if (!blocks.is_known || (blocks.bytes == device.live_bytes && blocks.blocks == device.live_allocations)) continue;
    doubts.push_back("device " + std::to_string(device.device) + ": " + counted(device.live_allocations, "allocation") + " of " +
                     format_count(device.live_bytes) + " bytes live at the end of the history, " +
                     counted(blocks.blocks, "active block") + " of " + format_count(blocks.bytes) +
                     " in the segments; expected the same");
  }
  return doubts;
}

[[nodiscard]] Result<ExitCode> check_a_history(Source& source) {
  auto reader = open_with_progress(source);
  if (!reader) return tl::unexpected{reader.error()};
  auto const check = check_with_progress(source, *reader);
  if (!check) return tl::unexpected{check.error()};
  auto const name = printable(source.name());
  auto const& summary = check->summary;
  auto const doubts = doubts_about(*reader, summary);
  auto const found = check->found() + doubts.size();
  std::cout << name << ": recorded history: " << verdict(found) << " (" << counted(summary.events, "event") << ", "
            << counted(summary.threads, "thread") << ", " << counted(summary.live_allocations, "allocation") << " never freed)\n";
  for (auto const& finding : check->findings) {
    std::cout << record_place(name, finding.format, finding.device, finding.line) << ": " << to_string(finding) << '\n';
  }
  for (auto const& doubt : doubts) std::cout << name << ": " << doubt << '\n';
  return conclude(found, check->findings.size() + doubts.size());
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
