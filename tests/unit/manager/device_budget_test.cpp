// Managers through the budget of their device: both budgets hold, reservations stand in both books, and neither loses a byte.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "device_budgets.hpp"
#include "managers.hpp"
#include "scale.hpp"

namespace headroom::test {
namespace {

struct Budgeted {
  explicit Budgeted(std::uint64_t limit, HostOptions const& options = {})
      : stack{stack_of(MemoryBudget::with_limit(limit), options)},
        runtime{DeviceRuntime::create(stack.device, {.stack = stack.budget}).value()} {}
  [[nodiscard]] GpuMemoryManager manager(MemoryBudget budget) const {
    return GpuMemoryManager::with_runtime(stack.device, budget, runtime).value();
  }
  BudgetStack stack;
  DeviceRuntime runtime;
};

TEST(DeviceBudget, managers_of_one_device_share_it_beside_their_own) {
  Budgeted device{1000};
  auto a = device.manager(MemoryBudget::with_limit(800));
  auto b = device.manager(MemoryBudget::with_limit(800));
  auto first = a.alloc<std::byte>(700).value();
  auto second = b.alloc_raw(300, AllocTag{"raw"}).value();
  auto refused = b.alloc<std::byte>(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().layer, Layer::device_account);
  EXPECT_EQ(refused.error().current, 1000U);
  EXPECT_EQ(refused.error().limit, 1000U);
  EXPECT_EQ(b.claimed_bytes(), 300U);
  ASSERT_TRUE(first.release());
  EXPECT_EQ(device.stack.stats().claimed, 300U);
  EXPECT_TRUE(b.alloc<std::byte>(500));
  EXPECT_EQ(device.stack.stats().claimed, 300U);
  EXPECT_EQ(device.stack.stats().allocated, 300U);
  EXPECT_EQ(device.stack.stats().peak, 1000U);
}

TEST(DeviceBudget, is_named_as_the_parent_in_the_flight_file) {
  Budgeted device{1000};
  const auto cell = device.stack.budget->account().ledger_cell();
  auto routed = device.manager(MemoryBudget::unlimited());
  EXPECT_EQ(snapshot_of(routed).parent_cell, cell);
  auto direct = GpuMemoryManager::create(device.stack.device, MemoryBudget::unlimited()).value();
  EXPECT_FALSE(snapshot_of(direct).parent_cell);
}

TEST(DeviceBudget, holds_reservations_and_what_is_spent_of_them) {
  Budgeted device{1000};
  auto manager = device.manager(MemoryBudget::with_limit(5000));
  EXPECT_EQ(manager.reserve_bytes(1001).error().layer, Layer::device_account);
  {
    auto reservation = manager.reserve_bytes(600).value();
    EXPECT_EQ(device.stack.stats().claimed, 600U);
    EXPECT_EQ(device.stack.stats().unspent, 600U);
    EXPECT_EQ(device.stack.stats().unspent_reservations, 1U);
    EXPECT_FALSE(manager.alloc<std::byte>(401));
    auto buffer = reservation.alloc<std::byte>(400).value();
    EXPECT_EQ(device.stack.stats().claimed, 600U);
    EXPECT_EQ(device.stack.stats().unspent, 200U);
    device.stack.fault->faults().add({.operation = FaultOperation::allocate, .kind = ErrorKind::driver});
    EXPECT_FALSE(reservation.alloc<std::byte>(200));
    EXPECT_EQ(device.stack.stats().unspent, 200U);
    EXPECT_EQ(reservation.remaining_bytes(), 200U);
    ASSERT_TRUE(buffer.release());
    EXPECT_EQ(device.stack.stats().claimed, 200U);
  }
  expect_empty(device.stack.budget->account());
  EXPECT_EQ(manager.claimed_bytes(), 0U);
}

TEST(DeviceBudget, a_tight_loop_of_stream_ordered_frees_is_never_refused) {
  constexpr std::uint64_t kMiB = 1 << 20;
  Budgeted device{kMiB, {.total_bytes = kMiB, .stream_ordered = true}};
  auto manager = device.manager(MemoryBudget::with_limit(kMiB));
  std::uint64_t refused = 0;
  const std::uint64_t rounds = scaled(100'000);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    if (!manager.alloc<std::byte>(kMiB)) ++refused;
  }
  EXPECT_EQ(refused, 0U) << "of " << rounds;
  EXPECT_TRUE(manager.reap_pending_deallocations());
  expect_empty(device.stack.budget->account());
}

TEST(DeviceBudget, threads_with_reservations_and_without_leave_nothing_in_either_book) {
  constexpr std::uint64_t kLimit = 10'000;
  Budgeted device{kLimit, stream_ordered()};
  auto a = device.manager(MemoryBudget::with_limit(8000));
  auto b = device.manager(MemoryBudget::with_limit(8000));
  device.stack.fault->faults().add(
      {.operation = FaultOperation::allocate, .nth = 7, .every = 7, .times = kFaultForever, .kind = ErrorKind::driver});
  const std::uint64_t rounds = scaled(3000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i, manager = i % 2 == 0 ? a : b]() mutable {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        if (i < 2) {
          static_cast<void>(manager.alloc<std::byte>(3000));
        } else if (auto reservation = manager.reserve_bytes(4000)) {
          static_cast<void>(reservation->alloc<std::byte>(1000));
          static_cast<void>(reservation->alloc<std::byte>(2000));
        }
        EXPECT_LE(device.stack.stats().claimed, kLimit);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(a.reap_pending_deallocations());
  expect_empty(device.stack.budget->account());
  for (auto const* manager : {&a, &b}) {
    EXPECT_EQ(manager->claimed_bytes(), 0U);
    EXPECT_TRUE(manager->audit().clean()) << manager->audit().to_string();
  }
}

}  // namespace
}  // namespace headroom::test
