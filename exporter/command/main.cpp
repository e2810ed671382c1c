// The `headroom` command: parses the command line, runs one subcommand, and answers with a documented exit code whatever happens.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <span>
#include <string>

#include <CLI/CLI.hpp>

#include "command/guarded_flight.hpp"
#include "command/output.hpp"
#include "command/subcommand.hpp"

namespace {

using headroom::command::complain;
using headroom::command::ExitCode;
using headroom::command::printable;
using headroom::command::Subcommand;
using headroom::command::truncated_flights;
using headroom::command::truncation_message;

/// "ps, summary or devices".
std::string names_of(std::span<Subcommand const> subcommands) {
  std::string names;
  for (std::size_t i = 0; i < subcommands.size(); ++i) {
    if (i != 0) names += i + 1 == subcommands.size() ? " or " : ", ";
    names += subcommands[i].app->get_name();
  }
  return names;
}

/// Whatever went to stdout is there; else it is said that it is not. Half an answer must not look like a whole one.
bool was_printed() {
  std::cout.flush();
  if (std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  complain("headroom", std::string{"the output could not be written: "} + std::strerror(errno));
  return false;
}

/// Somebody truncated a file under the command: whatever came of it, that must be said, and the shell be told.
bool all_were_whole() {
  for (auto const& path : truncated_flights()) complain("headroom", truncation_message(path));
  return truncated_flights().empty();
}

int run(int argc, char** argv) {
  CLI::App app{"Replays, watches and sums up what programs hold in GPU memory."};
  app.name("headroom");
  app.set_version_flag("--version", std::string{"headroom "} + HEADROOM_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  headroom replay resnet.csv.xz --budget 2GiB        does this job fit 2 GiB, and what would be refused?\n"
      "  headroom ps                                        who holds how much of which budget on this machine\n"
      "  headroom fit resnet.csv.xz                         the smallest budget under which it runs\n"
      "  headroom summary resnet.csv.xz                     totals, peak and leaks of a history or a flight file\n"
      "  headroom explain 4711                              what happened to process 4711, in plain words\n"
      "  headroom devices                                   which GPUs there are, and how their memory is divided\n"
      "  headroom dump 4711                                 who holds what right now, as one JSON file\n"
      "  headroom convert dump.json --to chrome -o t.json   the same for Perfetto, memory_viz, flame graphs\n"
      "  headroom export --listen :9479                     all processes of this machine, for Prometheus\n"
      "\n"
      "Exit status: 0 good, 1 a finding (something was refused, a peak is too high), 2 wrong usage, 3 broken input.\n"
      "Each subcommand has its own --help.\n");
  const std::array subcommands = {
      headroom::command::add_ps(app),      headroom::command::add_top(app),    headroom::command::add_explain(app),
      headroom::command::add_summary(app), headroom::command::add_diff(app),   headroom::command::add_fit(app),
      headroom::command::add_replay(app),  headroom::command::add_check(app),  headroom::command::add_dump(app),
      headroom::command::add_convert(app), headroom::command::add_export(app), headroom::command::add_devices(app)};
  try {
    app.parse(argc, argv);
  } catch (CLI::RequiredError const& error) {
    // CLI11 says only that a subcommand is required, and not what it found instead.
    auto const* const word = argc > 1 ? argv[1] : "";
    auto const is_unknown = app.get_subcommands().empty() && *word != '\0' && *word != '-';
    if (is_unknown) {
      complain("headroom",
               "unknown subcommand '" + printable(word) + "'; expected " + names_of(subcommands) + " (see headroom --help)");
    } else {
      static_cast<void>(app.exit(error));
    }
    return static_cast<int>(ExitCode::usage);
  } catch (CLI::ParseError const& error) {
    // --help and --version are errors of this kind with status 0. All others say what is wrong, and that is usage.
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  for (auto const& subcommand : subcommands) {
    if (subcommand.app->parsed()) return static_cast<int>(subcommand.run());
  }
  return static_cast<int>(ExitCode::usage);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto const code = run(argc, argv);
    if (!was_printed()) return static_cast<int>(ExitCode::usage);
    return all_were_whole() ? code : static_cast<int>(ExitCode::broken_input);
  } catch (std::exception const& error) {
    complain("headroom", error.what());
  }
  return static_cast<int>(ExitCode::broken_input);
}
