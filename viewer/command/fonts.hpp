// headroom: the letters of the window: DejaVu Sans through FreeType, at any scale.
#pragma once

#include <string>

#include <imgui.h>

#include "theme.hpp"

namespace headroom::viewer {

/// Fills ImGui's atlas anew for a scale (1 = 96 dots an inch). Where the font is not installed, with the one that ImGui brings, which knows
/// Latin letters alone. Smaller letters than asked for where these would fill a texture of more than `most_edge` pixels a side.
[[nodiscard]] Fonts load_fonts(ImFontAtlas& atlas, float scale, int most_edge);

}  // namespace headroom::viewer
