// What every manager must do: budgets and books.
#include <algorithm>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "manager_conformance.hpp"

namespace headroom {
namespace {

using testing::Held;
using testing::kLimit;
using testing::ManagerConformance;

std::uint64_t address(Held const& held) { return reinterpret_cast<std::uint64_t>(held.data()); }

// ── budget ──

TEST_P(ManagerConformance, exact_fit_is_admitted_and_the_next_byte_refused_with_figures) {
  auto most = allocate(kLimit - 1000).value();
  auto rest = allocate(1000).value();
  expect_held(kLimit, 2);
  const auto before = books();
  const auto refusals = manager().stats().refusals;
  const auto refused = allocate(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().layer, Layer::manager);
  EXPECT_EQ(refused.error().requested, 1U);
  EXPECT_EQ(refused.error().current, kLimit);
  EXPECT_EQ(refused.error().required, kLimit + 1);
  EXPECT_EQ(refused.error().limit, kLimit);
  EXPECT_EQ(refused.error().peak, kLimit);
  EXPECT_STREQ(refused.error().holders[0].tag, "conformance");
  EXPECT_EQ(refused.error().holders[0].bytes, kLimit);
  EXPECT_EQ(books(), before);
  EXPECT_EQ(manager().stats().refusals, refusals + 1);
  EXPECT_EQ(manager().remaining_bytes(), 0U);
  free(most);
  free(rest);
  auto whole = allocate(kLimit).value();
  EXPECT_FALSE(allocate(1));
  free(whole);
  EXPECT_FALSE(allocate(kLimit + 1));
}

TEST_P(ManagerConformance, what_the_device_has_is_given_out_to_the_last_byte_and_no_further) {
  if (!traits().device_bytes) GTEST_SKIP() << "nothing below the manager has an end";
  const std::uint64_t all = *traits().device_bytes;
  manager().set_budget(MemoryBudget::unlimited());
  auto whole = allocate(all).value();
  expect_held(all, 1);
  const auto before = books();
  const auto refused = allocate(1);
  ASSERT_FALSE(refused);
  if (made_.device_budget) {
    EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
    EXPECT_EQ(refused.error().layer, Layer::device_account);
    EXPECT_EQ(refused.error().current, all);
    EXPECT_EQ(refused.error().required, all + 1);
    EXPECT_EQ(refused.error().limit, all);
  } else {
    EXPECT_EQ(refused.error().kind, ErrorKind::device_out_of_memory);
    EXPECT_EQ(refused.error().device_free, 0U);
  }
  EXPECT_EQ(refused.error().requested, 1U);
  EXPECT_EQ(books(), before);
  free(whole);
  EXPECT_FALSE(allocate(all + 1));
  expect_held(0, 0);
}

TEST_P(ManagerConformance, a_budget_lowered_below_use_takes_nothing_and_grants_nothing) {
  auto held = allocate(6000).value();
  manager().set_budget(MemoryBudget::with_limit(5000));
  expect_held(6000, 1);
  EXPECT_EQ(manager().remaining_bytes(), 0U);
  EXPECT_EQ(manager().pressure_level(), PressureLevel::critical);
  const auto before = books();
  const auto refused = allocate(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().current, 6000U);
  EXPECT_EQ(refused.error().limit, 5000U);
  EXPECT_EQ(books(), before);
  free(held);
  auto fits = allocate(5000).value();
  EXPECT_FALSE(allocate(1));
  manager().set_budget(MemoryBudget::with_limit(0));
  free(fits);
  EXPECT_FALSE(allocate(1));
  auto nothing = allocate(0);
  ASSERT_TRUE(nothing) << "no bytes need no budget";
  free(*nothing);
}

TEST_P(ManagerConformance, an_observing_budget_counts_what_it_would_have_refused_and_refuses_nothing) {
  manager().set_budget(MemoryBudget::observe(1000));
  auto fits = allocate(1000).value();
  EXPECT_EQ(manager().stats().observed_refusals, 0U);
  auto over = allocate(1).value();
  EXPECT_EQ(manager().stats().observed_refusals, 1U);
  EXPECT_EQ(manager().stats().refusals, 0U);
  expect_held(1001, 2);
  EXPECT_EQ(manager().remaining_bytes(), 0U);
  free(fits);
  free(over);
}

TEST_P(ManagerConformance, check_budget_looks_only) {
  auto held = allocate(1000).value();
  const auto before = books();
  const auto counted = requests();
  const auto refusals = manager().stats().refusals;
  EXPECT_TRUE(manager().check_budget(0));
  EXPECT_TRUE(manager().check_budget(kLimit - 1000));
  const auto over = manager().check_budget(kLimit - 999);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(over.error().current, 1000U);
  EXPECT_EQ(over.error().required, kLimit + 1);
  EXPECT_EQ(manager().check_budget(UINT64_MAX).error().kind, ErrorKind::overflow);
  EXPECT_EQ(books(), before);
  EXPECT_EQ(requests(), counted);
  EXPECT_EQ(manager().stats().refusals, refusals);
  free(held);
}

// ── books ──

TEST_P(ManagerConformance, each_event_moves_the_books_it_names_and_no_other) {
  const auto start = requests();
  auto first = allocate(1000).value();
  expect_held(1000, 1);
  EXPECT_EQ(manager().peak_bytes(), 1000U);
  EXPECT_EQ(requests(), std::pair(start.first + 1, start.second));
  auto second = allocate(500).value();
  expect_held(1500, 2);
  EXPECT_EQ(manager().peak_bytes(), 1500U);
  EXPECT_EQ(manager().remaining_bytes(), kLimit - 1500);
  free(first);
  expect_held(500, 1);
  EXPECT_EQ(manager().peak_bytes(), 1500U) << "the high-water mark stays";
  auto third = allocate(600).value();
  expect_held(1100, 2);
  EXPECT_EQ(manager().peak_bytes(), 1500U);
  free(second);
  free(third);
  expect_held(0, 0);
  EXPECT_EQ(requests(), std::pair(start.first + 3, start.second));
  const auto stats = manager().stats();
  EXPECT_EQ(stats.allocations, 3U);
  EXPECT_EQ(stats.frees, 3U);
  EXPECT_EQ(stats.allocation_bytes, 2100U);
  EXPECT_EQ(stats.deallocation_bytes, 2100U);
  EXPECT_EQ(stats.refusals, 0U);
}

TEST_P(ManagerConformance, zero_bytes_succeed_hold_nothing_and_charge_nothing) {
  const auto before = books();
  const auto start = requests();
  for (int i = 0; i < 100; ++i) {
    auto empty = allocate(0).value();
    EXPECT_EQ(empty.data(), nullptr);
    EXPECT_EQ(empty.size_bytes(), 0U);
    free(empty);
    free(empty);
  }
  EXPECT_EQ(books(), before);
  EXPECT_EQ(requests(), std::pair(start.first + 100, start.second)) << "they were asked for all the same";
}

TEST_P(ManagerConformance, sizes_that_no_ledger_can_hold_are_overflow_whatever_the_budget) {
  for (auto const budget : {MemoryBudget::with_limit(kLimit), MemoryBudget::unlimited(), MemoryBudget::observe(1)}) {
    manager().set_budget(budget);
    const auto before = books();
    for (const std::uint64_t bytes : {kLargestRequest + 1, UINT64_MAX - 255, UINT64_MAX}) {
      const auto refused = allocate(bytes);
      ASSERT_FALSE(refused) << bytes;
      EXPECT_EQ(refused.error().kind, ErrorKind::overflow) << refused.error().to_string();
      EXPECT_EQ(refused.error().requested, bytes);
    }
    EXPECT_EQ(books(), before);
  }
}

TEST_P(ManagerConformance, alignment_that_is_no_power_of_two_is_refused_and_named) {
  const auto before = books();
  for (const std::uint64_t alignment : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{257}, UINT64_MAX}) {
    const auto refused = allocate(64, alignment);
    ASSERT_FALSE(refused) << alignment;
    EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
    EXPECT_EQ(refused.error().message, "alignment " + std::to_string(alignment) + " is no power of two");
  }
  EXPECT_EQ(books(), before);
}

TEST_P(ManagerConformance, small_alignment_is_raised_and_large_is_honoured) {
  std::vector<Held> blocks;
  for (std::uint64_t alignment = 1; alignment <= 1 << 20; alignment *= 2) {
    auto held = allocate(3, alignment);
    ASSERT_TRUE(held) << alignment << ": " << held.error().to_string();
    EXPECT_EQ(address(*held) % std::max(alignment, kMinimumAlignment), 0U);
    blocks.push_back(*std::move(held));
  }
  for (auto& held : blocks) free(held);
}

TEST_P(ManagerConformance, blocks_are_distinct_and_do_not_overlap) {
  std::mt19937_64 random{1};
  std::vector<Held> blocks;
  std::uint64_t bytes = 0;
  for (int i = 0; i < 200; ++i) {
    if (i % 3 == 2) {  // holes, to be filled again
      const auto victim = random() % blocks.size();
      bytes -= blocks[victim].size_bytes();
      free(blocks[victim]);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(victim));
      continue;
    }
    const std::uint64_t size = 1 + random() % 5000;
    auto held = allocate(size, std::uint64_t{256} << random() % 4);
    ASSERT_TRUE(held) << held.error().to_string();
    EXPECT_EQ(held->size_bytes(), size);
    bytes += size;
    blocks.push_back(*std::move(held));
  }
  expect_held(bytes, blocks.size());
  std::ranges::sort(blocks, {}, address);
  for (std::size_t at = 1; at < blocks.size(); ++at) {
    EXPECT_GE(address(blocks[at]), address(blocks[at - 1]) + (traits().owns_ranges ? blocks[at - 1].size_bytes() : 1));
  }
  for (auto& held : blocks) free(held);
}

