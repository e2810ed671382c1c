// Reservations against the budget of a device.
#include <headroom/device_account.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device_budgets.hpp"

namespace headroom {
namespace {

using test::expect_empty;
using test::stack_of;
using test::stream_ordered;
using ::testing::HasSubstr;

constexpr auto kLimit3000 = MemoryBudget::with_limit(3000);

TEST(DeviceReservation, is_claimed_at_once_and_spent_by_requests_that_say_so) {
  const auto stack = stack_of(kLimit3000);
  ASSERT_TRUE(stack.budget->reserve(2000));
  EXPECT_EQ(stack.stats().claimed, 2000U);
  EXPECT_EQ(stack.stats().allocated, 0U);
  EXPECT_EQ(stack.stats().unspent, 2000U);
  EXPECT_EQ(stack.stats().unspent_reservations, 1U);
  EXPECT_EQ(stack.stats().peak, 0U);
  EXPECT_EQ(stack.budget->budget_snapshot().value().claimed_bytes, 2000U);
  EXPECT_EQ(stack.budget->budget_snapshot().value().limit_bytes, 3000U);
  EXPECT_FALSE(stack.budget->allocate({.bytes = 1001}));

  const auto block = stack.budget->allocate({.bytes = 1500, .reserved = true});
  ASSERT_TRUE(block);
  EXPECT_EQ(stack.stats().claimed, 2000U) << "paid already";
  EXPECT_EQ(stack.stats().allocated, 1500U);
  EXPECT_EQ(stack.stats().unspent, 500U);
  EXPECT_EQ(stack.stats().unspent_reservations, 1U) << "the token is still there";
  stack.budget->unreserve(500);
  EXPECT_EQ(stack.stats().claimed, 1500U);
  EXPECT_EQ(stack.stats().unspent_reservations, 0U);
  ASSERT_TRUE(stack.budget->deallocate(*block));
  expect_empty(stack.budget->account());
}

TEST(DeviceReservation, ends_once_also_when_it_was_spent_to_the_last_byte) {
  const auto stack = stack_of(kLimit3000);
  ASSERT_TRUE(stack.budget->reserve(3000));
  const auto one = stack.budget->allocate({.bytes = 1000, .reserved = true}).value();
  const auto two = stack.budget->allocate({.bytes = 2000, .reserved = true}).value();
  EXPECT_EQ(stack.stats().unspent_reservations, 1U);
  stack.budget->unreserve(0);
  EXPECT_EQ(stack.stats().unspent_reservations, 0U);
  EXPECT_EQ(stack.stats().claimed, 3000U);
  ASSERT_TRUE(stack.budget->deallocate(one));
  ASSERT_TRUE(stack.budget->deallocate(two));
  expect_empty(stack.budget->account());
}

TEST(DeviceReservation, gets_its_bytes_back_from_a_request_that_failed_below) {
  const auto stack = stack_of(kLimit3000);
  ASSERT_TRUE(stack.budget->reserve(3000));
  stack.fault->faults().add({.operation = FaultOperation::allocate});
  EXPECT_EQ(stack.budget->allocate({.bytes = 1000, .reserved = true}).error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(stack.stats().unspent, 3000U);
  EXPECT_EQ(stack.stats().claimed, 3000U);
  EXPECT_EQ(stack.stats().allocated, 0U);
  stack.budget->unreserve(3000);
  expect_empty(stack.budget->account());
}

TEST(DeviceReservation, is_all_or_nothing_and_reaps_before_it_is_refused) {
  const auto stack = stack_of(kLimit3000, stream_ordered());
  const auto freed = stack.budget->allocate({.bytes = 1000}).value();
  const auto kept = stack.budget->allocate({.bytes = 500}).value();
  ASSERT_TRUE(stack.budget->deallocate(freed));
  const auto refused = stack.budget->reserve(2501);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().requested, 2501U);
  EXPECT_EQ(refused.error().required, 4001U);
  EXPECT_EQ(stack.stats().unspent_reservations, 0U);
  EXPECT_EQ(stack.stats().claimed, 1500U);
  ASSERT_TRUE(stack.budget->reserve(2500)) << "with the pending 1000";
  EXPECT_EQ(stack.stats().claimed, 3000U);
  EXPECT_EQ(stack.stats().pending_free, 0U);
  EXPECT_EQ(stack.budget->reserve(std::uint64_t{1} << 44).error().kind, ErrorKind::overflow);
  stack.budget->unreserve(2500);
  ASSERT_TRUE(stack.budget->deallocate(kept));
  ASSERT_TRUE(stack.budget->reap_pending(ReapMode::synchronize));
  expect_empty(stack.budget->account());
}

TEST(DeviceReservation, needs_a_budget_that_enforces) {
  for (auto const budget : {MemoryBudget::unlimited(), MemoryBudget::observe(1000)}) {
    const auto stack = stack_of(budget);
    EXPECT_FALSE(stack.budget->budget_snapshot());
    const auto refused = stack.budget->reserve(1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
    EXPECT_THAT(refused.error().message, HasSubstr("'" + budget.to_string() + "'"));
    expect_empty(stack.budget->account());
  }
}

TEST(DeviceReservation, cannot_be_spent_or_ended_where_there_is_none) {
  const auto stack = stack_of(kLimit3000);
  const auto refused = stack.budget->allocate({.bytes = 100, .reserved = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(refused.error().message, HasSubstr("found 0 unspent bytes on account-gpu, expected at least 100"));
  stack.budget->unreserve(0);
  stack.budget->unreserve(5);
  expect_empty(stack.budget->account());

  ASSERT_TRUE(stack.budget->reserve(50));
  EXPECT_FALSE(stack.budget->allocate({.bytes = 51, .reserved = true}));
  stack.budget->unreserve(51);
  EXPECT_EQ(stack.stats().unspent, 50U);
  EXPECT_EQ(stack.stats().unspent_reservations, 1U);
  stack.budget->unreserve(50);
  expect_empty(stack.budget->account());
}

TEST(DeviceReservation, the_stack_below_does_not_see_that_bytes_were_reserved_here) {
  const auto below = std::make_shared<test::RecordingResource>();
  below->uuid = "GPU-reserved-flag";
  const auto device = Device::custom("recording", below).value();
  const auto budget = GlobalDeviceBudget::create(device, kLimit3000).value();
  ASSERT_TRUE(budget->reserve(64));
  ASSERT_TRUE(budget->allocate({.bytes = 64, .reserved = true}));
  ASSERT_EQ(below->calls.size(), 1U) << "reservations touch nothing below";
  EXPECT_FALSE(below->calls[0].request.reserved);
}

}  // namespace
}  // namespace headroom
