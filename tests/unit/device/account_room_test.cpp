// A device account that is full, and frees that come back at the worst moment: what fits is never refused.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include <headroom/device_account.hpp>

#include "base/test_point.hpp"
#include "device_budgets.hpp"
#include "stop_at.hpp"

namespace headroom {
namespace {

using test::expect_empty;
using test::host_of;
using test::StopAt;
using test::stream_ordered;

constexpr auto kLimit3000 = MemoryBudget::with_limit(3000);

/// Tells of every reap that passes it.
class ReapWatch final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "reap-watch";
  using ResourceDecorator::ResourceDecorator;
  Result<std::uint64_t> reap_pending(ReapMode mode) override {
    reaps_.fetch_add(1, std::memory_order_relaxed);  // counted here, looked at in the watching call
    if (on_reap) on_reap(reaps_.load(std::memory_order_relaxed));
    return ResourceDecorator::reap_pending(mode);
  }
  std::string_view name() const noexcept override { return kName; }
  std::function<void(int)> on_reap;  // set before threads start

private:
  std::atomic<int> reaps_{0};
};

struct WatchedStack {
  std::shared_ptr<HostResource> host;
  std::shared_ptr<ReapWatch> watch;
  std::shared_ptr<GlobalDeviceBudget> budget;
};

WatchedStack watched_stack(HostOptions const& options = {}) {
  auto host = host_of(options);
  const auto device = Device::custom("gpu", host).value();
  auto watch = decorate<ReapWatch>(host).value();
  auto budget = GlobalDeviceBudget::create(device, kLimit3000, watch).value();
  return {.host = std::move(host), .watch = std::move(watch), .budget = std::move(budget)};
}

void a_free_stopped_at(TestPoint point) {
  const auto stack = watched_stack();
  const auto block = stack.budget->allocate({.bytes = 2000}).value();
  // After the first two looks for room the claim was refused once at least, with the freed bytes no longer pending and not yet back.
  stack.watch->on_reap = [](int reaps) {
    if (reaps == 3) StopAt::release();
  };
  const StopAt stop{point};
  std::thread freeing([&] { EXPECT_TRUE(stack.budget->deallocate(block)); });
  StopAt::wait_until_reached();
  EXPECT_EQ(stack.budget->account().pending_free_bytes(), 0U);
  const auto next = stack.budget->allocate({.bytes = 1500});
  EXPECT_TRUE(next) << next.error().to_string();
  StopAt::release();
  freeing.join();
  if (next) {
    EXPECT_TRUE(stack.budget->deallocate(*next));
  }
  expect_empty(stack.budget->account());
}

TEST(DeviceAccountRoom, a_free_that_is_no_longer_pending_and_still_allocated_is_waited_for) {
  if (!kTestPoints) GTEST_SKIP() << "a build without test points";
  a_free_stopped_at(TestPoint::return_before_retire);
}

TEST(DeviceAccountRoom, a_free_that_is_no_longer_allocated_and_still_claimed_is_waited_for) {
  if (!kTestPoints) GTEST_SKIP() << "a build without test points";
  a_free_stopped_at(TestPoint::return_before_unclaim);
}

// It begins after the first look and is back before the second: at the claim between them its bytes were in the way.
TEST(DeviceAccountRoom, a_free_that_comes_and_goes_between_two_looks_refuses_nobody) {
  if (!kTestPoints) GTEST_SKIP() << "a build without test points";
  static WatchedStack const* stack = nullptr;
  static Block block;
  static int step = 0;
  const auto made = watched_stack(stream_ordered());
  stack = &made;
  block = made.budget->allocate({.bytes = 2000}).value();
  step = 0;
  test_point_handler.store(
      [](TestPoint point) noexcept {
        if (point == TestPoint::room_before_claim && step == 0) {
          step = 1;
          std::thread([] { EXPECT_TRUE(stack->budget->deallocate(block)); }).join();
        } else if (point == TestPoint::room_after_claim && step == 1) {
          step = 2;
          std::thread([] { EXPECT_EQ(stack->host->reap_pending(ReapMode::synchronize).value_or(0), 2000U); }).join();
        }
      },
      std::memory_order_release);
  const auto next = made.budget->allocate({.bytes = 1500});
  test_point_handler.store(nullptr, std::memory_order_release);
  EXPECT_EQ(step, 2);
  EXPECT_TRUE(next) << next.error().to_string();
  if (next) {
    EXPECT_TRUE(made.budget->deallocate(*next));
  }
  ASSERT_TRUE(made.host->reap_pending(ReapMode::synchronize));
  expect_empty(made.budget->account());
}

TEST(DeviceAccountRoom, a_free_that_failed_is_no_hope) {
  const auto stack = test::stack_of(kLimit3000);
  const auto block = stack.budget->allocate({.bytes = 2000}).value();
  stack.fault->faults().add({.operation = FaultOperation::deallocate, .nth = 1});
  EXPECT_FALSE(stack.budget->deallocate(block));
  EXPECT_FALSE(stack.budget->allocate({.bytes = 1500}));
  ASSERT_TRUE(stack.budget->deallocate(block));
  const auto next = stack.budget->allocate({.bytes = 3000}).value();
  ASSERT_TRUE(stack.budget->deallocate(next));
  expect_empty(stack.budget->account());
}

/// Fails to look for finished frees as often as it is told to; waiting works.
class BadQuery final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "bad-query";
  using ResourceDecorator::ResourceDecorator;
  Result<std::uint64_t> reap_pending(ReapMode mode) override {
    if (mode == ReapMode::query && failures > 0) {
      --failures;
      return fail(ErrorKind::driver, Layer::driver, "the query failed");
    }
    return ResourceDecorator::reap_pending(mode);
  }
  int failures = 0;
};

