// headroom: what the viewer remembers of its user: theme, scale, filter, and where its window was.
//
// In $XDG_CONFIG_HOME/headroom/viewer.json, or ~/.config/headroom/viewer.json. What cannot be read is as if it was never written: settings
// are no reason not to start. Thread safety: none.
#pragma once

#include <optional>
#include <string>

#include "options.hpp"
#include "state.hpp"

namespace headroom::viewer {

struct Settings {
  ThemeName theme = ThemeName::dark;
  float scale = 1;
  std::string filter;
  std::optional<WindowSize> size{};
  std::optional<WindowSize> place{};  ///< of its top left corner, as x and y
};

/// "" where neither variable is set.
[[nodiscard]] std::string settings_path();
[[nodiscard]] Settings read_settings(std::string const& path);
/// Whole or not at all; nothing is said where it cannot be written.
void write_settings(std::string const& path, Settings const& settings);

}  // namespace headroom::viewer
