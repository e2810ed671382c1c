// The decorator: what it grants and refuses, and that every failure leaves the books as they were.
#include <headroom/device_account.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/null_resource.hpp>
#include <headroom/tag.hpp>

#include "device_budgets.hpp"

namespace headroom {
namespace {

using test::expect_balanced;
using test::expect_empty;
using test::stack_of;
using test::stream_ordered;
using ::testing::HasSubstr;

constexpr auto kLimit3000 = MemoryBudget::with_limit(3000);

TEST(DeviceBudget, grants_an_exact_fit_and_refuses_the_next_byte) {
  const auto stack = stack_of(kLimit3000);
  const auto block = stack.budget->allocate({.bytes = 3000});
  ASSERT_TRUE(block);
  EXPECT_EQ(stack.stats().claimed, 3000U);
  EXPECT_EQ(stack.stats().allocated, 3000U);
  EXPECT_EQ(stack.stats().peak, 3000U);
  EXPECT_EQ(stack.budget->account().remaining_bytes(), 0U);

  const auto refused = stack.budget->allocate({.bytes = 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().layer, Layer::device_account);
  EXPECT_EQ(refused.error().requested, 1U);
  EXPECT_EQ(refused.error().current, 3000U);
  EXPECT_EQ(refused.error().required, 3001U);
  EXPECT_EQ(refused.error().limit, 3000U);
  EXPECT_EQ(refused.error().peak, 3000U);
  EXPECT_EQ(stack.stats().claimed, 3000U) << "a refusal changes nothing";
  EXPECT_EQ(stack.stats().refusals, 1U);
  expect_balanced(stack.budget->account());

  ASSERT_TRUE(stack.budget->deallocate(*block));
  EXPECT_TRUE(stack.budget->allocate({.bytes = 3000}));
}

TEST(DeviceBudget, a_refusal_names_the_holders) {
  const auto stack = stack_of(MemoryBudget::with_limit(8000));
  static const AllocTag kWeights{"budget-test-weights"};
  static const AllocTag kCache{"budget-test-cache"};
  ASSERT_TRUE(stack.budget->allocate({.bytes = 2000, .tag = kWeights.id()}));
  ASSERT_TRUE(stack.budget->allocate({.bytes = 3000, .tag = kCache.id()}));
  ASSERT_TRUE(stack.budget->reserve(700));
  ASSERT_TRUE(stack.budget->reserve(300));
  const auto error = stack.budget->allocate({.bytes = 2001}).error();
  EXPECT_STREQ(error.holders[0].tag, "budget-test-cache");
  EXPECT_EQ(error.holders[0].bytes, 3000U);
  EXPECT_STREQ(error.holders[1].tag, "budget-test-weights");
  EXPECT_EQ(error.holders[1].bytes, 2000U);
  EXPECT_EQ(error.unspent_bytes, 1000U);
  EXPECT_EQ(error.unspent_reservations, 2U);
  EXPECT_EQ(error.current, 6000U);
  EXPECT_THAT(error.message, HasSubstr("account-gpu"));
  EXPECT_TRUE(stack.budget->allocate({.bytes = 2000}));
}

TEST(DeviceBudget, a_refusal_is_an_event_and_a_tally_of_the_account) {
  const auto stack = stack_of(kLimit3000);
  ASSERT_FALSE(stack.budget->allocate({.bytes = 3001}));
  const auto snapshot = test::snapshot_of(stack.budget->account());
  const auto by_kind = static_cast<std::size_t>(ErrorKind::over_budget);
  EXPECT_EQ(snapshot.refusals[by_kind][static_cast<std::size_t>(Layer::device_account)], 1U);
  EXPECT_EQ(snapshot.failures(), 1U);
}

TEST(DeviceBudget, zero_bytes_charge_nothing_and_hold_nothing) {
  const auto stack = stack_of(MemoryBudget::with_limit(0));
  const auto block = stack.budget->allocate({.bytes = 0});
  ASSERT_TRUE(block);
  EXPECT_EQ(block->pointer, nullptr);
  EXPECT_TRUE(stack.budget->deallocate(*block));
  EXPECT_FALSE(stack.budget->allocate({.bytes = 1})) << "a limit of 0 allows nothing";
  expect_empty(stack.budget->account());
}

TEST(DeviceBudget, requests_that_make_no_sense_are_refused_with_their_kind_and_booked) {
  const auto stack = stack_of(MemoryBudget::unlimited());
  EXPECT_EQ(stack.budget->allocate({.bytes = std::uint64_t{1} << 44}).error().kind, ErrorKind::overflow);
  EXPECT_EQ(stack.budget->allocate({.bytes = 1, .alignment = 3}).error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(stack.budget->deallocate({.pointer = stack.host.get(), .bytes = std::uint64_t{1} << 44}).error().kind,
            ErrorKind::wrong_size);
  EXPECT_EQ(stack.stats().refusals, 2U);
  expect_empty(stack.budget->account());
}

TEST(DeviceBudget, a_sum_beyond_sixteen_tebibytes_is_overflow_even_without_a_limit) {
  const auto device = null_device().value();
  const auto budget = GlobalDeviceBudget::create(device, MemoryBudget::unlimited()).value();
  const auto block = budget->allocate({.bytes = kLargestRequest}).value();
  const auto refused = budget->allocate({.bytes = 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::overflow);
  EXPECT_THAT(refused.error().message, HasSubstr("17592186044415 (16 TiB - 1) in all"));
  ASSERT_TRUE(budget->deallocate(block));
  expect_empty(budget->account());
}

TEST(DeviceBudget, an_observing_budget_counts_what_it_would_have_refused) {
  const auto stack = stack_of(MemoryBudget::observe(1000));
  ASSERT_TRUE(stack.budget->allocate({.bytes = 1000}));
  ASSERT_TRUE(stack.budget->allocate({.bytes = 1}));
  const auto snapshot = test::snapshot_of(stack.budget->account());
  EXPECT_EQ(snapshot.observed, 1U);
  EXPECT_EQ(snapshot.failures(), 0U);
  EXPECT_EQ(snapshot.claimed, 1001U);
}

// ── what the stack below refuses ──

TEST(DeviceBudget, a_refusal_below_is_passed_on_and_gives_the_claim_back) {
  const auto stack = stack_of(kLimit3000);
  stack.fault->faults().add({.operation = FaultOperation::allocate, .kind = ErrorKind::driver, .device_code = 700});
  const auto refused = stack.budget->allocate({.bytes = 3000});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::driver);
  EXPECT_EQ(refused.error().layer, Layer::driver);
  EXPECT_EQ(refused.error().device_code, 700);
  EXPECT_EQ(stack.stats().refusals, 1U);
  EXPECT_EQ(stack.stats().peak, 0U);
  expect_empty(stack.budget->account());
  EXPECT_TRUE(stack.budget->allocate({.bytes = 3000})) << "nothing of it is left";
}

TEST(DeviceBudget, exceptions_of_the_stack_below_become_errors_and_change_nothing) {
  const auto stack = stack_of(kLimit3000);
  for (bool const number : {false, true}) {
    stack.throwing->throw_a_number = number;
    stack.throwing->throw_on_allocate = true;
    const auto refused = stack.budget->allocate({.bytes = 3000});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::driver);
    EXPECT_EQ(refused.error().layer, Layer::resource);
    EXPECT_THAT(refused.error().message, HasSubstr(number ? "no std::exception" : "boom"));
    expect_empty(stack.budget->account());
    stack.throwing->throw_on_allocate = false;
    const auto block = stack.budget->allocate({.bytes = 3000}).value();

    stack.throwing->throw_on_deallocate = true;
    const auto kept = stack.budget->deallocate(block);
    ASSERT_FALSE(kept);
    EXPECT_EQ(kept.error().kind, ErrorKind::driver);
    EXPECT_EQ(stack.stats().allocated, 3000U);
    EXPECT_EQ(stack.stats().pending_free, 0U);
    expect_balanced(stack.budget->account());
    stack.throwing->throw_on_deallocate = false;
    ASSERT_TRUE(stack.budget->deallocate(block));
    expect_empty(stack.budget->account());
  }
}

TEST(DeviceBudget, a_refused_free_keeps_its_bytes_and_can_be_repeated) {
  for (auto const& options : {HostOptions{}, stream_ordered()}) {
    const auto stack = stack_of(kLimit3000, options);
    const auto block = stack.budget->allocate({.bytes = 3000}).value();
    stack.fault->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver});
    EXPECT_FALSE(stack.budget->deallocate(block));
    EXPECT_EQ(stack.stats().claimed, 3000U);
    EXPECT_EQ(stack.stats().pending_free, 0U);
    EXPECT_EQ(stack.stats().failed_frees, 1U);
    EXPECT_EQ(stack.stats().frees, 0U);
    EXPECT_FALSE(stack.budget->allocate({.bytes = 1}));
    expect_balanced(stack.budget->account());
    EXPECT_TRUE(stack.budget->deallocate(block));
    EXPECT_TRUE(stack.budget->reap_pending(ReapMode::synchronize));
    expect_empty(stack.budget->account());
  }
}

TEST(DeviceBudget, misuse_that_the_device_detects_leaves_the_books_alone) {
  const auto stack = stack_of(kLimit3000);
  auto block = stack.budget->allocate({.bytes = 1000}).value();
  auto wrong = block;
  wrong.bytes = 999;
  EXPECT_EQ(stack.budget->deallocate(wrong).error().kind, ErrorKind::wrong_size);
  wrong.bytes = 0;
  EXPECT_EQ(stack.budget->deallocate(wrong).error().kind, ErrorKind::wrong_size);
  EXPECT_EQ(stack.stats().allocated, 1000U);
  ASSERT_TRUE(stack.budget->deallocate(block));
  EXPECT_EQ(stack.budget->deallocate(block).error().kind, ErrorKind::double_free);
  expect_empty(stack.budget->account());
}

}  // namespace
}  // namespace headroom
