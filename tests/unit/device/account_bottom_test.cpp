// Devices without a number of their own are objects: an account goes by the one at the bottom, whatever stands above it.
#include <memory>

#include <gtest/gtest.h>

#include <headroom/device_account.hpp>
#include <headroom/fault_resource.hpp>

#include "device_budgets.hpp"

namespace headroom {
namespace {

using test::expect_empty;
using test::host_of;

constexpr auto kLimit3000 = MemoryBudget::with_limit(3000);

// The device's own resource is a decorator, and goes with the first user.
TEST(DeviceAccountBottom, bytes_that_are_out_stay_counted_while_the_resource_below_lives) {
  const auto host = host_of();
  Block old;
  {
    const auto device = Device::custom("gpu", FaultResource::create(host).value()).value();
    old = GlobalDeviceBudget::create(device, kLimit3000).value()->allocate({.bytes = 1000}).value();
  }
  const auto device = host_device_over(host).value();
  const auto budget = GlobalDeviceBudget::create(device, kLimit3000).value();
  EXPECT_EQ(budget->account().claimed_bytes(), 1000U);
  EXPECT_FALSE(budget->allocate({.bytes = 2001}));
  ASSERT_TRUE(budget->deallocate(old));
  expect_empty(budget->account());
  const auto next = budget->allocate({.bytes = 3000}).value();
  ASSERT_TRUE(budget->deallocate(next));
}

// Opened again by a user with a decorator of its own, which goes as well.
TEST(DeviceAccountBottom, also_after_the_next_user_is_gone) {
  const auto host = host_of();
  Block old;
  {
    const auto device = host_device_over(host).value();
    old = GlobalDeviceBudget::create(device, kLimit3000).value()->allocate({.bytes = 1000}).value();
  }
  {
    const auto device = Device::custom("gpu", FaultResource::create(host).value()).value();
    EXPECT_EQ(GlobalDeviceBudget::create(device, kLimit3000).value()->account().claimed_bytes(), 1000U);
  }
  const auto budget = GlobalDeviceBudget::create(host_device_over(host).value(), kLimit3000).value();
  EXPECT_EQ(budget->account().claimed_bytes(), 1000U);
  ASSERT_TRUE(budget->deallocate(old));
  expect_empty(budget->account());
}

TEST(DeviceAccountBottom, the_owner_of_the_bottom_is_found_below_decorators) {
  std::shared_ptr<DeviceResource> const host = host_of();
  std::shared_ptr<DeviceResource> const fault = FaultResource::create(host).value();
  EXPECT_EQ(shared_bottom_of(host), host);
  EXPECT_EQ(shared_bottom_of(FaultResource::create(fault).value()), host);
}

}  // namespace
}  // namespace headroom
