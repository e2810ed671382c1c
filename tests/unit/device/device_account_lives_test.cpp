// What an account outlives, what it is used again for, and when it goes.
#include <headroom/device_account.hpp>

#include <gtest/gtest.h>

#include "device_budgets.hpp"

namespace headroom {
namespace {

using test::expect_empty;
using test::host_of;
using test::snapshot_of;
using test::stack_of;
using test::stack_on;
using test::stream_ordered;

constexpr auto kLimit3000 = MemoryBudget::with_limit(3000);

TEST(DeviceAccounts, a_closed_and_empty_account_is_used_again_with_clean_books) {
  std::optional<std::uint32_t> cell;
  {
    const auto stack = stack_of(kLimit3000);
    cell = stack.budget->account().ledger_cell();
    const auto block = stack.budget->allocate({.bytes = 3000}).value();
    ASSERT_FALSE(stack.budget->allocate({.bytes = 1}));
    ASSERT_TRUE(stack.budget->deallocate(block));
  }
  ASSERT_TRUE(cell);
  for (int life = 0; life < 200; ++life) {
    const auto stack = stack_of(MemoryBudget::with_limit(500 + static_cast<std::uint64_t>(life)));
    ASSERT_TRUE(stack.budget->account().ledger_cell()) << "200 lives must not use up 64 cells";
    const auto stats = stack.stats();
    EXPECT_EQ(stats.peak, 0U);
    EXPECT_EQ(stats.refusals, 0U);
    EXPECT_EQ(stats.allocations, 0U);
    EXPECT_EQ(stats.limit, 500 + static_cast<std::uint64_t>(life));
    const auto block = stack.budget->allocate({.bytes = 500}).value();
    ASSERT_TRUE(stack.budget->deallocate(block));
  }
}

TEST(DeviceAccounts, a_closed_account_vanishes_from_view_once_nothing_is_out) {
  std::uint32_t cell = 0;
  {
    const auto stack = stack_of(kLimit3000);
    cell = stack.budget->account().ledger_cell().value();
    EXPECT_TRUE(snapshot_of(stack.budget->account()).is_device_account);
  }
  for (auto const& ledger : flight::FlightView::of_this_process()->ledgers()) EXPECT_NE(ledger.cell, cell);
}

TEST(DeviceAccounts, frees_still_pending_when_the_last_stack_ends_count_for_the_next_one) {
  const auto host = host_of(stream_ordered());
  std::optional<std::uint32_t> cell;
  {
    const auto stack = stack_on(host, kLimit3000);
    cell = stack.budget->account().ledger_cell();
    const auto block = stack.budget->allocate({.bytes = 2000}).value();
    ASSERT_TRUE(stack.budget->deallocate(block));
  }
  const auto next = stack_on(host, MemoryBudget::with_limit(2500));
  EXPECT_EQ(next.budget->account().ledger_cell(), cell);
  EXPECT_EQ(next.budget->account().budget(), MemoryBudget::with_limit(2500)) << "its only user's";
  EXPECT_EQ(next.stats().claimed, 2000U);
  EXPECT_EQ(next.stats().pending_free, 2000U);
  ASSERT_TRUE(next.budget->allocate({.bytes = 2500}));
  EXPECT_EQ(next.stats().pending_free, 0U);
  EXPECT_EQ(snapshot_of(next.budget->account()).state, flight::LedgerState::open);
}

TEST(DeviceAccounts, frees_pending_on_a_device_that_ends_come_back) {
  auto stack = stack_of(kLimit3000, stream_ordered());
  const auto cell = stack.budget->account().ledger_cell().value();
  const auto block = stack.budget->allocate({.bytes = 2000}).value();
  ASSERT_TRUE(stack.budget->deallocate(block));
  std::weak_ptr<HostResource> const host = stack.host;
  {
    auto const gone = std::exchange(stack, stack_of(MemoryBudget::unlimited()));
  }
  ASSERT_TRUE(host.expired());
  const auto words = flight::FlightView::of_this_process()->words(cell);
  EXPECT_EQ(words.claimed, 0U);
  EXPECT_EQ(words.allocated, 0U);
}

TEST(DeviceAccounts, what_was_live_in_a_device_that_is_gone_does_not_keep_its_account) {
  for (int life = 0; life < 200; ++life) {
    const auto stack = stack_of(kLimit3000, stream_ordered());
    ASSERT_TRUE(stack.budget->account().ledger_cell()) << life;
    EXPECT_EQ(stack.stats().claimed, 0U) << "of the device before";
    ASSERT_TRUE(stack.budget->allocate({.bytes = 1000}));
    const auto freed = stack.budget->allocate({.bytes = 500}).value();
    ASSERT_TRUE(stack.budget->deallocate(freed));
    ASSERT_TRUE(stack.budget->reserve(700));
  }
}

TEST(DeviceAccounts, what_is_live_in_a_device_that_is_still_there_keeps_its_account) {
  const auto host = host_of();
  std::optional<Block> block;
  {
    const auto stack = stack_on(host, kLimit3000);
    block = stack.budget->allocate({.bytes = 2000}).value();
  }
  const auto other = stack_of(kLimit3000);
  const auto next = stack_on(host, kLimit3000);
  EXPECT_EQ(next.stats().claimed, 2000U);
  EXPECT_FALSE(next.budget->allocate({.bytes = 1001}));
  ASSERT_TRUE(next.budget->deallocate(*block));
  expect_empty(next.budget->account());
}

}  // namespace
}  // namespace headroom
