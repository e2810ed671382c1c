// headroom top: who holds what right now, in a terminal.
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "command/arguments.hpp"
#include "command/find_process.hpp"
#include "command/output.hpp"
#include "command/subcommand.hpp"
#include "command/terminal_screen.hpp"
#include "command/top_frame.hpp"
#include "command/top_processes.hpp"

namespace headroom::command {
namespace {

constexpr std::string_view kWho = "headroom top";

struct TopArguments {
  std::optional<std::string> process;
  std::optional<std::string> folder;
  std::string every = "1s";
  bool once = false;
};

ExitCode broken(Error const& error) {
  complain(kWho, error.message.empty() ? error.to_string() : error.message);
  return ExitCode::broken_input;
}

/// True when the key means something.
[[nodiscard]] bool act_on(char key, TopProcesses& processes, TopOptions& options) {
  switch (key) {
    case ' ': options.is_paused = !options.is_paused; return true;
    case '<': processes.select(-1); return true;
    case '>': processes.select(1); return true;
    case 't': options.sort = TopSort::tag; return true;
    case 's': options.sort = TopSort::size; return true;
    case 'a': options.sort = TopSort::allocations; return true;
    default: return false;
  }
}

/// Reading goes on while the display is paused: what is lost meanwhile would be lost for good.
ExitCode run_screen(TopProcesses& processes, std::chrono::milliseconds every) {
  TopOptions options;
  std::string frame;
  auto const redraw = [&](TerminalScreen& screen) {
    options.rows = TerminalScreen::size().rows;
    frame = top_frame(processes, options);
    screen.show(frame);
  };
  std::optional<Error> ended_by;
  {
    auto screen = TerminalScreen::open();
    if (!screen) return broken(screen.error());
    auto next = std::chrono::steady_clock::now();
    auto is_wanted = false;  // by somebody who pressed a key: shown while paused, too
    while (!TerminalScreen::must_end()) {
      auto const now = std::chrono::steady_clock::now();
      auto const is_time = now >= next;
      if (is_time) {
        next = now + every;
        if (auto read = processes.refresh(); !read) {
          ended_by = std::move(read.error());
          break;
        }
      }
      auto const must_redraw = TerminalScreen::must_redraw();
      if (std::exchange(is_wanted, false) || must_redraw || (is_time && !options.is_paused)) redraw(*screen);
      auto const left = std::chrono::ceil<std::chrono::milliseconds>(next - std::chrono::steady_clock::now());
      auto const key = screen->wait_for_key(std::max(left, std::chrono::milliseconds{0}));
      if (!key) continue;
      if (*key == 'q') break;
      is_wanted = act_on(*key, processes, options);
      if (*key == '<' || *key == '>') next = std::chrono::steady_clock::now();
    }
  }
  // The last frame stays on the first screen: it is what the eye was on.
  std::cout << frame << std::flush;
  return ended_by ? broken(*ended_by) : ExitCode::good;
}

ExitCode run_top(TopArguments const& arguments) {
  auto const every = parse_duration(arguments.every);
  if (!every || *every < std::chrono::milliseconds{100}) {
    complain(kWho, "--every " + (every ? "'" + printable(arguments.every) + "' is too short; expected at least 100ms"
                                       : every.error().message));
    return ExitCode::usage;
  }
  if (auto const there = check_named_folder(arguments.folder); !there) return broken(there.error());
  auto const folders = folders_or_default(arguments.folder);
  std::optional<std::string> file;
  if (arguments.process) {
    auto found = file_of(*arguments.process, folders);
    if (!found) return broken(found.error());
    file = std::move(*found);
  }
  TopProcesses processes{folders, std::move(file)};
  if (!arguments.once) return run_screen(processes, std::chrono::duration_cast<std::chrono::milliseconds>(*every));
  if (auto read = processes.refresh(); !read) return broken(read.error());
  constexpr std::size_t kRowsOfAFrame = 40;
  std::cout << top_frame(processes, {.sort = TopSort::size, .is_paused = false, .shows_keys = false, .rows = kRowsOfAFrame});
  return ExitCode::good;
}

}  // namespace

Subcommand add_top(CLI::App& app) {
  auto const arguments = std::make_shared<TopArguments>();
  auto* const top = app.add_subcommand("top", "Who holds what right now: budgets, tags, failures, hooks, in a terminal");
  top->add_option("process", arguments->process, "A process number or flight file; without one, all processes here")
      ->type_name("PID|FILE");
  top->add_flag("--once", arguments->once, "Print one frame and end");
  top->add_option("--every", arguments->every, "How often to look (default 1s, at least 100ms)")->type_name("TIME");
  top->add_option("--dir", arguments->folder, "Look in this folder only (default: where headroom ps looks)")->type_name("DIR");
  top->footer(
      "Keys: q quit; space stops the display, not the reading; < and > go to another process; t, s and a sort tags by name, size "
      "and "
      "number of allocations.\n"
      "\n"
      "Examples:\n"
      "  headroom top\n"
      "  headroom top 4711 --once\n"
      "\n"
      "Exit status: 0 good, 2 wrong usage, 3 there is no such process, no terminal, or the folder cannot be read.\n");
  return {.app = top, .run = [arguments] { return run_top(*arguments); }};
}

}  // namespace headroom::command
