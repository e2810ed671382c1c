// Failures in words: who said no, what was done, what came of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/follow_words.hpp>

namespace headroom::follow {
namespace {

using flight::PolicyStep;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kMs = 1'000'000;

/// A tick is a microsecond here.
std::uint64_t microseconds(std::uint64_t ticks) { return ticks * 1'000; }

FailureWords words_of(FailureStory const& story) { return failure_in_words(story, microseconds); }

FailureStory over_budget() {
  FailureStory story;
  story.ticks = story.end_ticks = 1'000;
  story.ledger_name = "model";
  story.tag = "kv";
  story.requested = 100 * kMiB;
  story.kind = ErrorKind::over_budget;
  story.layer = Layer::manager;
  story.claimed = 950 * kMiB;
  story.limit = 1000 * kMiB;
  return story;
}

TEST(FailureInWords, that_failed_at_once) {
  const auto words = words_of(over_budget());
  EXPECT_EQ(words.what,
            "100 MiB for 'kv' would have gone over the budget of 'model', of whose 1000 MiB there were 950 MiB claimed");
  EXPECT_THAT(words.done, IsEmpty());
  EXPECT_EQ(words.outcome, "failed at once: nothing was tried");
}

TEST(FailureInWords, says_whose_budget_it_was_as_far_as_that_is_known) {
  auto story = over_budget();
  story.tag.clear();
  story.claimed.reset();
  story.layer = Layer::device_account;
  EXPECT_EQ(words_of(story).what, "100 MiB would have gone over the budget of the device");
  story.layer = Layer::manager;
  story.ledger_name.clear();
  EXPECT_EQ(words_of(story).what, "100 MiB would have gone over its budget");
  story.end = FailureEnd::observed;
  EXPECT_EQ(words_of(story).what, "100 MiB went over its budget");
  EXPECT_EQ(words_of(story).outcome, "let pass: the budget only observes");
}

TEST(FailureInWords, of_a_device_and_of_others) {
  auto story = over_budget();
  story.kind = ErrorKind::device_out_of_memory;
  story.layer = Layer::driver;
  EXPECT_EQ(words_of(story).what, "100 MiB for 'kv' was more than the device had");
  story.device_free = 3 * kMiB;
  EXPECT_EQ(words_of(story).what, "100 MiB for 'kv' was more than the device had, with 3 MiB free");
  story.kind = ErrorKind::driver;
  story.device_code = 700;
  EXPECT_EQ(words_of(story).what, "100 MiB for 'kv' was refused by the driver: driver (code 700)");
  story.kind.reset();
  story.inside_hook = true;
  EXPECT_EQ(words_of(story).what, "100 MiB for 'kv', asked by a hook or callback, was refused");
}

TEST(FailureInWords, tells_what_each_hook_did) {
  auto story = over_budget();
  story.end = FailureEnd::gave_up;
  story.end_ticks = 3'001'000;  // 3 s later
  story.hooks = {
      {.name = "a",
       .result = HookResult::ran,
       .begin_ticks = 1,
       .estimate = 100 * kMiB,
       .reported = 50 * kMiB,
       .freed = 50 * kMiB,
       .duration_ns = 12 * kMs},
      {.name = "b", .result = HookResult::ran, .begin_ticks = 2, .reported = 200 * kMiB, .freed = 50 * kMiB},
      {.name = "c", .result = HookResult::ran, .begin_ticks = 3, .reported = 7, .freed = 0},
      {.name = "d", .result = HookResult::ran, .begin_ticks = 4},
      {.name = "e", .result = HookResult::ran, .begin_ticks = 5, .ledger_fell = 2 * static_cast<std::int64_t>(kMiB)},
      {.name = "f", .result = HookResult::threw, .begin_ticks = 6, .duration_ns = 2'000 * kMs, .overran = true},
      {.name = "g", .result = HookResult::skipped_large, .begin_ticks = 7, .overhead = 4 * kMiB},
      {.name = "h", .result = HookResult::skipped_busy, .begin_ticks = 8, .duration_ns = 1'000 * kMs},
      {.name = "i", .result = HookResult::elsewhere, .begin_ticks = 9, .duration_ns = 20 * kMs},
      {.name = "j", .result = HookResult::running, .begin_ticks = 10},
  };
  const auto words = words_of(story);
  EXPECT_THAT(words.done,
              ElementsAre("hook 'a' freed 50 MiB of the 100 MiB it had expected (12 ms)",
                          "hook 'b' said that it freed 200 MiB, and really freed 50 MiB",
                          "hook 'c' said that it freed 7 B, but freed nothing", "hook 'd' ran and freed nothing",
                          "hook 'e' freed nothing on its own thread, but 2 MiB came back meanwhile",
                          "hook 'f' ran and freed nothing (2.0 s), longer than its limit, and ended with an exception",
                          "hook 'g' was passed over: it needs 4 MiB to run, which was not there",
                          "hook 'h' was busy on another thread, and was not waited for any longer (1.0 s)",
                          "hook 'i' ran on another thread, and that run was waited for (20 ms)",
                          "hook 'j' began to run, and its end is not recorded"));
  EXPECT_EQ(words.outcome, "failed for good after 3.0 s");
}

TEST(FailureInWords, tells_hooks_and_the_policys_steps_in_the_order_of_time) {
  auto story = over_budget();
  story.end = FailureEnd::recovered;
  story.end_ticks = 45'000;
  story.policy = {
      {.step = PolicyStep::begun, .ticks = 10},
      {.step = PolicyStep::waited, .ticks = 30, .duration_ns = 40 * kMs},
      {.step = PolicyStep::retried, .ticks = 15, .bytes = 0},
      {.step = PolicyStep::retried, .ticks = 20, .bytes = 4 * kMiB},
      {.step = PolicyStep::reservation_given, .ticks = 40, .bytes = 64 * kMiB},
      {.step = PolicyStep::checkpoint, .ticks = 50, .duration_ns = 7 * kMs},
      {.step = PolicyStep::checkpoint_shared, .ticks = 60},
      {.step = PolicyStep::checkpoint_failed, .ticks = 70},
      {.step = PolicyStep::recovered, .ticks = 80},
  };
  story.hooks = {{.name = "late", .result = HookResult::ran, .begin_ticks = 25, .reported = kMiB, .freed = kMiB}};
  story.later_kind = ErrorKind::driver;
  story.later_code = 2;
  const auto words = words_of(story);
  EXPECT_THAT(
      words.done,
      ElementsAre("pending frees and caches were looked for, of which nothing came back, and it was tried again",
                  "4 MiB came back from pending frees and caches, and it was tried again", "hook 'late' freed 1 MiB",
                  "it waited for room (40 ms)", "the guard gave up its reservation of 64 MiB",
                  "the checkpoint callback ran (7 ms)", "the checkpoint callback ran once for this and another thread's failure",
                  "the checkpoint callback threw an exception", "a later try met something else: driver (code 2)"));
  EXPECT_EQ(words.outcome, "granted in the end after 44 ms");
}

TEST(FailureInWords, under_way_says_what_it_waits_for) {
  auto story = over_budget();
  story.end = FailureEnd::under_way;
  EXPECT_EQ(words_of(story).outcome, "still being dealt with");
  story.doing = PolicyStep::waited;
  EXPECT_EQ(words_of(story).outcome, "waiting for room in the budget");
  story.doing = PolicyStep::checkpoint;
  EXPECT_EQ(words_of(story).outcome, "the checkpoint callback is running");
  story.doing = PolicyStep::none;
  EXPECT_EQ(words_of(story).outcome, "waiting for another thread's run of a hook");
  story.incomplete = true;
  EXPECT_EQ(words_of(story).outcome, "what became of it is not known: records of its thread are missing");
}

TEST(DurationInWords, has_two_units_at_most_and_is_never_rounded_up) {
  EXPECT_EQ(duration_in_words(999), "0 µs");
  EXPECT_EQ(duration_in_words(999'999), "999 µs");
  EXPECT_EQ(duration_in_words(999'999'999), "999 ms");
  EXPECT_EQ(duration_in_words(3'299'999'999), "3.2 s");
  EXPECT_EQ(duration_in_words(59'999'999'999), "59.9 s");
  EXPECT_EQ(duration_in_words(250'000'000'000), "4 min 10 s");
  EXPECT_EQ(duration_in_words(11'100'000'000'000), "3 h 5 min");
  EXPECT_EQ(duration_in_words(187'200'000'000'000), "2 d 4 h");
}

}  // namespace
}  // namespace headroom::follow
