// headroom: the drawing of the timeline: grid, stack, marks, overview. What is drawn: timeline_data.hpp.
//
// Neighbouring columns of the same height become one rectangle, so that a quiet hour costs no more than a busy second.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <headroom/follow.hpp>

#include "state.hpp"
#include "timeline_data.hpp"
#include "widgets.hpp"

namespace headroom::viewer {

/// A rectangle of the screen, in pixels, over a range of time.
struct PlotArea {
  float left = 0, top = 0, right = 0, bottom = 0;
  TickRange visible{};
  [[nodiscard]] float width() const noexcept { return right - left; }
  [[nodiscard]] float height() const noexcept { return bottom - top; }
  [[nodiscard]] float x_of(std::uint64_t ticks) const noexcept {
    auto const distance = static_cast<double>(ticks) - static_cast<double>(visible.begin);
    auto const share = std::clamp(distance / static_cast<double>(std::max<std::uint64_t>(visible.length(), 1)), -1.0, 2.0);
    return left + static_cast<float>(share * static_cast<double>(width()));
  }
  /// Within the range, wherever `x` is.
  [[nodiscard]] std::uint64_t ticks_of(float x) const noexcept {
    auto const share = std::clamp(static_cast<double>((x - left) / std::max(width(), 1.0F)), 0.0, 1.0);
    return visible.begin + static_cast<std::uint64_t>(share * static_cast<double>(visible.length()));
  }
  [[nodiscard]] std::uint64_t ticks_per_pixel() const noexcept {
    return visible.length() / std::max<std::uint64_t>(static_cast<std::uint64_t>(width()), 1);
  }
};

/// Everything inside the area, and the figures of both axes around it.
void draw_plot(ViewState const& state, Ui& ui, PlotArea const& area, TimelineData const& data, bool with_axis);

/// The total of `range`, small, with a brush over `brush`.
void draw_overview(Ui& ui, PlotArea const& area, TickRange range, std::span<follow::SeriesColumn const> total, TickRange brush);

}  // namespace headroom::viewer
