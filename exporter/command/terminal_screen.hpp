// headroom: the terminal as a screen of its own, and back again however the program ends.
//
// While a TerminalScreen lives, the terminal shows its second screen without cursor, and keys arrive one by one. It is put back by
// the destructor, at exit(), by signals that end the program (SIGINT, SIGTERM, SIGHUP and SIGQUIT, which end the loop in good order,
// and at once when they come twice), by those of a crash, and while the program is stopped with Ctrl-Z. Only SIGKILL leaves it as it
// is; `reset` helps then.
//
// One at a time, made and used by one thread; needs a terminal on stdin and stdout.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include <headroom/error.hpp>

namespace headroom::command {

class TerminalScreen {
public:
  /// Errors: io (stdin or stdout is no terminal, or the terminal refuses).
  [[nodiscard]] static Result<TerminalScreen> open();
  ~TerminalScreen();
  TerminalScreen(TerminalScreen&& other) noexcept;
  TerminalScreen& operator=(TerminalScreen&&) = delete;

  struct Size {
    std::size_t columns = 80, rows = 24;
  };
  [[nodiscard]] static Size size() noexcept;

  /// Shows `frame`, lines that end in '\n'; what does not fit is cut off. Escape sequences for colours count nothing.
  void show(std::string const& frame);
  /// The next key, or nothing once the time is over, the window has changed or a signal has come, however shortly before.
  [[nodiscard]] std::optional<char> wait_for_key(std::chrono::milliseconds time);
  /// The window has changed, or the program was stopped and goes on: what was shown is gone. Once for each time, true at first.
  [[nodiscard]] static bool must_redraw() noexcept;
  /// A signal asks the program to end, or the terminal is gone.
  [[nodiscard]] static bool must_end() noexcept;

private:
  TerminalScreen() = default;
  bool owns_ = true;
};

/// As much of a line as fits into `columns` cells; escape sequences are kept whole and end in a reset.
[[nodiscard]] std::string clipped(std::string const& line, std::size_t columns);

}  // namespace headroom::command
