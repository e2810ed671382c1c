// Failures with their whole story, from the journal of real guards and from events written by hand.
#include <headroom/guard_builder.hpp>

#include "base/clock.hpp"
#include "guards.hpp"
#include "story_events.hpp"

namespace headroom::follow {
namespace {

using flight::EventKind;
using flight::PolicyStep;
using test::Bytes;
using test::Cache;
using test::host_guard;
using test::take;

TEST(FollowStories, a_request_that_a_hook_could_not_save_is_told_whole) {
  auto const since = ticks_now();
  auto host = host_guard(2048);
  auto const held = take(host.guard, 1536);
  Cache cache;
  cache.blocks.push_back(take(host.guard, 200));
  ASSERT_TRUE(host.guard.register_hook(
      {.name = "drop the cache", .priority = 1, .estimated_free_bytes = 300, .callback = [&](HookContext const&) {
         return cache.free_one(host.guard) + 50;
       }}));
  ASSERT_TRUE(host.guard.register_hook(
      {.name = "too large", .priority = 2, .execution_overhead_bytes = 1'000'000, .callback = [](HookContext const&) {
         return 0U;
       }}));
  auto const refused = host.guard.safe_alloc_with_hooks<std::byte>(1000);
  ASSERT_FALSE(refused);

  auto const stories = stories_of(host.guard, since);
  ASSERT_EQ(stories.size(), 1U);
  auto const& story = stories[0];
  EXPECT_EQ(story.requested, 1000U);
  EXPECT_EQ(story.kind, ErrorKind::over_budget);
  EXPECT_EQ(story.layer, Layer::manager);
  EXPECT_EQ(story.claimed, 1736U);
  EXPECT_EQ(story.allocated, 1736U);
  EXPECT_EQ(story.limit, 2048U);
  EXPECT_EQ(story.peak, 1736U);
  EXPECT_EQ(story.unspent, 0U);
  EXPECT_TRUE(story.enforcing);
  EXPECT_EQ(story.end, FailureEnd::gave_up);
  EXPECT_THAT(story.site, testing::HasSubstr("stories_test.cpp"));
  // The cache freed something, so that there was a second round.
  ASSERT_GE(story.hooks.size(), 2U);
  EXPECT_EQ(story.hooks[0].name, "drop the cache");
  EXPECT_EQ(story.hooks[0].result, HookResult::ran);
  EXPECT_EQ(story.hooks[0].shortfall, 688U);
  EXPECT_EQ(story.hooks[0].estimate, 300U);
  EXPECT_EQ(story.hooks[0].reported, 250U);
  EXPECT_EQ(story.hooks[0].freed, 200U);
  EXPECT_EQ(story.hooks[0].ledger_fell, 200);
  EXPECT_EQ(story.hooks[1].name, "too large");
  EXPECT_EQ(story.hooks[1].result, HookResult::skipped_large);
  EXPECT_EQ(story.hooks[1].overhead, 1'000'000U);
  ASSERT_FALSE(story.policy.empty());
  EXPECT_EQ(story.policy.back().step, PolicyStep::gave_up);
  EXPECT_EQ(story.policy.back().bytes, 1000U);
}

TEST(FollowStories, a_request_that_a_hook_saved_recovered) {
  auto const since = ticks_now();
  auto host = host_guard(2048);
  Cache cache;
  cache.blocks.push_back(take(host.guard, 2000));
  ASSERT_TRUE(
      host.guard.register_hook({.name = "cache", .callback = [&](HookContext const&) { return cache.free_one(host.guard); }}));
  auto const granted = host.guard.safe_alloc_with_hooks<std::byte>(500);
  ASSERT_TRUE(granted);
  auto const stories = stories_of(host.guard, since);
  ASSERT_EQ(stories.size(), 1U);
  EXPECT_EQ(stories[0].end, FailureEnd::recovered);
  ASSERT_EQ(stories[0].hooks.size(), 1U);
  EXPECT_EQ(stories[0].hooks[0].freed, 2000U);
  EXPECT_GE(stories[0].end_ticks, stories[0].ticks);
}

TEST(FollowStories, what_a_hook_was_refused_is_a_story_of_its_own_inside) {
  auto const since = ticks_now();
  auto host = host_guard(2048);
  auto held = take(host.guard, 2000);
  ASSERT_TRUE(host.guard.register_hook({.name = "allocates", .callback = [&](HookContext const&) {
                                          EXPECT_FALSE(host.guard.safe_alloc<std::byte>(77));
                                          EXPECT_TRUE(host.guard.free(std::move(held)));
                                          return std::uint64_t{2000};
                                        }}));
  auto const granted = host.guard.safe_alloc_with_hooks<std::byte>(500);
  ASSERT_TRUE(granted);
  auto const stories = stories_of(host.guard, since);
  ASSERT_EQ(stories.size(), 2U);
  EXPECT_EQ(stories[0].requested, 500U);
  EXPECT_EQ(stories[0].end, FailureEnd::recovered);
  EXPECT_FALSE(stories[0].inside_hook);
  EXPECT_EQ(stories[0].hooks.at(0).freed, 2000U);
  EXPECT_EQ(stories[1].requested, 77U);
  EXPECT_TRUE(stories[1].inside_hook);
  EXPECT_EQ(stories[1].end, FailureEnd::failed);
}

TEST(FollowStories, a_plain_managers_refusal_failed_at_once) {
  auto const since = ticks_now();
  auto host = host_guard(100);
  EXPECT_FALSE(host.guard.manager().alloc<std::byte>(101));
  auto const stories = stories_of(host.guard, since);
  ASSERT_EQ(stories.size(), 1U);
  EXPECT_EQ(stories[0].end, FailureEnd::failed);
  EXPECT_TRUE(stories[0].hooks.empty());
}

TEST(FollowStories, a_reservation_that_was_given_is_a_step) {
  auto const since = ticks_now();
  auto resource = HostResource::create({.touch_memory = false}).value();
  auto guard = MemoryGuardBuilder(host_device_over(resource).value())
                   .budget_bytes(2048)
                   .reserve_bytes(512)
                   .count_reservation_against_budget(true)
                   .release_reservation_on_oom(true)
                   .build()
                   .value();
  auto const held = take(guard, 1536);
  auto const granted = guard.safe_alloc_with_hooks<std::byte>(400);
  ASSERT_TRUE(granted);
  auto const stories = stories_of(guard, since);
  ASSERT_EQ(stories.size(), 1U);
  EXPECT_EQ(stories[0].end, FailureEnd::recovered);
  ASSERT_FALSE(stories[0].policy.empty());
  EXPECT_EQ(stories[0].policy[0].step, PolicyStep::reservation_given);
  EXPECT_EQ(stories[0].policy[0].bytes, 512U);
}

TEST(FollowStories, a_process_that_died_in_a_hook_leaves_it_running) {
  auto const script = std::make_shared<Script>();
  script->book();
  script->name(9, "spill");
  script->put(refusal(*script, 100, 64));
  auto begin = script->event(EventKind::hook_begin, 110);
  begin.words[3] = 50;
  begin.words[5] |= std::uint64_t{9} << 28U;
  begin.words[6] = 64;
  script->put(begin);
  script->ended = true;
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const stories = model.failures();
  ASSERT_EQ(stories.size(), 1U);
  EXPECT_EQ(stories[0].end, FailureEnd::under_way);
  EXPECT_FALSE(stories[0].claimed.has_value()) << "its second record is missing";
  ASSERT_EQ(stories[0].hooks.size(), 1U);
  EXPECT_EQ(stories[0].hooks[0].name, "spill");
  EXPECT_EQ(stories[0].hooks[0].result, HookResult::running);
  EXPECT_EQ(stories[0].kind, ErrorKind::over_budget);
}

TEST(FollowStories, threads_do_not_mix_and_lost_records_end_what_was_open) {
  auto const script = std::make_shared<Script>();
  script->book();
  script->thread = 1;
  script->put(refusal(*script, 100, 10));
  script->thread = 2;
  script->put(refusal(*script, 101, 20));
  auto gave_up = [&](std::uint64_t ticks, std::uint64_t bytes) {
    auto event = script->event(EventKind::policy, ticks);
    event.words[2] = static_cast<std::uint64_t>(PolicyStep::gave_up);
    event.words[4] = bytes;
    return event;
  };
  script->put(gave_up(120, 20));
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  script->gaps.push_back({.ring = flight::Ring::journal, .lane = 0, .first_missing = 3, .last_missing = 6});
  script->records = 7;
  script->thread = 1;
  script->put(gave_up(200, 10));
  ASSERT_TRUE(model.catch_up());
  auto const stories = model.failures();
  ASSERT_EQ(stories.size(), 3U);
  EXPECT_EQ(stories[0].end, FailureEnd::under_way) << "what was done about it may be among what is lost";
  EXPECT_TRUE(stories[0].incomplete);
  EXPECT_EQ(stories[1].end, FailureEnd::gave_up);
  EXPECT_FALSE(stories[1].incomplete);
  EXPECT_EQ(stories[1].thread, 2U);
  EXPECT_EQ(stories[2].requested, 10U) << "its beginning may be the first one, or was lost: nobody knows";
  EXPECT_FALSE(stories[2].claimed.has_value());
  EXPECT_TRUE(stories[2].incomplete);
}

TEST(FollowStories, the_oldest_are_forgotten_and_counted) {
  auto const script = std::make_shared<Script>();
  script->book();
  for (std::uint64_t i = 0; i < 30; ++i) script->put(refusal(*script, 100 + i, 1 + i));
  auto model = model_of(script, {.failures = 10});
  ASSERT_TRUE(model.catch_up());
  auto const stories = model.failures();
  ASSERT_EQ(stories.size(), 10U);
  EXPECT_EQ(stories[0].requested, 21U);
  EXPECT_EQ(model.losses().forgotten_failures, 20U);
}

}  // namespace
}  // namespace headroom::follow
