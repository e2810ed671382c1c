// Stories from records written by hand: in another order than they were written in, with gaps, too many of them, and hostile ones.
#include "follow/stories.hpp"
#include "story_events.hpp"

namespace headroom::follow {
namespace {

using flight::EventKind;
using flight::HookSkip;
using flight::PolicyStep;

std::vector<PolicyStep> steps_of(FailureStory const& story) {
  std::vector<PolicyStep> steps;
  for (auto const& step : story.policy) steps.push_back(step.step);
  return steps;
}

flight::Event in_lane(flight::Event event, std::uint32_t lane) {
  event.lane = lane;
  return event;
}

TEST(FollowStoryRecords, a_thread_that_changed_its_lane_is_told_in_its_order) {
  auto const script = std::make_shared<Script>();
  script->book();
  script->name(9, "spill");
  auto const refused = in_lane(refusal(*script, 100, 64), 50);
  // Lane 50 is read before the refusal gets there, and lane 60 after the hook began.
  script->put(in_lane(hook_begin(*script, 110, 64), 60));
  auto model = model_of(script);
  ASSERT_TRUE(model.poll());
  script->put(refused);
  script->put(in_lane(policy(*script, 140, PolicyStep::gave_up, 64, 30), 60));
  ASSERT_TRUE(model.catch_up());
  auto const stories = model.failures();
  ASSERT_EQ(stories.size(), 1U);
  EXPECT_EQ(stories[0].ticks, 100U);
  EXPECT_EQ(stories[0].hooks.size(), 1U);
  EXPECT_EQ(stories[0].end, FailureEnd::gave_up);
  EXPECT_FALSE(stories[0].incomplete);
}

TEST(FollowStoryRecords, a_gap_in_one_lane_leaves_the_stories_of_others_alone) {
  auto const script = std::make_shared<Script>();
  script->book();
  script->thread = 1;
  script->put(in_lane(refusal(*script, 100, 10), 3));
  script->put(in_lane(hook_begin(*script, 101, 10), 3));
  script->thread = 2;
  script->put(in_lane(refusal(*script, 102, 20), 4));
  script->put(in_lane(hook_begin(*script, 103, 20), 4));
  script->thread = 3;  // has no lane of its own: it may have gone on in any that is shared
  script->put(in_lane(refusal(*script, 104, 30), 55));
  script->put(in_lane(hook_begin(*script, 105, 30), 55));
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  script->gaps.push_back({.ring = flight::Ring::journal, .lane = 3, .first_missing = 6, .last_missing = 20});
  script->records = 21;
  script->thread = 1;
  script->put(in_lane(refusal(*script, 200, 11), 3));
  script->thread = 2;
  script->put(in_lane(hook_end(*script, 201, 98, 5), 4));
  script->put(in_lane(policy(*script, 202, PolicyStep::gave_up, 20, 99), 4));
  ASSERT_TRUE(model.catch_up());
  auto const stories = model.failures();
  ASSERT_EQ(stories.size(), 4U);
  EXPECT_EQ(stories[0].end, FailureEnd::under_way);
  EXPECT_TRUE(stories[0].incomplete);
  EXPECT_EQ(stories[1].end, FailureEnd::gave_up);
  EXPECT_EQ(stories[1].hooks.at(0).result, HookResult::ran);
  EXPECT_FALSE(stories[1].incomplete);
  EXPECT_TRUE(stories[2].incomplete);
  EXPECT_EQ(stories[3].end, FailureEnd::failed);
  EXPECT_FALSE(stories[3].incomplete) << "after the gap";
}

TEST(FollowStoryRecords, a_gap_that_nothing_follows_cuts_what_was_written_before_it_and_nothing_later) {
  auto const script = std::make_shared<Script>();
  script->book();
  script->put(refusal(*script, 100, 10));
  script->gaps.push_back({.ring = flight::Ring::journal, .lane = 0, .first_missing = 1, .last_missing = 9});
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  ASSERT_EQ(model.failures().size(), 1U);
  EXPECT_TRUE(model.failures()[0].incomplete);
  script->records = 10;
  script->put(refusal(*script, 200, 20));
  ASSERT_TRUE(model.catch_up());
  ASSERT_EQ(model.failures().size(), 2U);
  EXPECT_FALSE(model.failures()[1].incomplete);
}

TEST(FollowStoryRecords, a_request_that_its_thread_has_left_behind_is_not_touched_by_a_gap) {
  auto const script = std::make_shared<Script>();
  script->book();
  script->put(refusal(*script, 100, 10));
  script->put(script->event(EventKind::mark, 150));
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  script->gaps.push_back({.ring = flight::Ring::journal, .lane = 0, .first_missing = 2, .last_missing = 9});
  ASSERT_TRUE(model.catch_up());
  ASSERT_EQ(model.failures().size(), 1U);
  EXPECT_EQ(model.failures()[0].end, FailureEnd::failed);
  EXPECT_FALSE(model.failures()[0].incomplete);
}

// A pressure listener that asks for as much as the request around it, and is refused for the same reason.
TEST(FollowStoryRecords, requests_of_one_size_are_told_apart_by_how_long_a_step_took) {
  auto const script = std::make_shared<Script>();
  script->book();
  script->put(refusal(*script, 100'000, 64));
  script->put(refusal(*script, 1'000'000, 64));
  script->put(policy(*script, 2'000'000, PolicyStep::retried, 0, 1'800'000));
  script->put(policy(*script, 2'000'100, PolicyStep::gave_up, 64, 1'900'000));
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const stories = model.failures();
  ASSERT_EQ(stories.size(), 2U);
  EXPECT_EQ(steps_of(stories[0]), (std::vector{PolicyStep::retried, PolicyStep::gave_up}));
  EXPECT_EQ(stories[0].end, FailureEnd::gave_up);
  EXPECT_TRUE(stories[1].policy.empty());
  EXPECT_EQ(stories[1].end, FailureEnd::failed);
}

TEST(FollowStoryRecords, steps_go_to_the_request_of_their_ledger_and_their_error) {
  auto const script = std::make_shared<Script>();
  script->book(0);
  script->book(1);
  script->put(refusal(*script, 100, 64));
  script->ledger = 1;
  script->put(refusal(*script, 110, 64));
  script->put(refusal(*script, 120, 64, ErrorKind::device_out_of_memory, Layer::resource));
  script->put(policy(*script, 130, PolicyStep::gave_up, 64));
  script->ledger = 0;
  script->put(policy(*script, 140, PolicyStep::retried, 0));
  script->put(policy(*script, 150, PolicyStep::recovered, 64));
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const stories = model.failures();
  ASSERT_EQ(stories.size(), 3U);
  EXPECT_EQ(steps_of(stories[0]), (std::vector{PolicyStep::retried, PolicyStep::recovered}));
  EXPECT_EQ(steps_of(stories[1]), (std::vector{PolicyStep::gave_up}));
  EXPECT_TRUE(stories[2].policy.empty());
}

TEST(FollowStoryRecords, two_requests_in_a_row_that_met_different_errors_stay_two) {
  auto const script = std::make_shared<Script>();
  script->book();
  script->put(refusal(*script, 100, 64));
  script->put(refusal(*script, 110, 64, ErrorKind::driver, Layer::driver));
  script->put(refusal(*script, 120, 32));
  script->put(policy(*script, 130, PolicyStep::gave_up, 32));
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const stories = model.failures();
  ASSERT_EQ(stories.size(), 3U);
  EXPECT_FALSE(stories[0].later_kind.has_value());
  EXPECT_EQ(stories[1].kind, ErrorKind::driver);
  EXPECT_EQ(stories[2].end, FailureEnd::gave_up);
}

TEST(FollowStoryRecords, a_hook_that_runs_for_too_long_says_so_while_it_runs) {
  auto const script = std::make_shared<Script>();
  script->book();
  script->name(9, "spill");
  script->thread = 1;
  script->put(refusal(*script, 100, 64));
  script->put(hook_begin(*script, 110, 64));
  script->thread = 2;  // waited for it, and noticed
  script->put(refusal(*script, 120, 32));
  script->put(begun(*script, 121, PolicyStep::none, 32));
  auto overrun = script->event(EventKind::hook_overrun, 1200);
  overrun.words[2] = 1000;
  overrun.words[3] = 1090;
  overrun.words[4] = 110;
  overrun.words[5] |= std::uint64_t{9} << 28U;
  overrun.words[6] = 1;
  script->put(overrun);
  script->put(hook_skip(*script, 1201, HookSkip::busy, 1080));
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const stories = model.failures();
  ASSERT_EQ(stories.size(), 2U);
  auto const& runs = stories[0].hooks.at(0);
  EXPECT_EQ(runs.result, HookResult::running);
  EXPECT_TRUE(runs.overran);
  EXPECT_EQ(runs.limit_ns, 1000U);
  EXPECT_EQ(runs.duration_ns, 1090U);
  auto const& waited = stories[1].hooks.at(0);
  EXPECT_EQ(waited.result, HookResult::skipped_busy);
  EXPECT_EQ(waited.name, "spill");
  EXPECT_EQ(waited.begin_ticks, 121U);
  EXPECT_EQ(waited.duration_ns, 1080U);
  EXPECT_FALSE(waited.overran);
  EXPECT_FALSE(stories[1].doing.has_value());
}

TEST(FollowStoryRecords, the_last_few_can_be_asked_for) {
  auto const script = std::make_shared<Script>();
  script->book();
  for (std::uint64_t i = 0; i < 10; ++i) script->put(refusal(*script, 100 + i, 1 + i));
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const last = model.failures(3);
  ASSERT_EQ(last.size(), 3U);
  EXPECT_EQ(last[0].requested, 8U);
  EXPECT_EQ(last[2].requested, 10U);
  EXPECT_EQ(last[2].number, 10U);
  EXPECT_TRUE(model.failures(0).empty());
  EXPECT_EQ(model.failures(11).size(), 10U);
}

TEST(FollowStoryRecords, a_hook_whose_end_is_missing_does_not_swallow_what_comes_after_it) {
  auto const script = std::make_shared<Script>();
  script->book();
  script->put(refusal(*script, 100, 64));
  script->put(hook_begin(*script, 110, 64));
  // No lane was free for the end of the hook and of the request.
  script->put(refusal(*script, 200, 32));
  script->put(hook_begin(*script, 210, 32));
  script->put(refusal(*script, 215, 16));
  script->put(hook_end(*script, 220, 10, 7));
  script->put(policy(*script, 230, PolicyStep::gave_up, 32, 20));
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const stories = model.failures();
  ASSERT_EQ(stories.size(), 3U);
  EXPECT_EQ(stories[0].end, FailureEnd::under_way);
  EXPECT_TRUE(stories[0].incomplete);
  EXPECT_EQ(stories[0].hooks.at(0).result, HookResult::running);
  EXPECT_EQ(stories[1].end, FailureEnd::gave_up);
  EXPECT_FALSE(stories[1].inside_hook);
  EXPECT_FALSE(stories[1].incomplete);
  EXPECT_EQ(stories[1].hooks.at(0).freed, 7U);
  EXPECT_TRUE(stories[2].inside_hook);
}

// ── bounds ──

Stories all_stories() {
  return {100'000, [](std::uint32_t id) { return std::to_string(id); }, [](std::uint64_t ticks) { return ticks; }};
}

TEST(FollowStoryRecords, threads_of_which_all_is_told_make_room_for_others) {
  Script script;
  auto stories = all_stories();
  script.thread = 1;
  stories.add(refusal(script, 100, 64));
  stories.add(hook_begin(script, 110, 64));
  for (std::uint32_t thread = 2; thread < 20'000; ++thread) {
    script.thread = thread;
    stories.add(refusal(script, 200, 1));
    stories.add(hook_end(script, 201, 1, 1));
    stories.add(hook_skip(script, 202, HookSkip::large));
    stories.add(policy(script, 203, PolicyStep::gave_up, 1));
  }
  script.thread = 1;
  stories.add(hook_end(script, 300, 190, 5));
  stories.add(policy(script, 310, PolicyStep::recovered, 64));
  auto const all = stories.last(100'000);
  ASSERT_EQ(all.size(), 19'999U);
  EXPECT_EQ(all[0].end, FailureEnd::recovered);
  EXPECT_EQ(all[0].hooks.at(0).freed, 5U);
  EXPECT_EQ(all[19'998].end, FailureEnd::gave_up);
}

TEST(FollowStoryRecords, more_open_requests_than_can_be_followed_are_cut_and_say_so) {
  Script script;
  auto stories = all_stories();
  for (std::uint32_t thread = 1; thread <= 4097; ++thread) {
    script.thread = thread;
    stories.add(refusal(script, 200, 1));
    stories.add(begun(script, 201, PolicyStep::waited, 1));
  }
  auto const all = stories.last(100'000);
  ASSERT_EQ(all.size(), 4097U);
  EXPECT_TRUE(all[0].incomplete);
  EXPECT_TRUE(all[4095].incomplete);
  EXPECT_FALSE(all[4096].incomplete);
  EXPECT_EQ(all[4096].doing, PolicyStep::waited);
}

TEST(FollowStoryRecords, records_of_threads_without_a_refused_request_begin_nothing) {
  Script script;
  auto stories = all_stories();
  for (std::uint32_t thread = 1; thread < 10'000; ++thread) {
    script.thread = thread;
    stories.add(hook_end(script, 201, 1, 1));
    stories.add(hook_skip(script, 202, HookSkip::busy));
    stories.add(policy(script, 203, PolicyStep::retried, 1));
  }
  EXPECT_TRUE(stories.last(100'000).empty());
}

TEST(FollowStoryRecords, what_was_done_about_all_of_them_is_bounded_too) {
  Script script;
  auto stories = all_stories();
  for (std::uint64_t i = 0; i < 300; ++i) {
    stories.add(refusal(script, 100 + i * 1000, 1 + i));
    for (std::uint64_t turn = 0; turn < 300; ++turn) stories.add(hook_skip(script, 101 + i * 1000 + turn, HookSkip::large));
  }
  // 256 turns of each are kept, 65,536 in all.
  auto const all = stories.last(100'000);
  ASSERT_EQ(all.size(), 256U);
  EXPECT_EQ(all[0].requested, 45U);
  for (auto const& story : all) EXPECT_EQ(story.hooks.size(), 256U);
  EXPECT_EQ(stories.forgotten(), 44U);
}

}  // namespace
}  // namespace headroom::follow
