#include "fonts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <system_error>

#include <imgui_freetype.h>

namespace headroom::viewer {
namespace {

constexpr float kBody = 14;
constexpr float kLarge = 19;
constexpr float kLeastScale = 0.5F;
constexpr float kMostScale = 8;  // of the person's choice and the display's own together
constexpr int kWidth = 4'096;
constexpr int kLeastEdge = 1'024;  // of a texture, that every OpenGL 3 takes

// Where Debian, Fedora and Arch put it.
constexpr std::array kFolders{"/usr/share/fonts/truetype/dejavu/", "/usr/share/fonts/dejavu-sans-fonts/", "/usr/share/fonts/TTF/",
                              "/usr/share/fonts/dejavu/"};

// Latin, Greek, Cyrillic, punctuation, arrows, mathematical signs, shapes. Pairs of first and last; ends in 0.
constexpr std::array<ImWchar, 17> kLetters{0x0020, 0x024F, 0x0370, 0x052F, 0x2010, 0x2044, 0x20A0, 0x20BF, 0x2190,
                                           0x21FF, 0x2200, 0x22FF, 0x2500, 0x26FF, 0xFFFD, 0xFFFD, 0};

std::string path_of(char const* name) {
  for (auto const* const folder : kFolders) {
    auto path = std::string{folder} + name;
    std::error_code failed;
    if (std::filesystem::is_regular_file(path, failed)) return path;
  }
  return {};
}

ImFont* add(ImFontAtlas& atlas, char const* name, float size) {
  auto const path = path_of(name);
  return path.empty() ? nullptr : atlas.AddFontFromFileTTF(path.c_str(), size, nullptr, kLetters.data());
}

Fonts drawn(ImFontAtlas& atlas, float scale, int most_edge) {
  atlas.Clear();
  atlas.FontBuilderIO = ImGuiFreeType::GetBuilderForFreeType();
  atlas.TexDesiredWidth = scale > 1.5F || most_edge < kWidth ? std::min(kWidth, most_edge) : 0;  // rather wide than tall
  Fonts fonts{.scale = scale};
  fonts.body = add(atlas, "DejaVuSans.ttf", std::round(kBody * scale));
  if (fonts.body == nullptr) {
    ImFontConfig config;
    config.SizePixels = std::round(kBody * scale);
    fonts.body = atlas.AddFontDefault(&config);
  }
  fonts.strong = add(atlas, "DejaVuSans-Bold.ttf", std::round(kBody * scale));
  fonts.large = add(atlas, "DejaVuSans-Bold.ttf", std::round(kLarge * scale));
  if (fonts.strong == nullptr) fonts.strong = fonts.body;
  if (fonts.large == nullptr) fonts.large = fonts.strong;
  atlas.Build();
  return fonts;
}

}  // namespace

Fonts load_fonts(ImFontAtlas& atlas, float scale, int most_edge) {
  auto const most = std::max(most_edge, kLeastEdge);
  scale = std::clamp(scale, kLeastScale, kMostScale);
  auto fonts = drawn(atlas, scale, most);
  // A texture that the driver does not take would leave no text at all.
  while ((atlas.TexHeight > most || atlas.TexWidth > most) && fonts.scale > kLeastScale) {
    // The height is rounded up to a power of two: no smaller than it must be, in one step or a few.
    auto const pixels = static_cast<float>(atlas.TexWidth) * static_cast<float>(atlas.TexHeight);
    auto const share = std::sqrt(2 * static_cast<float>(most) * static_cast<float>(most) / pixels);
    fonts = drawn(atlas, std::max(fonts.scale * std::min(share, 0.9F), kLeastScale), most);
  }
  return fonts;
}

}  // namespace headroom::viewer
