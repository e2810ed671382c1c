#include "widgets.hpp"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "null_frames.hpp"

namespace headroom::viewer {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Widgets, texts_of_one_line_are_recorded_as_one_line) {
  NullFrames frames{640, 480};
  frames.frame(ThemeName::dark, [](Ui& ui) {
    ui.section("here");
    ui.bytes(3'129'743'888);
    Ui::same_line();
    ui.exact_bytes(3'129'743'888);
    ui.count(748);
  });
  EXPECT_EQ(frames.text(), "[here]\n2.91 GiB\t3,129,743,888 B\n748\n");
}

TEST(Widgets, each_text_is_recorded_with_its_place) {
  TextRecorder recorder;
  recorder.section("tabs");
  recorder.add("Peak", {.x = 10.4F, .y = 20, .width = 30.6F, .height = 13});
  recorder.section("peak");
  recorder.add("5 GiB", {.x = 1, .y = 40, .width = 30, .height = 13});
  EXPECT_EQ(recorder.places(), "tabs\t10\t20\t31\t13\tPeak\npeak\t1\t40\t30\t13\t5 GiB\n");
  recorder.begin_frame();
  EXPECT_EQ(recorder.places() + recorder.text(), "");
}

constexpr std::array kRanked{Column{.title = "time", .width = 10}, Column{.title = "size", .width = 10, .rank = 2},
                             Column{.title = "where", .least = 20, .rank = 1}, Column{.title = "thread", .width = 10, .rank = 3}};

TEST(Widgets, columns_without_room_go_in_the_order_of_their_ranks) {
  using Shown = std::vector<bool>;
  EXPECT_EQ(columns_with_room(kRanked, 54, 1), (Shown{true, true, true, true}));
  EXPECT_EQ(columns_with_room(kRanked, 53, 1), (Shown{true, true, true, false}));
  EXPECT_EQ(columns_with_room(kRanked, 42, 1), (Shown{true, false, true, false}));
  EXPECT_EQ(columns_with_room(kRanked, 31, 1), (Shown{true, false, false, false}));
  EXPECT_EQ(columns_with_room(kRanked, 0, 1), (Shown{true, false, false, false}));
  EXPECT_EQ(columns_with_room({}, 0, 1), Shown{});
}

TEST(Widgets, a_column_that_is_left_out_writes_nothing_and_the_others_are_whole) {
  for (auto const& [width, expected] : {std::pair{640.0F, "time\tsize\twhere\tthread\n1 s\t2 B\ta.cpp:1 step\t7\n"},
                                        std::pair{320.0F, "time\twhere\n1 s\ta.cpp:1 step\n"}}) {
    NullFrames frames{width, 200};
    for (auto i = 0; i < 3; ++i) {
      frames.frame(ThemeName::dark, [&](Ui& ui) {
        ui.section("here");
        {
          auto table = ui.table("rows", kRanked);
          table.rows(1, [&](std::size_t) {
            ui.cell();
            ui.text("1 s");
            ui.cell();
            ui.bytes_right(2);
            ui.cell();
            ui.site("a.cpp:1 void step(int)");
            ui.cell();
            ui.text("7");
          });
        }
        ui.text("after");
      });
    }
    EXPECT_EQ(frames.text(), std::string{"[here]\n"} + expected + "after\n") << width;
  }
}

TEST(Widgets, a_name_from_a_file_breaks_neither_a_line_nor_a_label) {
  NullFrames frames{640, 480};
  frames.frame(ThemeName::dark, [](Ui& ui) {
    ui.section("here");
    ui.text("a\nb\x01%s##c");
    EXPECT_FALSE(ui.button(std::string(100'000, 'x')));
    ui.elided(std::string(100'000, '\xc3'));
  });
  EXPECT_THAT(frames.text(), HasSubstr("a b %s##c\n"));
}

TEST(Widgets, a_table_draws_the_rows_in_sight_and_no_others) {
  NullFrames frames{640, 480};
  static constexpr std::array kColumns{Column{.title = "row", .width = 10, .is_right = true}, Column{.title = "tag"}};
  std::size_t drawn = 0;
  for (auto i = 0; i < 3; ++i) {
    drawn = 0;
    frames.frame(ThemeName::light, [&](Ui& ui) {
      auto table = ui.table("rows", kColumns);
      ASSERT_TRUE(table);
      table.rows(1'000'000, [&](std::size_t row) {
        ++drawn;
        ui.cell();
        ui.count_right(row);
        ui.cell();
        ui.tag("weights");
      });
    });
  }
  EXPECT_GT(drawn, 10U);
  EXPECT_LT(drawn, 100U);
  EXPECT_THAT(frames.text(), HasSubstr("row\ttag\n"));
  EXPECT_THAT(frames.text(), HasSubstr("\n7\tweights\n"));
  EXPECT_THAT(frames.text(), Not(HasSubstr("999,999")));
}

TEST(Widgets, a_tag_keeps_its_colour_and_shares_it_with_none_while_there_are_enough) {
  TagColours tags;
  std::map<ImU32, int> seen;
  for (std::size_t i = 0; i < TagColours::kCount; ++i) ++seen[tags.of("tag " + std::to_string(i), ThemeName::dark)];
  EXPECT_EQ(seen.size(), TagColours::kCount);
  auto const before = tags.of("tag 3", ThemeName::dark);
  for (auto i = 0; i < 1'000; ++i) static_cast<void>(tags.of("more " + std::to_string(i), ThemeName::dark));
  EXPECT_EQ(tags.of("tag 3", ThemeName::dark), before);
}

}  // namespace
}  // namespace headroom::viewer
