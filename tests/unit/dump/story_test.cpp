// One request's story among those that its own callbacks and later tries leave in the same ring.
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "flight_builder.hpp"
#include "post_mortems.hpp"

namespace headroom::test {
namespace {

using flight::EventKind;
using flight::FlightBuilder;
using flight::PolicyStep;
using flight::Ring;
using nlohmann::json;

constexpr std::uint64_t kThread = 41;
constexpr std::uint32_t kOverBudget = 1 * 64 + 1;  // over_budget (0), manager (1)
constexpr std::uint32_t kDriver = (5 + 1) * 64 + 5;
static_assert(static_cast<int>(ErrorKind::driver) == 5 && static_cast<int>(Layer::driver) == 5);

/// The failure of which a guard tells.
struct Known {
  explicit Known(std::uint64_t bytes, std::uint32_t site = 3)
      : error{make_error(ErrorKind::over_budget, Layer::manager, "no")},
        failure{.error = error, .ledger_cell = 0, .tag = 6, .site = site, .thread = kThread} {
    error.requested = bytes;
  }
  Known(Known const&) = delete;
  Known& operator=(Known const&) = delete;
  Error error;
  dump::KnownFailure failure;
};

/// A journal written by hand: each record a hundred ticks (ns) after the one before.
class Journal {
public:
  Journal() {
    file.put_name(2, flight::EntryKind::ledger, 0, 0, "manager");
    file.put_name(7, flight::EntryKind::hook, 2, 0, "cache");
  }
  std::uint64_t refuse(std::uint64_t bytes, std::uint32_t result = kOverBudget, std::uint64_t site = 3) {
    const std::uint64_t number = put(EventKind::refusal, 0, {bytes, bytes, 700, subject(result), site, kThread});
    put(EventKind::refusal, flight::kFlagContinues, {800, flight::kLimitEnforcing | 1'000, 900, 0, 40, kThread});
    return number;
  }
  void hook_begins(std::uint64_t requested) { put(EventKind::hook_begin, 0, {100, 250, 200, kHook, requested, kThread}); }
  void hook_ends(std::uint64_t freed) { put(EventKind::hook_end, 0, {freed, 50, freed, kHook, 0, kThread}); }
  /// A step that began just behind the record `since`.
  void step(PolicyStep step, std::uint64_t bytes, std::uint64_t since, std::uint32_t result = kOverBudget) {
    put(EventKind::policy, 0,
        {static_cast<std::uint64_t>(step) | (3U << 8), (next_ - since) * 100 - 50, bytes, subject(result), 0, kThread});
  }
  [[nodiscard]] json failure() const { return json::parse(post_mortem_text(file.view()))["failure"]; }
  [[nodiscard]] json failure(Known const& known) const {
    return json::parse(post_mortem_text(file.view(), {.failure = &known.failure}))["failure"];
  }
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }

  FlightBuilder file{{.main_records = 8,
                      .main_block = 2,
                      .journal_records = 256,
                      .journal_block = 8,
                      .live_slots = 16,
                      .directory_entries = 32}};

private:
  static constexpr std::uint64_t kHook = std::uint64_t{7} << 28;
  static std::uint64_t subject(std::uint32_t result) { return (std::uint64_t{result} << 40) | 6; }
  std::uint64_t put(EventKind kind, std::uint64_t flags, std::array<std::uint64_t, 6> const& words) {
    file.write(0, Ring::journal,
               {(std::uint64_t{static_cast<std::uint8_t>(kind)} << 56) | flags, 10'000 + 100 * next_, words[0], words[1],
                words[2], words[3], words[4], words[5]});
    return next_++;
  }
  std::uint64_t next_ = 0;
};

std::vector<std::string> steps_of(json const& failure) {
  std::vector<std::string> steps;
  for (auto const& step : failure["policy_steps"]) steps.push_back(step["step"]);
  return steps;
}

void expect_story(json const& failure, std::uint64_t number, std::vector<std::string> const& steps, std::size_t hooks) {
  EXPECT_EQ(failure["journal_number"], number);
  EXPECT_EQ(steps_of(failure), steps);
  EXPECT_EQ(failure["hooks"].size(), hooks);
  EXPECT_EQ(failure["outcome"], "failed");
}

const std::vector<std::string> kCalledBack{"checkpoint", "gave_up"};

TEST(Story, what_the_checkpoint_asks_for_in_vain_is_no_end) {
  Journal journal;
  const auto outer = journal.refuse(300);
  journal.refuse(70);
  journal.step(PolicyStep::checkpoint, 300, outer + 1);
  journal.step(PolicyStep::gave_up, 300, outer + 1);
  expect_story(journal.failure(Known{300}), outer, kCalledBack, 0);
  const auto found = journal.failure();
  EXPECT_EQ(found["requested_bytes"], 300);
  expect_story(found, outer, kCalledBack, 0);
}

TEST(Story, what_the_checkpoint_asks_for_may_have_the_same_size) {
  Journal journal;
  journal.refuse(300);  // an older one, for which nothing could be tried
  const auto outer = journal.refuse(300);
  journal.refuse(300, kOverBudget, 9);
  journal.refuse(300);  // even from the same place
  journal.step(PolicyStep::checkpoint, 300, outer + 1);
  journal.step(PolicyStep::gave_up, 300, outer + 1);
  expect_story(journal.failure(Known{300}), outer, kCalledBack, 0);
  expect_story(journal.failure(), outer, kCalledBack, 0);
}

TEST(Story, a_later_try_that_meets_another_error_is_part_of_it) {
  Journal journal;
  const auto outer = journal.refuse(300);
  journal.hook_begins(300);
  journal.hook_ends(250);
  journal.refuse(300, kDriver);
  journal.step(PolicyStep::gave_up, 300, outer + 1);
  const auto told = journal.failure(Known{300});
  expect_story(told, outer, {"gave_up"}, 1);
  EXPECT_EQ(told["ticks"], 10'000 + 100 * outer);
  EXPECT_EQ(journal.failure()["kind"], "over_budget");
  expect_story(journal.failure(), outer, {"gave_up"}, 1);
}

// A listener is called when a try's operation is over. It may go through the guard, with hooks and an end of its own.
TEST(Story, what_a_listener_goes_through_is_another_story) {
  Journal journal;
  const auto outer = journal.refuse(300);
  journal.hook_begins(300);
  journal.hook_ends(60);
  const auto inner = journal.refuse(500);
  journal.hook_begins(500);
  journal.hook_ends(0);
  journal.step(PolicyStep::retried, 5, journal.next() - 1);
  journal.step(PolicyStep::gave_up, 500, inner + 1);
  journal.hook_begins(300);
  journal.hook_ends(70);
  journal.step(PolicyStep::retried, 8, journal.next() - 1);
  journal.step(PolicyStep::gave_up, 300, outer + 1);
  const auto told = journal.failure(Known{300});
  expect_story(told, outer, {"retried", "gave_up"}, 2);
  EXPECT_EQ(told["hooks"][0]["freed_bytes"], 60);
  EXPECT_EQ(told["hooks"][1]["freed_bytes"], 70);
  EXPECT_EQ(told["policy_steps"][0]["bytes"], 8);
  expect_story(journal.failure(), outer, {"retried", "gave_up"}, 2);
}

TEST(Story, a_request_that_is_under_way_is_told_before_what_it_led_to) {
  Journal journal;
  const auto outer = journal.refuse(300);
  journal.hook_begins(300);
  journal.refuse(70);  // and here it ends
  const auto told = journal.failure();
  EXPECT_EQ(told["journal_number"], outer);
  EXPECT_EQ(told["outcome"], "unknown");
  EXPECT_EQ(told["hooks"][0]["result"], "not_ended");
}

TEST(Story, of_those_for_which_nothing_was_tried_the_newest_counts) {
  Journal journal;
  journal.refuse(300);
  const auto second = journal.refuse(300);
  EXPECT_EQ(journal.failure(Known{300})["journal_number"], second);
  EXPECT_EQ(journal.failure()["journal_number"], second);
  journal.step(PolicyStep::retried, 0, second + 1);
  journal.step(PolicyStep::gave_up, 300, second + 1);
  const auto third = journal.refuse(300);
  EXPECT_EQ(journal.failure(Known{300})["journal_number"], third);
  EXPECT_EQ(journal.failure()["journal_number"], third);
}

TEST(Story, many_that_a_callback_asks_for_in_vain_do_not_push_it_out) {
  Journal journal;
  const auto outer = journal.refuse(300);
  for (int i = 0; i < 100; ++i) journal.refuse(70, kOverBudget, 9);
  journal.step(PolicyStep::checkpoint, 300, outer + 1);
  journal.step(PolicyStep::gave_up, 300, outer + 1);
  expect_story(journal.failure(Known{300}), outer, kCalledBack, 0);
}

TEST(Story, the_site_tells_a_request_from_its_twin) {
  Journal journal;
  const auto wanted = journal.refuse(300, kOverBudget, 3);
  journal.refuse(300, kOverBudget, 9);
  EXPECT_EQ(journal.failure(Known{300, 3})["journal_number"], wanted);
  EXPECT_EQ(journal.failure(Known{300, 9})["journal_number"], wanted + 2);
}

}  // namespace
}  // namespace headroom::test
