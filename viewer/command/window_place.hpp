// headroom: whether a window at a place that was remembered can be seen. Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace headroom::viewer {

/// In the coordinates of the desktop, which spans all monitors.
struct ScreenArea {
  int x = 0, y = 0, width = 0, height = 0;
};

/// Enough of the window's upper edge lies on one of the monitors to take hold of it.
[[nodiscard]] inline bool is_in_sight(ScreenArea const& window, std::span<ScreenArea const> monitors) {
  constexpr std::int64_t kHold = 64;  // pixels
  return std::ranges::any_of(monitors, [&window](ScreenArea const& monitor) {
    auto const left = std::max<std::int64_t>(window.x, monitor.x);
    auto const right = std::min(std::int64_t{window.x} + window.width, std::int64_t{monitor.x} + monitor.width);
    return right - left >= kHold && window.y >= monitor.y && window.y + kHold <= std::int64_t{monitor.y} + monitor.height;
  });
}

}  // namespace headroom::viewer
