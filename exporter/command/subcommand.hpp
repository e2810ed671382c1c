// headroom: what every subcommand of the `headroom` command is.
#pragma once

#include <functional>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
}

namespace headroom::command {

/// What the shell sees. Documented in every --help: never change a number.
enum class ExitCode : int {
  good = 0,
  finding = 1,       ///< the work was done, and it found what it looks for: something was refused, a peak is too high
  usage = 2,         ///< an argument is wrong, or cannot be satisfied here
  broken_input = 3,  ///< a file is missing, unreadable or not what it should be
};

struct Subcommand {
  CLI::App* app = nullptr;  ///< owned by the app that it was added to
  std::function<ExitCode()> run;
};

[[nodiscard]] Subcommand add_replay(CLI::App& app);
[[nodiscard]] Subcommand add_ps(CLI::App& app);
[[nodiscard]] Subcommand add_summary(CLI::App& app);
[[nodiscard]] Subcommand add_diff(CLI::App& app);
[[nodiscard]] Subcommand add_fit(CLI::App& app);
[[nodiscard]] Subcommand add_check(CLI::App& app);
[[nodiscard]] Subcommand add_devices(CLI::App& app);
[[nodiscard]] Subcommand add_explain(CLI::App& app);
[[nodiscard]] Subcommand add_top(CLI::App& app);
[[nodiscard]] Subcommand add_dump(CLI::App& app);
[[nodiscard]] Subcommand add_convert(CLI::App& app);
[[nodiscard]] Subcommand add_export(CLI::App& app);

}  // namespace headroom::command
