#include <headroom/fault_resource.hpp>

#include <array>
#include <thread>

#include <gtest/gtest.h>

#include <headroom/host_resource.hpp>
#include <headroom/null_resource.hpp>

#include "recording_resource.hpp"

namespace headroom {
namespace {

using test::RecordingResource;

class Faults : public ::testing::Test {
protected:
  std::shared_ptr<RecordingResource> below = std::make_shared<RecordingResource>();
  std::shared_ptr<FaultResource> broken = FaultResource::create(below).value();
};

TEST_F(Faults, an_empty_plan_fails_nothing) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(broken->allocate({.bytes = 1}));
  EXPECT_EQ(below->calls.size(), 100U);
  EXPECT_EQ(broken->faults().failures(), 0U);
  EXPECT_EQ(broken->name(), "fault");
}

TEST_F(Faults, the_nth_allocation_fails_as_a_driver_would_and_never_arrives) {
  broken->faults().add({.operation = FaultOperation::allocate, .nth = 2});
  ASSERT_TRUE(broken->allocate({.bytes = 64}));
  const auto refused = broken->allocate({.bytes = 128});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(refused.error().layer, Layer::driver);
  EXPECT_EQ(refused.error().device_code, 2);
  EXPECT_EQ(refused.error().requested, 128U);
  EXPECT_EQ(refused.error().device_free, 5000U) << "as the inner resource says";
  ASSERT_TRUE(broken->allocate({.bytes = 64}));
  EXPECT_EQ(below->calls.size(), 2U);
}

TEST_F(Faults, every_operation_can_fail_with_any_kind) {
  const Block block{.pointer = this, .bytes = 100, .tag = 9};
  const std::array<std::byte, 10> source{};
  const auto fail_next = [&](FaultOperation operation, std::uint64_t bytes) {
    broken->faults().add({.operation = operation,
                          .min_bytes = bytes,
                          .max_bytes = bytes,
                          .tag = 9,
                          .kind = ErrorKind::driver,
                          .device_code = 700,
                          .message = "gone"});
  };
  fail_next(FaultOperation::deallocate, 100);
  fail_next(FaultOperation::fill, 40);
  fail_next(FaultOperation::copy, 10);
  for (auto const& error :
       {broken->deallocate(block), broken->fill_zero(block, 60, 40, {}), broken->copy_in(block, 0, source, {})}) {
    ASSERT_FALSE(error);
    EXPECT_EQ(error.error().kind, ErrorKind::driver);
    EXPECT_EQ(error.error().device_code, 700);
    EXPECT_EQ(error.error().message, "gone");
  }
  EXPECT_TRUE(below->calls.empty());
  EXPECT_TRUE(broken->deallocate(block));
  EXPECT_TRUE(broken->fill_zero(block, 60, 40, {}));
  EXPECT_TRUE(broken->copy_in(block, 0, source, {}));
  EXPECT_EQ(below->calls.size(), 3U);
}

TEST(FaultsOverNull, zero_bytes_and_misuse_are_not_counted) {
  const auto broken = FaultResource::create(std::make_shared<NullResource>()).value();
  for (auto const operation :
       {FaultOperation::allocate, FaultOperation::deallocate, FaultOperation::fill, FaultOperation::copy}) {
    broken->faults().add({.operation = operation});
  }
  const Block block{.pointer = &*broken, .bytes = 100};
  const std::array<std::byte, 10> source{};
  EXPECT_TRUE(broken->allocate({.bytes = 0}));
  EXPECT_EQ(broken->allocate({.bytes = 1, .alignment = 3}).error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(broken->allocate({.bytes = UINT64_MAX}).error().kind, ErrorKind::overflow);
  EXPECT_TRUE(broken->deallocate({}));
  EXPECT_TRUE(broken->fill_zero(block, 3, 0, {}));
  EXPECT_EQ(broken->fill_zero(block, 1, 100, {}).error().kind, ErrorKind::invalid_argument);
  EXPECT_TRUE(broken->copy_in(block, 3, {}, {}));
  EXPECT_EQ(broken->copy_in(block, 91, source, {}).error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(broken->faults().failures(), 0U);
  EXPECT_FALSE(broken->allocate({.bytes = 1})) << "the first that would reach a driver";
  EXPECT_FALSE(broken->deallocate(block));
  EXPECT_FALSE(broken->fill_zero(block, 0, 1, {}));
  EXPECT_FALSE(broken->copy_in(block, 0, source, {}));
  EXPECT_EQ(broken->faults().failures(), 4U);
}

TEST(FaultsOverHost, a_free_that_fails_leaves_the_block_with_its_owner) {
  const auto host = HostResource::create({.touch_memory = false}).value();
  const auto broken = FaultResource::create(host).value();
  const auto block = broken->allocate({.bytes = 4096}).value();
  broken->faults().add({.operation = FaultOperation::deallocate, .times = 2, .kind = ErrorKind::driver});
  EXPECT_FALSE(broken->deallocate(block));
  EXPECT_FALSE(broken->deallocate(block));
  EXPECT_EQ(broken->bytes_outstanding(), 4096U);
  EXPECT_TRUE(broken->deallocate(block));
  EXPECT_EQ(broken->bytes_outstanding(), 0U);
}

TEST(FaultsOverHost, counting_is_exact_under_concurrency) {
  const auto broken = FaultResource::create(HostResource::create({.touch_memory = false}).value()).value();
  broken->faults().add({.operation = FaultOperation::allocate, .nth = 10, .every = 10, .times = kFaultForever});
  std::atomic<int> refused{0};  // relaxed: read after the threads were joined
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const auto block = broken->allocate({.bytes = 64});
        if (!block) {
          refused.fetch_add(1, std::memory_order_relaxed);
        } else {
          EXPECT_TRUE(broken->deallocate(*block));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(refused.load(), 400);
  EXPECT_EQ(broken->bytes_outstanding(), 0U);
}

}  // namespace
}  // namespace headroom
