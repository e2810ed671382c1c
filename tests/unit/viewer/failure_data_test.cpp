// The failure inspector: one story, in figures.
#include "failure_data.hpp"

#include <gmock/gmock.h>

#include "null_frames.hpp"
#include "scripted_source.hpp"

namespace headroom::viewer {

std::unique_ptr<Panel> make_failure_panel();

namespace {

using follow::FailureEnd;
using follow::FailureStory;
using follow::Script;
using testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

/// Refused at 1,000 ns: 100 MiB, of 1,000 MiB 950 were claimed; a hook freed less than it said, then caches gave something back.
FailureStory story_of(std::uint64_t number, std::uint64_t ticks) {
  FailureStory story;
  story.number = number;
  story.ticks = ticks;
  story.end_ticks = ticks + 9'000'000;
  story.tag = "kv";
  story.requested = 100 * kMiB;
  story.kind = ErrorKind::over_budget;
  story.layer = Layer::manager;
  story.allocated = 900 * kMiB;
  story.claimed = 950 * kMiB;
  story.limit = 1'000 * kMiB;
  story.hooks = {{.name = "cache",
                  .begin_ticks = ticks + 2'000'000,
                  .estimate = 128 * kMiB,
                  .reported = 64 * kMiB,
                  .freed = 32 * kMiB,
                  .ledger_fell = -1,
                  .duration_ns = 3'000'000,
                  .limit_ns = 1'000'000,
                  .overran = true}};
  story.policy = {{.step = flight::PolicyStep::retried, .ticks = ticks + 1'000'000, .bytes = 8 * kMiB},
                  {.step = flight::PolicyStep::gave_up, .ticks = ticks + 9'000'000, .bytes = 100 * kMiB}};
  story.end = FailureEnd::gave_up;
  return story;
}

TEST(FailureDetails, has_hooks_and_steps_in_the_order_of_time_and_what_was_missing) {
  auto model = follow::model_of(std::make_shared<Script>());
  auto const details = failure_details(model, story_of(1, 1'000));
  ASSERT_EQ(details.acts.size(), 2U) << "that it gave up is the outcome";
  EXPECT_FALSE(details.acts[0].is_hook);
  EXPECT_EQ(details.acts[0].freed, 8 * kMiB);
  EXPECT_EQ(details.acts[0].after_ns, 1'000'000U);
  auto const& hook = details.acts[1];
  EXPECT_EQ(hook.name, "cache");
  EXPECT_EQ(hook.estimate, 128 * kMiB);
  EXPECT_EQ(hook.freed, 32 * kMiB);
  EXPECT_EQ(hook.ledger_fell, -1);
  EXPECT_TRUE(hook.is_bad);
  EXPECT_EQ(hook.result, "ran, longer than its limit");
  EXPECT_EQ(details.missing, 50 * kMiB);
  EXPECT_EQ(details.took_ns, 9'000'000U);
}

TEST(FailureDetails, number_the_thread_as_the_program_does) {
  auto const script = std::make_shared<Script>();
  script->thread_ids[7] = 140'213'000'000'213;
  auto model = follow::model_of(script);
  auto story = story_of(1, 1'000);
  story.thread = 7;
  EXPECT_EQ(failure_details(model, story).thread, 140'213'000'000'213U);
}

TEST(FailureDetails, a_hook_that_did_not_run_has_no_figures) {
  auto model = follow::model_of(std::make_shared<Script>());
  auto story = story_of(1, 1'000);
  story.hooks[0].result = follow::HookResult::skipped_large;
  story.hooks[0].overran = false;
  auto const details = failure_details(model, story);
  EXPECT_FALSE(details.acts[1].freed.has_value());
  EXPECT_EQ(details.acts[1].result, "passed over: needs too much itself");
}

TEST(FailureDetails, of_a_full_device_what_was_missing_is_the_devices) {
  auto model = follow::model_of(std::make_shared<Script>());
  auto story = story_of(1, 1'000);
  story.kind = ErrorKind::device_out_of_memory;
  story.device_free = 70 * kMiB;
  EXPECT_EQ(failure_details(model, story).missing, 30 * kMiB);
  story.device_free = 300 * kMiB;
  EXPECT_EQ(failure_details(model, story).missing, 0U) << "enough, but not in one piece";
}

TEST(InspectedFailure, is_the_chosen_one_or_the_last_before_the_cursor_or_the_newest) {
  std::vector<FailureStory> const stories{story_of(4, 100), story_of(5, 200), story_of(6, 300)};
  ViewState state;
  EXPECT_FALSE(inspected({}, state).has_value());
  state.clock = 1'000;
  EXPECT_EQ(inspected(stories, state), 2U);
  state.cursor = 250;
  EXPECT_EQ(inspected(stories, state), 1U);
  state.cursor.reset();
  state.is_paused = true;
  state.clock = 220;
  EXPECT_EQ(inspected(stories, state), 1U) << "the newest came during the pause";
  state.is_paused = false;
  state.cursor = 99;
  EXPECT_FALSE(inspected(stories, state).has_value()) << "none had failed by then";
  state.failure = 4;
  EXPECT_FALSE(inspected(stories, state).has_value()) << "another moment is looked at";
  state.cursor = 100;
  EXPECT_EQ(inspected(stories, state), 0U);
  state.cursor.reset();
  EXPECT_EQ(inspected(stories, state), 0U);
  state.failure = 77;  // forgotten
  state.cursor = 250;
  EXPECT_EQ(inspected(stories, state), 1U);
}

TEST(FailurePanel, of_a_recorded_failure_tells_the_request_and_who_held_the_memory) {
  auto model = follow::Model::open_history(HEADROOM_TEST_DATA "/oom_batch.csv.xz").value();
  ASSERT_TRUE(model.catch_up());
  ASSERT_FALSE(model.failures().empty());
  NullFrames frames{900, 900};
  ViewState state;
  state.show(&model);
  auto const panel = make_failure_panel();
  auto const text = frames.draw(state, *panel);
  auto const story = model.failures().back();
  EXPECT_THAT(text, HasSubstr("failure " + std::to_string(model.failures().size()) + " of "));
  EXPECT_THAT(text, HasSubstr(std::to_string(story.thread)));
  EXPECT_THAT(text, HasSubstr("Who held the memory then"));
  state.travel_to(model.first_ticks());
  EXPECT_THAT(frames.draw(state, *panel, 2), HasSubstr("No request had failed by this moment"));
}

TEST(FailurePanel, without_failures_says_so) {
  auto model = follow::Model::open_history(HEADROOM_TEST_DATA "/resnet.csv.xz").value();
  ASSERT_TRUE(model.catch_up());
  NullFrames frames{900, 900};
  ViewState state;
  state.show(&model);
  EXPECT_THAT(frames.draw(state, *make_failure_panel()), HasSubstr("No request has failed"));
}

}  // namespace
}  // namespace headroom::viewer
