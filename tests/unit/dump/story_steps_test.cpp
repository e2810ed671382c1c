// What a post-mortem says of a request that was being dealt with when it was written, and what is read back of it.
#include <array>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <headroom/follow.hpp>

#include "flight_builder.hpp"
#include "post_mortems.hpp"

namespace headroom::test {
namespace {

using flight::EventKind;
using flight::FlightBuilder;
using flight::HookSkip;
using flight::PolicyStep;
using nlohmann::json;

constexpr std::uint64_t kThread = 41;
constexpr std::uint64_t kRefused = std::uint64_t{1 * 64 + 1} << 40;  // over_budget (0), manager (1)
constexpr std::uint64_t kHook = std::uint64_t{7} << 28;

/// A flight file with one thread's records.
class Records {
public:
  Records()
      : file{{.main_records = 8,
              .main_block = 2,
              .journal_records = 32,
              .journal_block = 8,
              .live_slots = 16,
              .directory_entries = 32}} {
    file.put_name(2, flight::EntryKind::ledger, 0, 0, "manager");
    file.put_name(7, flight::EntryKind::hook, 2, 0, "drop cache");
  }
  void put(EventKind kind, std::array<std::uint64_t, 6> const& words, std::uint64_t flags = 0) {
    file.write(0, flight::Ring::journal,
               {(std::uint64_t{static_cast<std::uint8_t>(kind)} << 56) | flags, ticks_++, words[0], words[1], words[2], words[3],
                words[4], words[5]});
  }
  void refuse() {
    put(EventKind::refusal, {300, 300, 700, kRefused, 0, kThread});
    put(EventKind::refusal, {800, flight::kLimitEnforcing | 1'000, 900, 0, 40, kThread}, flight::kFlagContinues);
  }
  void skip(HookSkip why, std::uint64_t waited_ns) {
    put(EventKind::hook_skip, {40, 0, 200, kHook, static_cast<std::uint64_t>(why), (waited_ns << 32) | kThread});
  }
  void step(PolicyStep step, PolicyStep begins = PolicyStep::none, std::uint64_t ns = 0) {
    put(EventKind::policy, {static_cast<std::uint64_t>(step) | (3U << 8) | (static_cast<std::uint64_t>(begins) << 16), ns, 300,
                            kRefused, 0, kThread});
  }
  [[nodiscard]] std::string text() const { return post_mortem_text(file.view(), {.events_left_out = "to tell less"}); }

  FlightBuilder file;

private:
  std::uint64_t ticks_ = 1'000;
};

follow::FailureStory story_in(std::string const& text) {
  auto dump = read_post_mortem(text, "a test");
  EXPECT_TRUE(dump);
  follow::Model model{post_mortem_source(std::move(*dump), "a test")};
  EXPECT_TRUE(model.catch_up());
  auto stories = model.failures();
  EXPECT_EQ(stories.size(), 1U);
  return stories.empty() ? follow::FailureStory{} : stories[0];
}

TEST(PostMortemSteps, what_has_begun_and_not_ended_is_the_last_step) {
  Records records;
  records.refuse();
  records.step(PolicyStep::begun, PolicyStep::none);
  records.skip(HookSkip::elsewhere, 77);
  records.step(PolicyStep::begun, PolicyStep::waited);
  records.step(PolicyStep::waited, {}, 5'000);
  records.step(PolicyStep::begun, PolicyStep::checkpoint);
  auto const text = records.text();
  auto const failure = json::parse(text)["failure"];
  EXPECT_EQ(failure["hooks"], (json{{{"hook", 7},
                                     {"name", "drop cache"},
                                     {"shortfall_bytes", 40},
                                     {"overhead_bytes", 0},
                                     {"headroom_bytes", 200},
                                     {"duration_ns", 77},
                                     {"result", "ran_elsewhere"}}}));
  EXPECT_EQ(
      failure["policy_steps"],
      (json{{{"step", "waited"}, {"policy", "checkpoint_and_fail"}, {"duration_ns", 5'000}, {"bytes", 300}, {"granted", false}},
            {{"step", "begun"},
             {"begins", "checkpoint"},
             {"policy", "checkpoint_and_fail"},
             {"duration_ns", 0},
             {"bytes", 300},
             {"granted", false}}}));
  EXPECT_EQ(failure["outcome"], "unknown");

  auto const story = story_in(text);
  ASSERT_EQ(story.hooks.size(), 1U);
  EXPECT_EQ(story.hooks[0].result, follow::HookResult::elsewhere);
  EXPECT_EQ(story.hooks[0].duration_ns, 77U);
  ASSERT_EQ(story.policy.size(), 1U);
  EXPECT_EQ(story.policy[0].step, PolicyStep::waited);
  EXPECT_EQ(story.doing, PolicyStep::checkpoint);
  EXPECT_EQ(story.end, follow::FailureEnd::under_way);
}

TEST(PostMortemSteps, what_has_ended_leaves_only_its_own_record) {
  Records records;
  records.refuse();
  records.step(PolicyStep::begun, PolicyStep::none);
  records.skip(HookSkip::busy, 99);
  records.step(PolicyStep::begun, PolicyStep::checkpoint);
  records.step(PolicyStep::checkpoint, {}, 5'000);
  records.step(PolicyStep::gave_up, {}, 6'000);
  auto const text = records.text();
  auto const failure = json::parse(text)["failure"];
  EXPECT_EQ(failure["hooks"].at(0)["result"], "skipped_busy");
  EXPECT_EQ(failure["hooks"].at(0)["duration_ns"], 99);
  ASSERT_EQ(failure["policy_steps"].size(), 2U);
  EXPECT_EQ(failure["policy_steps"][0]["step"], "checkpoint");
  EXPECT_EQ(failure["policy_steps"][1]["step"], "gave_up");
  EXPECT_FALSE(failure["policy_steps"][0].contains("begins"));
  auto const story = story_in(text);
  EXPECT_FALSE(story.doing.has_value());
  EXPECT_EQ(story.end, follow::FailureEnd::gave_up);
  EXPECT_EQ(story.hooks.at(0).result, follow::HookResult::skipped_busy);
}

}  // namespace
}  // namespace headroom::test
