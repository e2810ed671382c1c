// headroom dump: the post-mortem of a process, living or dead, from its flight file.
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <unistd.h>

#include <CLI/CLI.hpp>

#include <headroom/byte_size.hpp>
#include <headroom/flight_reader.hpp>
#include <headroom/post_mortem.hpp>

#include "command/find_process.hpp"
#include "command/output.hpp"
#include "command/source.hpp"
#include "command/subcommand.hpp"

namespace headroom::command {
namespace {

constexpr std::string_view kWho = "headroom dump";

struct DumpArguments {
  std::string target;
  std::optional<std::string> output;
  std::optional<std::string> folder;
  bool no_events = false;
};

/// In the working directory, named as the process names its own.
[[nodiscard]] std::string default_name(flight::ProcessInfo const& process) {
  std::string program = process.program.empty() ? "program" : process.program;
  for (auto& c : program) {
    if (c == '/' || static_cast<unsigned char>(c) < ' ') c = '_';
  }
  auto const stem = program + '.' + std::to_string(process.pid) + '.' + flight::short_run(process.run);
  constexpr std::string_view kEnding = ".post-mortem.json";
  auto name = stem + std::string{kEnding};
  std::error_code unknown;
  // One of a moment before is what somebody may want to compare this one with.
  for (std::uint64_t number = 2; std::filesystem::exists(std::filesystem::symlink_status(name, unknown)); ++number) {
    name = stem + '.' + std::to_string(number) + std::string{kEnding};
  }
  return name;
}

ExitCode write(Source const& source, flight::FlightView const& view, DumpArguments const& arguments) {
  PostMortemOptions options;
  options.events = !arguments.no_events;
  constexpr std::string_view kReason = "asked for with headroom dump";
  if (arguments.output == "-") {
    std::cout.flush();
    if (auto const written = write_post_mortem(view, STDOUT_FILENO, kReason, options); !written) {
      complain(kWho, "standard output: " + written.error().message);
      return ExitCode::usage;
    }
    return ExitCode::good;
  }
  auto const path = arguments.output.value_or(default_name(view.process()));
  if (auto const written = write_post_mortem(view, path, kReason, options); !written) {
    complain(kWho, "cannot write " + written.error().message);
    return ExitCode::usage;
  }
  std::error_code unknown;
  if (auto const whole = source.was_whole(); !whole) {
    // A post-mortem of zeros would be believed by whoever finds it.
    std::filesystem::remove(path, unknown);
    return complain_about(kWho, whole.error(), ExitCode::broken_input);
  }
  auto const size = std::filesystem::file_size(path, unknown);
  std::cout << "wrote " << printable(path) << (unknown ? std::string{} : " (" + format_bytes(size) + ")") << '\n';
  return ExitCode::good;
}

ExitCode run_dump(DumpArguments const& arguments) {
  auto const path = arguments.target == "-" ? Result<std::string>{arguments.target}
                                            : file_of(arguments.target, folders_or_default(arguments.folder));
  if (!path) return complain_about(kWho, path.error(), ExitCode::broken_input);
  auto source = Source::open(*path);
  if (!source) return complain_about(kWho, source.error(), ExitCode::broken_input);
  if (source->kind() == SourceKind::dump) {
    complain(kWho, printable(source->name()) + " is a post-mortem already; expected a flight file or a process");
    return ExitCode::broken_input;
  }
  std::error_code unknown;
  if (arguments.output && *arguments.output != "-" && std::filesystem::equivalent(*path, *arguments.output, unknown)) {
    complain(kWho,
             "-o " + *arguments.output + " is the flight file itself; expected another file, for what it says would be lost");
    return ExitCode::usage;
  }
  auto const view = source->flight();
  return view ? write(*source, *view, arguments) : complain_about(kWho, view.error(), ExitCode::broken_input);
}

}  // namespace

Subcommand add_dump(CLI::App& app) {
  auto const arguments = std::make_shared<DumpArguments>();
  auto* const dump = app.add_subcommand("dump", "Write the post-mortem of a living or dead process: one JSON file");
  dump->add_option("target", arguments->target, "A process, or a flight file (- is standard input)")
      ->required()
      ->type_name("PID|FILE");
  dump->add_option("-o,--output", arguments->output,
                   "Write to this file (- is standard output; default: PROGRAM.PID.RUN.post-mortem.json here, or the "
                   "next free RUN.2, RUN.3 …)")
      ->type_name("FILE");
  dump->add_flag("--no-events", arguments->no_events, "Leave the events out: the state alone");
  dump->add_option("--dir", arguments->folder,
                   "Look for the process in this folder only (default: $HEADROOM_DIR, /dev/shm/headroom-UID, "
                   "$XDG_RUNTIME_DIR/headroom)")
      ->type_name("DIR");
  dump->footer(
      "The process is not disturbed: its file is only read. A program writes a post-mortem by itself when memory runs out for\n"
      "good, into HEADROOM_DUMP_DIR, else ~/.local/state/headroom; HEADROOM_DUMP=off turns that off.\n"
      "\n"
      "Examples:\n"
      "  headroom dump 4711\n"
      "  headroom dump /dev/shm/headroom-1000/train.4711.0123456789abcdef.flight -o - --no-events | jq .failure\n"
      "\n"
      "Exit status: 0 good, 2 wrong usage, or it cannot be written, 3 there is no such process or file, or it cannot be read.\n");
  return {.app = dump, .run = [arguments] { return run_dump(*arguments); }};
}

}  // namespace headroom::command