TEST(DeviceAccountRoom, a_look_that_failed_does_not_keep_a_request_from_waiting) {
  const auto host = host_of(stream_ordered());
  const auto device = host_device_over(host).value();
  const auto bad = decorate<BadQuery>(host).value();
  const auto budget = GlobalDeviceBudget::create(device, kLimit3000, bad).value();
  ASSERT_TRUE(budget->deallocate(budget->allocate({.bytes = 3000}).value()));
  bad->failures = 1;
  const auto next = budget->allocate({.bytes = 3000});
  EXPECT_EQ(bad->failures, 0);
  ASSERT_TRUE(next) << next.error().to_string();
  ASSERT_TRUE(budget->deallocate(*next));
  ASSERT_TRUE(host->reap_pending(ReapMode::synchronize));
  expect_empty(budget->account());
}

// 8192 with what is outside: 4096 and 2048 are out when 6144 are taken beside the account, so that 2048 are allowed. The pending 2048
// leave 4096 claimed: nothing fits then either, and nobody waits for them.
TEST(DeviceAccountRoom, below_a_lowered_limit_no_free_is_waited_for_in_vain) {
  auto options = stream_ordered();
  options.total_bytes = 1 << 20;
  options.free_delay = std::chrono::seconds{1};
  const auto host = host_of(options);
  const auto device = host_device_over(host).value();
  const auto budget =
      GlobalDeviceBudget::create(device, MemoryBudget::with_limit(8192), DeviceBudgetOptions{.include_context = true}).value();
  const auto large = budget->allocate({.bytes = 4096}).value();
  const auto small = budget->allocate({.bytes = 2048}).value();
  const auto outside = host->allocate({.bytes = 6144}).value();
  budget->refresh();
  ASSERT_EQ(budget->account().budget(), MemoryBudget::with_limit(2048));
  ASSERT_TRUE(budget->deallocate(small));
  EXPECT_FALSE(budget->allocate({.bytes = 1024}));
  EXPECT_EQ(budget->account().pending_free_bytes(), 2048U);
  ASSERT_TRUE(budget->deallocate(large));
  EXPECT_TRUE(budget->allocate({.bytes = 1024})) << "with both back there is room";
  ASSERT_TRUE(host->deallocate(outside));
}

}  // namespace
}  // namespace headroom
