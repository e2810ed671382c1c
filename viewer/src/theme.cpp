#include "theme.hpp"

#include <algorithm>
#include <utility>

namespace headroom::viewer {
namespace {

constexpr ImU32 rgb(std::uint32_t hex, std::uint32_t alpha = 255) noexcept {
  return IM_COL32((hex >> 16U) & 255U, (hex >> 8U) & 255U, hex & 255U, alpha);
}

constexpr Colours kDark{
    .window = rgb(0x0e1217),
    .card = rgb(0x171d25),
    .line = rgb(0x2a333f),
    .faint = rgb(0x222a35),
    .hover = rgb(0x263041),
    .text = rgb(0xe6ebf1),
    .soft = rgb(0x98a5b5),
    .accent = rgb(0x5b93f5),
    .accent_ground = rgb(0x25406f),
    .good = rgb(0x56c48a),
    .warning = rgb(0xe3b341),
    .bad = rgb(0xff7b72),
    .limit = rgb(0xc79bff),
    .peak = rgb(0xe6ebf1),
    .cursor = rgb(0xffffff),
    .selection = rgb(0x5b93f5, 56),
    .other = rgb(0x5d6a79),
    .unattributed = rgb(0x3c4653),
    .pressure = {rgb(0x98a5b5), rgb(0x98a5b5), rgb(0xe3b341), rgb(0xf59350), rgb(0xff7b72)},
    .pressure_ground = {rgb(0, 0), rgb(0, 0), rgb(0xe3b341, 22), rgb(0xf59350, 30), rgb(0xff7b72, 40)},
};

constexpr Colours kLight{
    .window = rgb(0xf6f7f9),
    .card = rgb(0xffffff),
    .line = rgb(0xd6dce3),
    .faint = rgb(0xe9edf2),
    .hover = rgb(0xe8eef8),
    .text = rgb(0x17202b),
    .soft = rgb(0x5a6675),
    .accent = rgb(0x2f6fde),
    .accent_ground = rgb(0xcfdffa),
    .good = rgb(0x2f7d4f),
    .warning = rgb(0x8a5d06),
    .bad = rgb(0xb3261e),
    .limit = rgb(0x7a3fb5),
    .peak = rgb(0x17202b),
    .cursor = rgb(0x17202b),
    .selection = rgb(0x2f6fde, 40),
    .other = rgb(0x9aa5b2),
    .unattributed = rgb(0xc3cad3),
    .pressure = {rgb(0x5a6675), rgb(0x5a6675), rgb(0x8a5d06), rgb(0xad4a06), rgb(0xb3261e)},
    .pressure_ground = {rgb(0, 0), rgb(0, 0), rgb(0x8a5d06, 24), rgb(0xad4a06, 32), rgb(0xb3261e, 38)},
};

// Eight hues, each in two lightnesses; neighbours in the list differ in both, and none is the red of failures.
constexpr std::array<std::uint32_t, TagColours::kCount> kDarkTags{0x4c8dde, 0xe6a15c, 0x4fb8a0, 0xc98bd8, 0xd9cf72, 0x7f8ff0,
                                                                  0x8fc46a, 0xe08fae, 0x9cc8f5, 0xb5793f, 0x2f8f7c, 0x8d5fb0,
                                                                  0xa89b3a, 0xb9bdf7, 0x5f9440, 0xb8617f};
constexpr std::array<std::uint32_t, TagColours::kCount> kLightTags{0x3b78c9, 0xdf9344, 0x2fa188, 0xb06cc4, 0xc6b73d, 0x6272de,
                                                                   0x77b14c, 0xd4749a, 0x86b6ec, 0x9c622c, 0x1f7565, 0x74479a,
                                                                   0x8b7f22, 0xa0a6f0, 0x4b7d2e, 0x9e4a69};

/// FNV-1a: the same everywhere and at every start.
constexpr std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t hash = 14'695'981'039'346'656'037ULL;
  for (auto const character : text) hash = (hash ^ static_cast<unsigned char>(character)) * 1'099'511'628'211ULL;
  return hash;
}

ImVec4 vec(ImU32 colour) { return ImGui::ColorConvertU32ToFloat4(colour); }

}  // namespace

Colours const& colours_of(ThemeName theme) noexcept { return theme == ThemeName::light ? kLight : kDark; }

ImU32 faded(ImU32 colour, float share) noexcept {
  auto const alpha = static_cast<float>((colour >> IM_COL32_A_SHIFT) & 255U) * std::clamp(share, 0.0F, 1.0F);
  return (colour & ~IM_COL32_A_MASK) | (static_cast<ImU32>(alpha) << IM_COL32_A_SHIFT);
}