TEST_P(ManagerConformance, peaks_and_manual_accounting_move_only_what_they_may) {
  auto held = allocate(1000).value();
  auto gone = allocate(2000).value();
  free(gone);
  EXPECT_EQ(manager().peak_bytes(), 3000U);
  const auto before = books();
  EXPECT_EQ(manager().record_free(1).error().kind, ErrorKind::invalid_argument);
  EXPECT_TRUE(manager().record_free(0));
  const auto busy = manager().reset_tracking();
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(busy.error().current, 1000U);
  EXPECT_EQ(books(), before);
  manager().reset_peak();
  EXPECT_EQ(manager().peak_bytes(), 1000U) << "never below what is allocated";
  free(held);
  EXPECT_EQ(manager().peak_bytes(), 1000U);
  EXPECT_EQ(manager().record_free(1).error().kind, ErrorKind::overflow) << "nothing is allocated: it would underflow";
  EXPECT_TRUE(manager().reset_tracking());
  EXPECT_EQ(manager().peak_bytes(), 0U);
}

INSTANTIATE_TEST_SUITE_P(every, ManagerConformance, ::testing::ValuesIn(testing::all_manager_cases()),
                         [](auto const& tested) { return tested.param.factory.name + tested.param.way.name; });

}  // namespace
}  // namespace headroom
