// Hook lanes: runs, what they freed, and what made them run.
#include "hook_lanes.hpp"

#include <gmock/gmock.h>

#include "null_frames.hpp"
#include "scripted_source.hpp"

namespace headroom::viewer {

std::unique_ptr<Panel> make_hook_panel();

namespace {

using flight::EventKind;
using follow::Script;
using testing::HasSubstr;

constexpr std::uint32_t kHook = 9;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kRequested = 10 * kMiB;

std::shared_ptr<Script> new_script() {
  auto script = std::make_shared<Script>();
  script->name(5, "weights");
  script->name(kHook, "cache");
  script->allocate(100, 0x1000, 300, 5);
  return script;
}

flight::Event of_hook(Script& script, EventKind kind, std::uint64_t ticks) {
  auto event = script.event(kind, ticks);
  event.words[5] |= std::uint64_t{kHook} << 28U;
  return event;
}

flight::Event begin_of(Script& script, std::uint64_t ticks) {
  auto begin = of_hook(script, EventKind::hook_begin, ticks);
  begin.words[2] = 5 * kMiB;
  begin.words[3] = 8 * kMiB;
  begin.words[6] = kRequested;
  return begin;
}

/// Two records, as a guard writes them.
void put_end(Script& script, std::uint64_t ticks, std::uint64_t ns, std::uint64_t freed) {
  auto end = of_hook(script, EventKind::hook_end, ticks);
  end.words[flight::HookEnd::kReported] = 2 * freed;
  end.words[flight::HookEnd::kNs] = ns;
  end.words[flight::HookEnd::kFreed] = freed;
  script.put(end);
  auto tail = of_hook(script, EventKind::hook_end, ticks);
  tail.words[0] |= flight::kFlagContinues;
  tail.words[flight::HookEndTail::kEstimate] = 4 * freed;
  tail.words[flight::HookEndTail::kLimitNs] = 1'000;
  script.put(tail);
}

void put_refusal(Script& script, std::uint64_t ticks) {
  auto head = script.event(EventKind::refusal, ticks, 5);
  head.words[2] = head.words[3] = kRequested;
  head.words[5] |= std::uint64_t{64 + static_cast<unsigned>(Layer::manager)} << 40U;  // over_budget
  script.put(head);
  auto tail = script.event(EventKind::refusal, ticks);
  tail.words[0] |= flight::kFlagContinues;
  script.put(tail);
}

TEST(HookLanes, a_run_about_a_failure_points_to_it) {
  auto const script = new_script();
  put_refusal(*script, 1'000);
  script->put(begin_of(*script, 1'100));
  put_end(*script, 1'600, 500, 2 * kMiB);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const lanes = hook_lanes(model, 0);
  ASSERT_EQ(lanes.lanes.size(), 1U);
  auto const& lane = lanes.lanes[0];
  EXPECT_EQ(lane.name, "cache");
  ASSERT_EQ(lane.slices.size(), 1U) << "told by its story, and not once more by the journal";
  EXPECT_EQ(lane.slices[0].begin, 1'100U);
  EXPECT_EQ(lane.slices[0].end, 1'600U);
  EXPECT_EQ(lane.slices[0].turn.freed, 2 * kMiB);
  EXPECT_EQ(lane.slices[0].cause, HookCause::failure);
  EXPECT_EQ(lane.slices[0].cause_ticks, 1'000U);
  EXPECT_EQ(lane.freed, 2 * kMiB);
  EXPECT_EQ(lane.runs, 1U);
  ASSERT_EQ(lanes.failures.size(), 1U);
  EXPECT_EQ(lanes.failures[0], 1'000U);
  EXPECT_TRUE(hook_lanes(model, 1).lanes.empty()) << "another ledger";
  script->thread_ids[7] = 140'213'000'000'213;
  EXPECT_EQ(hook_lanes(model, 0).lanes[0].slices[0].thread, 140'213'000'000'213U) << "as the program numbers it";
}

TEST(HookLanes, a_run_whose_failure_is_lost_points_to_the_last_rise_of_pressure) {
  auto const script = new_script();
  auto pressure = script->event(EventKind::pressure, 900);
  pressure.words[2] = 1 | (std::uint64_t{4} << 8U);
  script->put(pressure);
  auto fall = script->event(EventKind::pressure, 950);
  fall.words[2] = 4 | (std::uint64_t{3} << 8U);
  script->put(fall);
  script->put(begin_of(*script, 1'100));
  put_end(*script, 1'600, 500, kMiB);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const lanes = hook_lanes(model, 0);
  ASSERT_EQ(lanes.lanes.size(), 1U);
  ASSERT_EQ(lanes.lanes[0].slices.size(), 1U);
  auto const& slice = lanes.lanes[0].slices[0];
  EXPECT_EQ(slice.cause, HookCause::pressure);
  EXPECT_EQ(slice.cause_ticks, 900U) << "the fall after it made nothing run";
  EXPECT_EQ(slice.end, 1'600U);
  EXPECT_EQ(slice.turn.result, follow::HookResult::ran);
}

HookLane lane_of(std::vector<std::pair<std::uint64_t, std::uint64_t>> const& runs) {
  HookLane lane;
  for (auto const& [begin, end] : runs) {
    HookSlice slice{.begin = begin, .end = end};
    slice.turn.freed = 10;
    lane.slices.push_back(slice);
  }
  return lane;
}

TEST(LaneCells, of_long_runs_are_to_scale_and_cut_at_the_edges) {
  auto const cells = cells_of(lane_of({{0, 150}, {200, 300}, {900, 950}}), {.begin = 100, .end = 500}, 400);
  ASSERT_EQ(cells.size(), 2U);
  EXPECT_FLOAT_EQ(cells[0].begin, 0);
  EXPECT_FLOAT_EQ(cells[0].end, 50);
  EXPECT_FLOAT_EQ(cells[1].begin, 100);
  EXPECT_FLOAT_EQ(cells[1].end, 200);
  EXPECT_EQ(cells[1].first, 1U);
}

TEST(LaneCells, are_to_scale_however_long_the_machine_has_run) {
  constexpr std::uint64_t kBegin = (std::uint64_t{1} << 60U) + 100;  // doubles are 256 apart there
  auto const cells = cells_of(lane_of({{kBegin + 10, kBegin + 30}}), {.begin = kBegin, .end = kBegin + 100}, 400);
  ASSERT_EQ(cells.size(), 1U);
  EXPECT_FLOAT_EQ(cells[0].begin, 40);
  EXPECT_FLOAT_EQ(cells[0].end, 120);
}

TEST(LaneCells, are_never_more_than_pixels) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;
  for (std::uint64_t i = 0; i < 100'000; ++i) runs.emplace_back(i * 10, i * 10 + 1);
  auto const cells = cells_of(lane_of(runs), {.begin = 0, .end = 1'000'000}, 500);
  EXPECT_LE(cells.size(), 500U);
  std::size_t count = 0;
  std::uint64_t freed = 0;
  for (auto const& cell : cells) {
    count += cell.count;
    freed += cell.freed;
  }
  EXPECT_EQ(count, 100'000U);
  EXPECT_EQ(freed, 1'000'000U);
}

TEST(HookPanel, shows_lanes_with_what_was_really_freed) {
  auto const script = new_script();
  put_refusal(*script, 1'000);
  script->put(begin_of(*script, 1'100));
  put_end(*script, 1'600, 500, 2 * kMiB);
  script->allocate(2'000, 0x2000, 300, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  NullFrames frames{1'200, 600};
  ViewState state;
  state.show(&model);
  auto const text = frames.draw(state, *make_hook_panel());
  EXPECT_THAT(text, HasSubstr("cache"));
  EXPECT_THAT(text, HasSubstr("freed 2 MiB in 1"));
}

TEST(HookPanel, of_a_history_says_how_to_get_hooks) {
  auto model = follow::Model::open_history(HEADROOM_TEST_DATA "/resnet.csv.xz").value();
  ASSERT_TRUE(model.catch_up());
  NullFrames frames{1'200, 600};
  ViewState state;
  state.show(&model);
  EXPECT_THAT(frames.draw(state, *make_hook_panel()), HasSubstr("A recorded history has no hooks"));
}

}  // namespace
}  // namespace headroom::viewer