ImU32 TagColours::of(std::string_view tag, ThemeName theme) {
  auto found = places_.find(tag);
  if (found == places_.end()) {
    // From the tag's own place on, the first of those whose hue, and then whose lightness, fewest tags have.
    auto const uses = [&](std::size_t place) {
      return std::pair{used_[place] + used_[(place + kCount / 2) % kCount], used_[place]};
    };
    auto const own = static_cast<std::size_t>(hash_of(tag) % kCount);
    auto place = own;
    for (std::size_t i = 1; i < kCount; ++i) {
      if (uses((own + i) % kCount) < uses(place)) place = (own + i) % kCount;
    }
    ++used_[place];
    found = places_.emplace(std::string{tag}, place).first;
  }
  return rgb((theme == ThemeName::light ? kLightTags : kDarkTags)[found->second]);
}

void apply_style(ImGuiStyle& style, ThemeName theme, float scale) {
  auto const& c = colours_of(theme);
  style = ImGuiStyle{};
  if (theme == ThemeName::light) {
    ImGui::StyleColorsLight(&style);
  } else {
    ImGui::StyleColorsDark(&style);
  }
  auto* const to = style.Colors;
  to[ImGuiCol_Text] = vec(c.text);
  to[ImGuiCol_TextDisabled] = vec(c.soft);
  to[ImGuiCol_WindowBg] = vec(c.window);
  to[ImGuiCol_ChildBg] = ImVec4{0, 0, 0, 0};
  to[ImGuiCol_PopupBg] = vec(c.card);
  to[ImGuiCol_Border] = to[ImGuiCol_Separator] = to[ImGuiCol_TableBorderLight] = vec(c.line);
  to[ImGuiCol_TableBorderStrong] = vec(c.line);
  to[ImGuiCol_FrameBg] = vec(c.faint);
  to[ImGuiCol_FrameBgHovered] = to[ImGuiCol_FrameBgActive] = vec(c.hover);
  to[ImGuiCol_Button] = vec(c.faint);
  to[ImGuiCol_ButtonHovered] = vec(c.hover);
  to[ImGuiCol_ButtonActive] = vec(c.accent_ground);
  to[ImGuiCol_Header] = vec(c.accent_ground);
  to[ImGuiCol_HeaderHovered] = vec(c.hover);
  to[ImGuiCol_HeaderActive] = vec(c.accent_ground);
  to[ImGuiCol_Tab] = vec(c.window);
  to[ImGuiCol_TabUnfocused] = vec(c.window);
  to[ImGuiCol_TabHovered] = vec(c.hover);
  to[ImGuiCol_TabActive] = to[ImGuiCol_TabUnfocusedActive] = vec(c.accent_ground);
  to[ImGuiCol_TableHeaderBg] = vec(c.faint);
  to[ImGuiCol_TableRowBg] = ImVec4{0, 0, 0, 0};
  to[ImGuiCol_TableRowBgAlt] = vec(faded(c.faint, 0.45F));
  to[ImGuiCol_ScrollbarBg] = ImVec4{0, 0, 0, 0};
  to[ImGuiCol_ScrollbarGrab] = vec(c.line);
  to[ImGuiCol_ScrollbarGrabHovered] = to[ImGuiCol_ScrollbarGrabActive] = vec(c.other);
  to[ImGuiCol_CheckMark] = to[ImGuiCol_SliderGrab] = to[ImGuiCol_SliderGrabActive] = vec(c.accent);
  to[ImGuiCol_SeparatorHovered] = to[ImGuiCol_SeparatorActive] = vec(c.accent);
  to[ImGuiCol_TextSelectedBg] = vec(c.accent_ground);
  to[ImGuiCol_NavHighlight] = vec(c.accent);
  style.WindowPadding = {10, 8};
  style.FramePadding = {7, 3};
  style.CellPadding = {6, 2};
  style.ItemSpacing = {8, 5};
  style.ItemInnerSpacing = {6, 4};
  style.ScrollbarSize = 12;
  style.WindowBorderSize = 0;
  style.ChildBorderSize = 1;
  style.PopupBorderSize = 1;
  style.FrameRounding = style.GrabRounding = style.TabRounding = 3;
  style.ChildRounding = style.PopupRounding = 4;
  style.ScaleAllSizes(scale);
}

}  // namespace headroom::viewer
