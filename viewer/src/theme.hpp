// headroom: colours and fonts.
//
// Quiet greys, one accent, and meanings that never rest on colour alone: whoever shows a pressure or a failure also writes its word or
// draws its mark. Colours of tags stay clear of those, and tell apart for people who do not see red and green (they differ in lightness).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <imgui.h>

#include <headroom/pressure.hpp>

#include "state.hpp"

namespace headroom::viewer {

/// As ImDrawList takes them.
struct Colours {
  ImU32 window, card, line, faint, hover;   ///< grounds, borders, grid
  ImU32 text, soft, accent, accent_ground;  ///< `soft`: what explains, not what is said
  ImU32 good, warning, bad;                 ///< states; `bad`: failures and losses
  ImU32 limit, peak, cursor, selection;     ///< marks in plots
  ImU32 other, unattributed;                ///< tags too small to be shown, and bytes that no tag is known of
  std::array<ImU32, 5> pressure;            ///< by PressureLevel; for words and marks
  std::array<ImU32, 5> pressure_ground;     ///< … behind plots
};
[[nodiscard]] Colours const& colours_of(ThemeName theme) noexcept;
/// `colour` at a share of its own opacity.
[[nodiscard]] ImU32 faded(ImU32 colour, float share) noexcept;

/// Colours of tags: the same tag has the same colour for as long as this lives, and mostly the same at every start. Two tags that are shown
/// at once only share one when there are more than there are colours.
class TagColours {
public:
  static constexpr std::size_t kCount = 16;
  [[nodiscard]] ImU32 of(std::string_view tag, ThemeName theme);

private:
  std::map<std::string, std::size_t, std::less<>> places_;
  std::array<std::size_t, kCount> used_{};
};

/// Null where the host brings its own: then the current font serves.
struct Fonts {
  ImFont* body = nullptr;
  ImFont* strong = nullptr;
  ImFont* large = nullptr;
  float scale = 1;  ///< of their letters (1 = 96 dots an inch)
};

/// Sets ImGui's style for a theme and a scale (1 = 96 dots an inch).
void apply_style(ImGuiStyle& style, ThemeName theme, float scale);

}  // namespace headroom::viewer
