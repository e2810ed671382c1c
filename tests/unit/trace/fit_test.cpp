// The smallest budget and the curve: worked out by hand, and the same as what a real manager refuses.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/fit.hpp>
#include <headroom/flight_format.hpp>

#include "replays.hpp"

namespace headroom::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kLargest = flight::kBytesMask;

/// What a real manager counts.
[[nodiscard]] ReplayFigures replayed_under(TraceHistory const& history, std::uint64_t budget) {
  auto const manager = manager_with(MemoryBudget::with_limit(budget), std::uint64_t{16} << 40U);
  return replayed(history, manager).figures();
}

TEST(Fit, the_smallest_budget_is_the_most_that_is_live_at_once) {
  auto const history = history_of(
      "0,0,allocate,0xa,600,0\n"
      "0,1,allocate,0xb,401,0\n"  // 1001
      "0,2,free,0xa,600,0\n"
      "0,3,allocate,0xc,500,0\n");  // 901
  EXPECT_EQ(fit(history).smallest_budget_bytes, 1001U);
  EXPECT_EQ(replayed_under(history, 1001).refused, 0U);
  EXPECT_EQ(replayed_under(history, 1000).refused, 1U);
}

TEST(Fit, an_outcome_says_how_far_its_decisions_reach) {
  auto const history = history_of(
      "0,0,allocate,0xa,600,0\n"
      "0,1,allocate,0xb,401,0\n"
      "0,2,allocate,0xc,400,0\n"
      "0,3,free,0xb,401,0\n"
      "0,4,free,0xa,600,0\n"
      "0,5,allocate,0xb,401,0\n");
  // Under 1000: 600, 401 refused (1001), 400 to make 1000, its free skipped, 600 freed, 401 to make 801.
  EXPECT_EQ(outcome_under(history, 1000), (BudgetOutcome{.refused = 1, .peak_bytes = 1000, .next_budget_bytes = 1001}));
  // Under 1001: 401 granted, 400 refused (1401).
  EXPECT_EQ(outcome_under(history, 1001), (BudgetOutcome{.refused = 1, .peak_bytes = 1001, .next_budget_bytes = 1401}));
  EXPECT_EQ(outcome_under(history, 1401), (BudgetOutcome{.refused = 0, .peak_bytes = 1401, .next_budget_bytes = {}}));
  // Under 599 nothing of 600 fits: 401 granted, 400 refused (801), 401 granted again after its free.
  EXPECT_EQ(outcome_under(history, 599), (BudgetOutcome{.refused = 2, .peak_bytes = 401, .next_budget_bytes = 600}));
  EXPECT_EQ(outcome_under(history, 0), (BudgetOutcome{.refused = 4, .peak_bytes = 0, .next_budget_bytes = 400}));
}

TEST(Fit, a_larger_budget_may_refuse_more) {
  // With 99 the large one is refused and the ten small ones fit; with 100 it is granted and they are not.
  std::string records = "0,0,allocate,0xff,100,0\n";
  for (int i = 0; i < 10; ++i) records += "0,1,allocate,0x" + std::to_string(i + 1) + ",9,0\n";
  auto const history = history_of(records);
  EXPECT_EQ(outcome_under(history, 99).refused, 1U);
  EXPECT_EQ(outcome_under(history, 100).refused, 10U);
  EXPECT_EQ(replayed_under(history, 99).refused, 1U);
  EXPECT_EQ(replayed_under(history, 100).refused, 10U);
  EXPECT_EQ(fit(history).smallest_budget_bytes, 190U);
}

TEST(Fit, the_curve_has_budgets_that_are_filled_to_the_byte_and_ends_with_the_smallest_that_is_enough) {
  auto const history = history_of(
      "0,0,allocate,0xa,40,0\n"
      "0,1,allocate,0xb,30,0\n"
      "0,2,allocate,0xc,30,0\n");
  // Looked at: 99, 75, 50, 25 of 100. 99: 40 + 30 = 70. 75: the same. 50: 40. 25: nothing fits.
  EXPECT_THAT(fit(history, {.points = 4}).curve,
              ElementsAre(FitPoint{.budget_bytes = 0, .refused = 3}, FitPoint{.budget_bytes = 40, .refused = 2},
                          FitPoint{.budget_bytes = 70, .refused = 1}, FitPoint{.budget_bytes = 100, .refused = 0}));
  EXPECT_THAT(fit(history, {.points = 0}).curve,
              ElementsAre(FitPoint{.budget_bytes = 70, .refused = 1}, FitPoint{.budget_bytes = 100, .refused = 0}));
}

TEST(Fit, what_holds_nothing_needs_nothing) {
  auto const empty = fit(history_of(""));
  EXPECT_EQ(empty.smallest_budget_bytes, 0U);
  EXPECT_THAT(empty.curve, ElementsAre(FitPoint{}));
  auto const history = history_of(
      "0,0,allocate,(nil),0,0\n"
      "0,1,allocate,0xa,0,0\n"
      "0,2,allocate failure,(nil),500,0\n"
      "0,3,free,0xb,7,0\n"
      "0,4,free,0xa,0,0\n");
  EXPECT_EQ(fit(history).smallest_budget_bytes, 0U);
  EXPECT_EQ(replayed_under(history, 0).refused, 0U);
}

