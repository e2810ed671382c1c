// Two files side by side.
#include "compare_data.hpp"

#include <gmock/gmock.h>

#include "null_frames.hpp"
#include "scripted_source.hpp"

namespace headroom::viewer {

std::unique_ptr<Panel> make_compare_panel();

namespace {

using follow::Holdings;
using testing::HasSubstr;

TEST(Comparison, has_the_largest_change_first_whatever_its_direction) {
  Holdings const a{{{.tag = "same", .site = ""}, 7}, {{.tag = "grown", .site = "x"}, 10}, {{.tag = "gone", .site = ""}, 500}};
  Holdings const b{{{.tag = "same", .site = ""}, 7}, {{.tag = "grown", .site = "x"}, 40}, {{.tag = "new", .site = ""}, 100}};
  auto const comparison = comparison_of(a, b);
  ASSERT_EQ(comparison.rows.size(), 3U);
  EXPECT_EQ(comparison.rows[0].change.holder.tag, "gone");
  EXPECT_EQ(comparison.rows[0].kind, ChangeKind::vanished);
  EXPECT_EQ(comparison.rows[1].kind, ChangeKind::appeared);
  EXPECT_EQ(comparison.rows[2].kind, ChangeKind::grown);
  EXPECT_EQ(comparison.rows[2].change.size(), 30U);
  EXPECT_EQ(comparison.bytes_a, 517U);
  EXPECT_EQ(comparison.bytes_b, 147U);
}

TEST(Comparison, of_models_takes_what_is_live_or_was_at_the_peak) {
  auto const script = follow::named_script();
  script->allocate(100, 0x1000, 300, 5);
  script->allocate(200, 0x2000, 200, 6);
  script->free(300, 0x1000, 300, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(holdings_of(model, false), (Holdings{{{.tag = "cache", .site = ""}, 200}}));
  EXPECT_EQ(holdings_of(model, true), (Holdings{{{.tag = "weights", .site = ""}, 300}, {{.tag = "cache", .site = ""}, 200}}));
}

TEST(ComparePanel, shows_changes_with_their_direction) {
  auto const before = follow::named_script();
  before->allocate(100, 0x1000, 300, 5);
  auto const after = follow::named_script();
  after->allocate(100, 0x1000, 1'324, 5);
  auto one = follow::model_of(before);
  auto two = follow::model_of(after);
  ASSERT_TRUE(one.catch_up());
  ASSERT_TRUE(two.catch_up());
  NullFrames frames{900, 600};
  ViewState state;
  state.show(&two);
  auto const panel = make_compare_panel();
  EXPECT_THAT(frames.draw(state, *panel, 2), HasSubstr("Nothing to compare with"));
  state.other = &one;
  EXPECT_THAT(frames.draw(state, *panel), HasSubstr("+1 KiB\tgrown\tweights\t300 B\t1.29 KiB"));
}

}  // namespace
}  // namespace headroom::viewer
