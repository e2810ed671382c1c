// The peak inspector.
#include "peak_data.hpp"

#include <algorithm>

#include <gmock/gmock.h>

#include "null_frames.hpp"
#include "scripted_source.hpp"

namespace headroom::viewer {

std::unique_ptr<Panel> make_peak_panel();

namespace {

using follow::Script;
using testing::HasSubstr;

std::shared_ptr<Script> new_script() {
  auto script = follow::named_script();
  script->allocate(100, 0x1000, 300, 5, 20);
  script->allocate(200, 0x2000, 200, 6);
  script->allocate(210, 0x3000, 50, 6);
  script->free(300, 0x2000, 200, 6);
  script->allocate(400, 0x4000, 100, 5);
  script->free(500, 0x1000, 300, 5);
  return script;
}

TEST(PeakData, compares_who_held_what_at_the_peak_with_a_moment) {
  auto model = follow::model_of(new_script());
  ASSERT_TRUE(model.catch_up());
  auto const peak = peak_data(model, 0, std::nullopt, 500);
  EXPECT_EQ(peak.bytes, 550U);
  EXPECT_EQ(peak.ticks, 210U);
  ASSERT_EQ(peak.tags.size(), 2U);
  EXPECT_EQ(peak.tags[0].name, "weights");
  EXPECT_EQ(peak.tags[0].then, 300U);
  EXPECT_EQ(peak.tags[0].now, 100U);
  EXPECT_EQ(peak.tags[1].then, 250U);
  EXPECT_EQ(peak.tags[1].allocations, 2U);
  EXPECT_EQ(peak.tags[1].now, 50U);
  EXPECT_EQ(peak.sites.bytes, 550U);
}

TEST(PeakData, of_a_range_is_the_most_within_it) {
  auto model = follow::model_of(new_script());
  ASSERT_TRUE(model.catch_up());
  auto const peak = peak_data(model, 0, TickRange{.begin = 300, .end = 1'000}, 500);
  EXPECT_EQ(peak.bytes, 450U);
  EXPECT_EQ(peak.ticks, 400U);
}

TEST(PeakData, of_a_pause_knows_nothing_of_what_came_after) {
  auto const script = new_script();
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  script->allocate(600, 0x5000, 5'000, 5);
  ASSERT_TRUE(model.catch_up());
  auto const peak = peak_data(model, 0, std::nullopt, 500, 550);
  EXPECT_EQ(peak.bytes, 550U);
  EXPECT_EQ(peak.ticks, 210U);
  EXPECT_TRUE(peak.is_of_kept);
  EXPECT_EQ(peak_ticks(model, 0, 550), 210U);
  EXPECT_EQ(peak_ticks(model, 0, std::nullopt), 600U);
  auto const now = peak_data(model, 0, std::nullopt, 600, 600);
  EXPECT_EQ(now.bytes, 5'150U);
  EXPECT_FALSE(now.is_of_kept);
}

TEST(PeakPanel, stands_still_while_the_display_is_paused) {
  auto const script = new_script();
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  NullFrames frames{900, 900};
  ViewState state;
  state.show(&model);
  auto const panel = make_peak_panel();
  state.toggle_pause();
  EXPECT_THAT(frames.draw(state, *panel, 2), HasSubstr("exactly\t550 B"));
  script->allocate(600, 0x5000, 5'000, 5);
  ASSERT_TRUE(model.catch_up());
  state.follow(true);
  auto const paused = frames.draw(state, *panel);
  EXPECT_THAT(paused, HasSubstr("exactly\t550 B"));
  EXPECT_THAT(paused, HasSubstr("up to the pause"));
  state.toggle_pause();
  state.follow(true);
  EXPECT_THAT(frames.draw(state, *panel), HasSubstr("exactly\t5,150 B"));
}

TEST(HighestIn, finds_the_first_instant_of_the_most_in_a_recorded_history) {
  auto model = follow::Model::open_history(HEADROOM_TEST_DATA "/resnet.csv.xz").value();
  ASSERT_TRUE(model.catch_up());
  auto const peak = model.peak(0);
  ASSERT_TRUE(peak.ticks.has_value());
  auto const found = highest_in(model, 0, {.begin = model.first_ticks(), .end = model.last_ticks() + 1});
  ASSERT_TRUE(found.has_value());
  // Operations of one microsecond are one instant here: the most at the end of it may be less than within it.
  std::uint64_t most = 0;
  std::uint64_t most_ticks = 0;
  std::uint64_t allocated = 0;
  std::uint64_t ticks = 0;
  model.for_each_operation(0, 0, ~std::uint64_t{0}, [&](follow::Operation const& operation) {
    allocated = operation.allocated_after;
    if (allocated > most) most_ticks = operation.ticks;
    most = std::max(most, allocated);
    ticks = operation.ticks;
    return true;
  });
  EXPECT_EQ(*found, most_ticks);
  EXPECT_EQ(most, peak.bytes);
  EXPECT_GE(ticks, most_ticks);
}

TEST(HighestIn, of_nothing_is_nothing) {
  auto model = follow::model_of(new_script());
  ASSERT_TRUE(model.catch_up());
  EXPECT_FALSE(highest_in(model, 0, {}).has_value());
  EXPECT_FALSE(highest_in(model, 7, {.begin = 0, .end = 1'000}).has_value());
}

TEST(PeakPanel, tells_the_peak_in_bytes_and_by_tag) {
  auto model = follow::Model::open_history(HEADROOM_TEST_DATA "/gpt2.csv.xz").value();
  ASSERT_TRUE(model.catch_up());
  NullFrames frames{900, 900};
  ViewState state;
  state.show(&model);
  auto const panel = make_peak_panel();
  EXPECT_THAT(frames.draw(state, *panel), HasSubstr("At the peak"));
  state.select(TickRange{.begin = 1, .end = 2});
  EXPECT_THAT(frames.draw(state, *panel, 3), HasSubstr("selected range"));
}

}  // namespace
}  // namespace headroom::viewer
