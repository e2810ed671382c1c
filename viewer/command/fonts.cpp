#include "fonts.hpp"

#include <array>
#include <cmath>
#include <filesystem>
#include <system_error>

#include <imgui_freetype.h>

namespace headroom::viewer {
namespace {

constexpr float kBody = 14;
constexpr float kLarge = 19;

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

}  // namespace

Fonts load_fonts(ImFontAtlas& atlas, float scale) {
  atlas.Clear();
  atlas.FontBuilderIO = ImGuiFreeType::GetBuilderForFreeType();
  atlas.TexDesiredWidth = scale > 1.5F ? 4096 : 0;  // no taller than what every driver takes
  Fonts fonts;
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
  return fonts;
}

}  // namespace headroom::viewer
