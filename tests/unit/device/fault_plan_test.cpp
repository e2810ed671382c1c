// Faults on purpose: exactly those, and without a trace in the books.
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <headroom/host_resource.hpp>

namespace headroom {
namespace {

class FaultPlanTest : public ::testing::Test {
protected:
  std::shared_ptr<HostResource> host_ = HostResource::create({.total_bytes = std::uint64_t{1} << 30}).value();

  // Which of `count` allocations fail, counted from 1.
  std::vector<int> failing(int count, std::uint64_t bytes = 64, std::uint16_t tag = 0) {
    std::vector<int> failed;
    for (int number = 1; number <= count; ++number) {
      auto const block = host_->allocate({.bytes = bytes, .tag = tag});
      if (!block) {
        failed.push_back(number);
      } else {
        EXPECT_TRUE(host_->deallocate(*block));
      }
    }
    return failed;
  }
};

TEST_F(FaultPlanTest, exactly_the_nth_fails_with_the_given_error) {
  auto const id = host_->faults().add({.nth = 3, .kind = ErrorKind::driver, .device_code = 700, .message = "illegal address"});
  ASSERT_TRUE(host_->allocate({.bytes = 10}));
  ASSERT_TRUE(host_->allocate({.bytes = 20}));
  auto const free_before = host_->memory_info().free;
  auto const third = host_->allocate({.bytes = 30});
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().kind, ErrorKind::driver);
  EXPECT_EQ(third.error().layer, Layer::driver);
  EXPECT_EQ(third.error().device_code, 700);
  EXPECT_EQ(third.error().message, "illegal address");
  EXPECT_EQ(third.error().requested, 30);
  EXPECT_EQ(third.error().device_free, free_before);
  EXPECT_EQ(host_->memory_info().free, free_before);
  EXPECT_EQ(host_->bytes_outstanding(), 30);
  EXPECT_TRUE(host_->allocate({.bytes = 40}));
  EXPECT_EQ(host_->faults().failures(id), 1);
}

TEST_F(FaultPlanTest, every_nth_fails_for_as_often_as_asked) {
  host_->faults().add({.nth = 4, .every = 4, .times = kFaultForever});
  EXPECT_EQ(failing(13), (std::vector{4, 8, 12}));
  host_->faults().clear();
  host_->faults().add({.nth = 2, .every = 3, .times = 2});
  EXPECT_EQ(failing(20), (std::vector{2, 5}));
  EXPECT_EQ(host_->faults().failures(), 5);
}

TEST_F(FaultPlanTest, rules_match_by_size_and_tag_and_count_only_what_matches) {
  host_->faults().add({.nth = 2, .min_bytes = 1000, .max_bytes = 2000});
  host_->faults().add({.times = kFaultForever, .tag = std::uint16_t{9}});
  EXPECT_TRUE(failing(5, 999).empty());
  EXPECT_TRUE(failing(5, 2001).empty());
  EXPECT_EQ(failing(3, 1000), (std::vector{2}));
  EXPECT_EQ(failing(2, 64, 9), (std::vector{1, 2}));
  EXPECT_TRUE(failing(2, 64, 8).empty());
}

TEST_F(FaultPlanTest, failed_free_leaves_the_block_live_and_can_be_repeated) {
  auto const block = host_->allocate({.bytes = 64}).value();
  host_->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver, .device_code = 700});
  auto const failed = host_->deallocate(block);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().device_code, 700);
  EXPECT_EQ(host_->bytes_outstanding(), 64);
  EXPECT_TRUE(host_->fill_zero(block, 0, 64, {}));
  EXPECT_TRUE(host_->deallocate(block));
  EXPECT_EQ(host_->bytes_outstanding(), 0);
}

TEST_F(FaultPlanTest, fill_and_copy_fail_without_writing) {
  auto const block = host_->allocate({.bytes = 4}).value();
  auto* const bytes = static_cast<unsigned char*>(block.pointer);
  bytes[0] = 1;
  host_->faults().add({.operation = FaultOperation::fill, .kind = ErrorKind::driver});
  host_->faults().add({.operation = FaultOperation::copy, .kind = ErrorKind::driver});
  EXPECT_FALSE(host_->fill_zero(block, 0, 4, {}));
  std::vector<std::byte> const source(4, std::byte{7});
  EXPECT_FALSE(host_->copy_in(block, 0, source, {}));
  EXPECT_EQ(bytes[0], 1);
  EXPECT_TRUE(host_->fill_zero(block, 0, 4, {}));
  EXPECT_EQ(bytes[0], 0);
  EXPECT_TRUE(host_->copy_in(block, 0, source, {}));
  EXPECT_EQ(bytes[0], 7);
}

TEST_F(FaultPlanTest, what_never_reaches_the_driver_is_not_counted) {
  auto const block = host_->allocate({.bytes = 64}).value();
  ASSERT_TRUE(host_->deallocate(block));
  host_->faults().add({.times = kFaultForever});
  host_->faults().add({.operation = FaultOperation::deallocate, .times = kFaultForever});
  EXPECT_TRUE(host_->allocate({.bytes = 0}));
  EXPECT_TRUE(host_->deallocate(Block{}));
  EXPECT_EQ(host_->allocate({.bytes = 1, .alignment = 3}).error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(host_->allocate({.bytes = 1, .stream = {77}}).error().kind, ErrorKind::stream_misuse);
  EXPECT_EQ(host_->deallocate(block).error().kind, ErrorKind::double_free);
  EXPECT_EQ(host_->faults().failures(), 0);
}

TEST_F(FaultPlanTest, injection_on_one_thread_leaves_the_others_alone) {
  host_->faults().inject_on_this_thread(FaultOperation::allocate, 2, 3);
  std::thread([this] { EXPECT_TRUE(failing(10).empty()); }).join();
  EXPECT_EQ(failing(10), (std::vector{3, 4, 5}));
}

TEST_F(FaultPlanTest, removed_rule_is_over) {
  auto const kept = host_->faults().add({.nth = 5});
  auto const removed = host_->faults().add({.times = kFaultForever});
  EXPECT_EQ(failing(2), (std::vector{1, 2}));
  EXPECT_TRUE(host_->faults().remove(removed));
  EXPECT_FALSE(host_->faults().remove(removed));
  EXPECT_EQ(host_->faults().failures(removed), 0);
  EXPECT_EQ(failing(4), (std::vector{3})) << "the other rule went on counting";
  EXPECT_EQ(host_->faults().failures(kept), 1);
}

TEST_F(FaultPlanTest, failures_are_exact_under_threads) {
  host_->faults().add({.nth = 10, .every = 10, .times = 150});
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([&] { failed += static_cast<int>(failing(500).size()); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed, 150);
  EXPECT_EQ(host_->bytes_outstanding(), 0);
}

}  // namespace
}  // namespace headroom