TEST(Fit, no_budget_is_enough_for_more_than_a_ledger_can_say) {
  auto const request = history_of("0,0,allocate,0xa,17592186044416,0\n0,1,allocate,0xb,5,0\n");  // 2^44
  auto const found = fit(request);
  EXPECT_EQ(found.smallest_budget_bytes, std::nullopt);
  EXPECT_EQ(found.refused_at_best, 1U);
  EXPECT_EQ(found.curve.back(), (FitPoint{.budget_bytes = 5, .refused = 1}));
  EXPECT_EQ(replayed_under(request, kLargest).refused, 1U);

  auto const sum = history_of("0,0,allocate,0xa,17592186044415,0\n0,1,allocate,0xb,1,0\n");
  EXPECT_EQ(fit(sum).smallest_budget_bytes, std::nullopt);
  EXPECT_EQ(outcome_under(sum, UINT64_MAX), (BudgetOutcome{.refused = 1, .peak_bytes = kLargest, .next_budget_bytes = {}}));
  auto const hostile = history_of("0,0,allocate,0xa,18446744073709551615,0\n0,1,allocate,0xb,18446744073709551615,0\n");
  EXPECT_EQ(outcome_under(hostile, kLargest).refused, 2U);
  EXPECT_EQ(fit(hostile).curve, std::vector<FitPoint>({{.budget_bytes = 0, .refused = 2}}));
}

/// Few addresses, so that frees often find something, nothing, or several blocks at one address.
[[nodiscard]] std::string random_records(std::mt19937& random, int count) {
  auto const below = [&random](std::uint32_t end) { return random() % end; };
  std::string records;
  for (int i = 0; i < count; ++i) {
    auto const thread = std::to_string(below(3));
    auto const address = below(12);
    auto const pointer = address == 0 ? std::string{"(nil)"} : "0x" + std::to_string(address);
    auto const bytes = below(8) == 0 ? 0 : below(4) == 0 ? 1'000 + below(4) : 1 + below(100);
    auto const* const action = below(9) < 5 ? "allocate" : below(12) == 0 ? "allocate failure" : "free";
    records += thread + ',' + std::to_string(i) + ',' + action + ',' + pointer + ',' + std::to_string(bytes) + ",0\n";
  }
  return records;
}

TEST(Fit, agrees_with_a_real_manager_on_random_histories) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random{seed};
    auto const history = history_of(random_records(random, 20 + static_cast<int>(random() % 120)));
    auto const found = fit(history, {.points = 8});
    ASSERT_TRUE(found.smallest_budget_bytes.has_value());
    EXPECT_EQ(replayed_under(history, *found.smallest_budget_bytes).refused, 0U);
    if (*found.smallest_budget_bytes != 0) {
      EXPECT_GT(replayed_under(history, *found.smallest_budget_bytes - 1).refused, 0U);
    }
    EXPECT_EQ(found.curve.back(), (FitPoint{.budget_bytes = *found.smallest_budget_bytes, .refused = 0}));
    std::uint64_t last = 0;
    for (auto const& point : found.curve) {
      auto const figures = replayed_under(history, point.budget_bytes);
      EXPECT_EQ(figures.refused, point.refused) << point.budget_bytes;
      EXPECT_EQ(figures.peak_bytes, point.budget_bytes) << "filled to the byte";
      EXPECT_TRUE(&point == found.curve.data() || last < point.budget_bytes);
      last = point.budget_bytes;
    }
  }
}

TEST(Fit, decides_alike_from_a_peak_to_the_next_budget) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random{seed};
    auto const history = history_of(random_records(random, 100));
    auto const budget = random() % 3'000;
    auto const outcome = outcome_under(history, budget);
    auto const figures = replayed_under(history, budget);
    EXPECT_EQ(outcome.refused, figures.refused);
    EXPECT_EQ(outcome.peak_bytes, figures.peak_bytes);
    EXPECT_LE(outcome.peak_bytes, budget);
    EXPECT_EQ(outcome_under(history, outcome.peak_bytes), outcome);
    if (outcome.peak_bytes != 0) {
      EXPECT_NE(outcome_under(history, outcome.peak_bytes - 1), outcome);
    }
    if (!outcome.next_budget_bytes) continue;
    EXPECT_GT(*outcome.next_budget_bytes, budget);
    EXPECT_EQ(outcome_under(history, *outcome.next_budget_bytes - 1), outcome);
    EXPECT_NE(outcome_under(history, *outcome.next_budget_bytes), outcome);
  }
}

TEST(Fit, counts_the_budgets_that_it_looked_at) {
  std::atomic<std::size_t> done{0};
  static_cast<void>(fit(history_of("0,0,allocate,0xa,40,0\n"), {.points = 5, .done = &done}));
  EXPECT_EQ(done.load(), 6U);
}

TEST(TraceHistory, holders_at_the_end_are_those_that_were_never_freed) {
  auto const history = history_of(
      "3,0,allocate,0xa,2097152,0\n"
      "4,1,allocate,0xb,100,0\n"
      "3,2,allocate,0xc,50,0\n"
      "4,3,free,0xa,2097152,0\n");
  auto const by_size = history.holders_at_end(ReplayTags::size);
  ASSERT_EQ(by_size.size(), 1U);
  EXPECT_EQ(by_size[0].tag, "<1MiB");
  EXPECT_EQ(by_size[0].bytes, 150U);
  EXPECT_EQ(by_size[0].allocations, 2U);
  auto const by_thread = history.holders_at_end(ReplayTags::thread);
  ASSERT_EQ(by_thread.size(), 2U);
  EXPECT_EQ(by_thread[0].tag, "thread 4");
  EXPECT_EQ(by_thread[0].bytes, 100U);
  EXPECT_THAT(history_of("0,0,allocate,0xa,1,0\n0,1,free,0xa,1,0\n").holders_at_end(ReplayTags::size), IsEmpty());
}

}  // namespace
}  // namespace headroom::test
