// headroom: what the person asked for by a key, whichever key that is.
//
// Whoever has the keyboard (the program's window, or a host's) turns keys into commands. So panels know no key codes, which
// differ between versions of Dear ImGui, and a key that was pressed and let go within one frame is not lost.
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom::viewer {

enum class Command : std::uint8_t {
  pause,
  live,
  fit_all,
  fit_selection,
  zoom_in,
  zoom_out,
  pan_left,
  pan_right,
  next_event,
  previous_event,
  next_failure,
  previous_failure,
  peak,
  filter,
  clear,
  copy,
  export_selection,
  open,
  larger,
  smaller,
  usual_size,
  help,
  quit,
  count
};

/// Of one frame: a bit for each.
class Commands {
public:
  void give(Command command) noexcept { bits_ |= bit(command); }
  /// True once: whoever takes it has answered it.
  [[nodiscard]] bool take(Command command) noexcept {
    auto const was = (bits_ & bit(command)) != 0;
    bits_ &= ~bit(command);
    return was;
  }
  void clear() noexcept { bits_ = 0; }
  [[nodiscard]] bool none() const noexcept { return bits_ == 0; }

private:
  static constexpr std::uint64_t bit(Command command) noexcept { return std::uint64_t{1} << static_cast<unsigned>(command); }
  std::uint64_t bits_ = 0;
};
static_assert(static_cast<unsigned>(Command::count) <= 64);

/// What a person reads in the help and in tooltips.
struct Habit {
  Command command;
  std::string_view keys;
  std::string_view what;
};
inline constexpr Habit kHabits[] = {
    {Command::pause, "Space", "stand still; reading goes on"},
    {Command::live, "L", "follow what is new"},
    {Command::fit_all, "Home", "show all that is kept"},
    {Command::fit_selection, "F", "show the selected range"},
    {Command::zoom_in, "W", "closer"},
    {Command::zoom_out, "S", "farther"},
    {Command::pan_left, "A", "earlier"},
    {Command::pan_right, "D", "later"},
    {Command::previous_event, "\u2191", "to the event before"},
    {Command::next_event, "\u2193", "to the next event"},
    {Command::next_failure, "N", "to the next failure"},
    {Command::previous_failure, "Shift+N", "to the failure before"},
    {Command::peak, "P", "to the peak"},
    {Command::filter, "Ctrl+F or /", "filter"},
    {Command::clear, "Esc", "clear the filter, the selection, the cursor"},
    {Command::copy, "Ctrl+C", "copy the rows"},
    {Command::export_selection, "Ctrl+E", "export what is selected"},
    {Command::open, "Ctrl+O", "open a process or file"},
    {Command::larger, "Ctrl +", "larger text"},
    {Command::smaller, "Ctrl \u2212", "smaller text"},
    {Command::usual_size, "Ctrl 0", "text at its usual size"},
    {Command::help, "F1", "this page"},
    {Command::quit, "Q", "quit"},
};

}  // namespace headroom::viewer
