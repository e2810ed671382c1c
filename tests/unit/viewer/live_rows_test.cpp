// Live allocations and the leak list.
#include "live_rows.hpp"

#include <gmock/gmock.h>

#include "null_frames.hpp"
#include "scripted_source.hpp"

namespace headroom::viewer {

std::unique_ptr<Panel> make_live_panel();

namespace {

using follow::Script;
using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<Script> new_script() {
  auto script = follow::named_script();
  script->allocate(100, 0x1000, 300, 5, 20);
  script->allocate(200, 0x2000, 200, 6, 21);
  script->thread = 9;
  script->allocate(300, 0x3000, 50, 6, 20);
  script->free(400, 0x2000, 200, 6);
  script->allocate(500, 0x4000, 1'000, 6, 21);
  return script;
}

std::vector<std::uint64_t> bytes_of(LiveRows const& rows) {
  std::vector<std::uint64_t> bytes;
  for (auto const& row : rows.rows) bytes.push_back(row.bytes);
  return bytes;
}

TEST(LiveRows, are_those_of_the_instant_in_the_order_asked_for) {
  auto model = follow::model_of(new_script());
  ASSERT_TRUE(model.catch_up());
  EXPECT_THAT(bytes_of(live_rows(model, {.ticks = 350})), ElementsAre(300, 200, 50));
  EXPECT_THAT(bytes_of(live_rows(model, {.ticks = 500})), ElementsAre(1'000, 300, 50));
  EXPECT_THAT(bytes_of(live_rows(model, {.ticks = 500, .order = LiveOrder::age})), ElementsAre(300, 50, 1'000));
  EXPECT_THAT(bytes_of(live_rows(model, {.ticks = 500, .order = LiveOrder::age, .is_descending = false})),
              ElementsAre(1'000, 50, 300));
  EXPECT_THAT(bytes_of(live_rows(model, {.ticks = 500, .text = "B.CPP"})), ElementsAre(1'000));
  auto const cut = live_rows(model, {.ticks = 500, .most = 2});
  EXPECT_EQ(cut.rows.size(), 2U);
  EXPECT_EQ(cut.total, 3U);
  EXPECT_EQ(cut.bytes, 1'350U);
  EXPECT_EQ(cut.allocated, 1'350U);
}

TEST(LiveRows, in_groups_add_up_and_say_where_they_are_mixed) {
  auto model = follow::model_of(new_script());
  ASSERT_TRUE(model.catch_up());
  auto const by_tag = live_rows(model, {.ticks = 500, .grouping = LiveGrouping::tag});
  ASSERT_THAT(bytes_of(by_tag), ElementsAre(1'050, 300));
  EXPECT_EQ(by_tag.rows[0].tag, "cache");
  EXPECT_EQ(by_tag.rows[0].blocks, 2U);
  EXPECT_EQ(by_tag.rows[0].oldest_ticks, 300U);
  EXPECT_TRUE(by_tag.rows[0].has_several_sites);
  EXPECT_FALSE(by_tag.rows[0].has_several_threads);
  EXPECT_FALSE(by_tag.rows[1].has_several_sites);
  auto const by_thread = live_rows(model, {.ticks = 500, .grouping = LiveGrouping::thread});
  EXPECT_THAT(bytes_of(by_thread), ElementsAre(1'050, 300));
  EXPECT_EQ(by_thread.rows[0].thread, 9U);
}

TEST(LiveRows, number_threads_as_the_program_does) {
  auto const script = new_script();
  script->thread_ids[9] = 140'213'000'000'213;
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const rows = live_rows(model, {.ticks = 500, .most = 1});
  EXPECT_EQ(rows.rows[0].thread, 140'213'000'000'213U);
  EXPECT_EQ(plain_live(model, rows.rows[0], 500)[5], PlainCell{std::uint64_t{140'213'000'000'213}});
  EXPECT_EQ(live_rows(model, {.ticks = 500, .grouping = LiveGrouping::thread}).rows[0].thread, 140'213'000'000'213U);
}

TEST(LiveRows, the_leak_list_agrees_with_the_model) {
  auto model = follow::model_of(new_script());
  ASSERT_TRUE(model.catch_up());
  auto const leaks = live_rows(model, {.ticks = 500, .alive_since = 450});
  auto const answer = model.alive_since(0, 450, 500);
  EXPECT_THAT(bytes_of(leaks), ElementsAre(300, 50));
  EXPECT_EQ(leaks.bytes, answer.bytes);
  EXPECT_EQ(leaks.blocks, answer.allocations);
}

TEST(LiveRows, of_a_recorded_history_make_up_what_was_allocated_at_any_instant) {
  auto model = follow::Model::open_history(HEADROOM_TEST_DATA "/resnet.csv.xz").value();
  ASSERT_TRUE(model.catch_up());
  auto const first = model.first_ticks();
  auto const length = model.last_ticks() - first;
  for (std::uint64_t part = 1; part <= 10; ++part) {
    auto const rows = live_rows(model, {.ticks = first + length * part / 10});
    EXPECT_EQ(rows.bytes + rows.unattributed_bytes, rows.allocated);
    EXPECT_EQ(rows.rows.size(), rows.blocks);
  }
}

TEST(LivePanel, shows_the_moment_that_is_looked_at) {
  auto model = follow::model_of(new_script());
  ASSERT_TRUE(model.catch_up());
  NullFrames frames{1'600, 900};
  ViewState state;
  state.show(&model);
  auto const panel = make_live_panel();
  auto const now = frames.draw(state, *panel);
  EXPECT_THAT(now, HasSubstr("now:\t1.32 KiB\tin 3 blocks\n"));
  EXPECT_THAT(now, HasSubstr("b.cpp:2 g"));
  state.travel_to(250);
  auto const then = frames.draw(state, *panel);
  EXPECT_THAT(then, HasSubstr("500 B\tin 2 blocks\n"));
  state.travel_to(100);
  EXPECT_THAT(frames.draw(state, *panel), HasSubstr("300 B\tin 1 block\n"));
  EXPECT_GT(NullFrames::vertices(), 100);
}

TEST(LivePanel, of_a_selected_range_says_when_its_end_was) {
  auto model = follow::model_of(new_script());
  ASSERT_TRUE(model.catch_up());
  NullFrames frames{1'600, 900};
  ViewState state;
  state.show(&model);
  state.select(TickRange{.begin = 250, .end = 401});
  auto const panel = make_live_panel();
  EXPECT_THAT(frames.draw(state, *panel), HasSubstr("now:\t1.32 KiB"));
  // The box that asks for the leak list.
  auto const click = [&](bool is_down) {
    NullFrames::hold(0, is_down);
    return frames.draw(state, *panel, 2);
  };
  auto const box = frames.place_of("\u2610 only what is older than the selection");
  ASSERT_GT(box.width, 0);
  NullFrames::point_at(box.x + box.width / 2, box.y + box.height / 2);
  (void)click(false);
  (void)click(true);
  auto const leaks = click(false);
  EXPECT_THAT(leaks, HasSubstr("at +0.000 000 s:\t300 B"));
  EXPECT_THAT(leaks, testing::Not(HasSubstr("now:")));
}

}  // namespace
}  // namespace headroom::viewer
