// headroom: what stands on the command line of headroom-viewer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "commands.hpp"
#include "state.hpp"

namespace headroom::viewer {

/// What a shell sees: as the `headroom` command.
enum class ExitCode : int {
  good = 0,
  usage = 2,         ///< an argument is wrong
  broken_input = 3,  ///< what was named cannot be opened; or there is no display
};

inline constexpr int kLeastEdge = 64;  ///< of a window, in pixels
inline constexpr int kMostEdge = 16'384;

struct WindowSize {
  int width = 1280;
  int height = 800;
  [[nodiscard]] bool is_possible() const noexcept {
    return width >= kLeastEdge && width <= kMostEdge && height >= kLeastEdge && height <= kMostEdge;
  }
};

struct Options {
  std::string what;                   ///< a process number or a path; "" = the newest process
  std::string compare;                ///< likewise, what to compare it with; "" = nothing
  std::optional<std::string> folder;  ///< of flight files, in place of the usual ones
  std::size_t memory_bytes = std::size_t{512} << 20U;
  std::optional<std::uint64_t> frames;             ///< draw so many, then quit
  std::string screenshot, dump_text, dump_places;  ///< files that the last frame is written to; "" = none
  std::string panel;
  std::optional<Command> at;  ///< what goes to the moment that is looked at first
  std::optional<WindowSize> size;
  std::optional<ThemeName> theme;
  std::optional<float> scale;
  bool stays = false;     ///< open until somebody closes it; texts are written as they change, the picture then
  bool remembers = true;  ///< reads and writes the settings of this user
  /// Nobody looks: everything is read first, then the frames are drawn one after the other.
  [[nodiscard]] bool is_errand() const noexcept {
    if (stays) return false;
    return frames || !screenshot.empty() || !dump_text.empty() || !dump_places.empty();
  }
};

/// The options; or the code to exit with, after --help or with what was wrong said on stderr.
[[nodiscard]] std::variant<Options, int> read_options(int argc, char** argv);

}  // namespace headroom::viewer
