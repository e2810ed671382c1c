// What a window needs before there is one: a place that can be seen, and letters that a driver takes.
#include <array>

#include <gtest/gtest.h>
#include <imgui.h>

#include "fonts.hpp"
#include "window_place.hpp"

namespace headroom::viewer {
namespace {

TEST(WindowPlace, is_in_sight_where_its_upper_edge_is_on_a_monitor) {
  // The second stands to the left of the first, and lower.
  constexpr std::array kMonitors{ScreenArea{.x = 0, .y = 0, .width = 1'920, .height = 1'080},
                                 ScreenArea{.x = -1'280, .y = 200, .width = 1'280, .height = 1'024}};
  auto const is_seen = [&](int x, int y) { return is_in_sight({.x = x, .y = y, .width = 800, .height = 600}, kMonitors); };
  EXPECT_TRUE(is_seen(0, 0));
  EXPECT_TRUE(is_seen(1'800, 900)) << "enough of it to take hold of";
  EXPECT_TRUE(is_seen(-1'200, 300));
  EXPECT_FALSE(is_seen(1'920, 0)) << "a monitor that is gone";
  EXPECT_FALSE(is_seen(100, 1'070));
  EXPECT_FALSE(is_seen(-1'200, 100)) << "its upper edge is above the second";
  EXPECT_FALSE(is_seen(100, -100));
  EXPECT_FALSE(is_in_sight({.x = 65'536, .y = 65'536, .width = 2'000'000'000, .height = 600}, kMonitors));
  EXPECT_FALSE(is_in_sight({.x = 0, .y = 0, .width = 800, .height = 600}, {}));
}

TEST(Fonts, at_any_scale_fit_into_a_texture_that_the_driver_takes) {
  ImFontAtlas atlas;
  for (auto const most : {1'024, 2'048}) {
    auto const fonts = load_fonts(atlas, 12, most);
    EXPECT_LE(atlas.TexWidth, most);
    EXPECT_LE(atlas.TexHeight, most);
    EXPECT_LT(fonts.scale, 12);
    EXPECT_GT(fonts.scale, 0.5F);
    EXPECT_NE(fonts.body, nullptr);
  }
  EXPECT_EQ(load_fonts(atlas, 1, 16'384).scale, 1);
}

}  // namespace
}  // namespace headroom::viewer
