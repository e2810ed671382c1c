// What a reader of the flight file sees of an account, also in the middle of an operation.
#include <headroom/device_account.hpp>

#include <gtest/gtest.h>

#include <headroom/manager.hpp>

#include "base/test_point.hpp"
#include "device/device_account_cell.hpp"
#include "device_budgets.hpp"
#include "flight/recorder.hpp"

namespace headroom {
namespace {

using test::expect_empty;
using test::host_of;
using test::snapshot_of;
using test::stack_of;
using test::stack_on;
using test::stream_ordered;

constexpr auto kLimit3000 = MemoryBudget::with_limit(3000);

TEST(DeviceAccounts, a_reader_sees_kind_name_device_and_pending_frees) {
  const auto host = host_of({.total_bytes = 1 << 20, .stream_ordered = true});
  const auto stack = stack_on(host, kLimit3000, "seen");
  const auto block = stack.budget->allocate({.bytes = 1200}).value();
  ASSERT_TRUE(stack.budget->allocate({.bytes = 300}));
  ASSERT_TRUE(stack.budget->deallocate(block));
  const auto seen = snapshot_of(stack.budget->account());
  EXPECT_TRUE(seen.is_device_account);
  EXPECT_FALSE(seen.parent_cell);
  EXPECT_EQ(seen.name, "account-seen");
  EXPECT_EQ(seen.device_name, "seen");
  EXPECT_EQ(seen.device_total, std::uint64_t{1} << 20);
  EXPECT_EQ(seen.limit, 3000U);
  EXPECT_EQ(seen.claimed, 1500U);
  EXPECT_EQ(seen.allocated, 1500U);
  EXPECT_EQ(seen.pending_free_bytes, 1200U);
  EXPECT_EQ(seen.live_allocations, 1U);
  EXPECT_EQ(seen.in_flight_bytes, 0U);
}

TEST(DeviceAccounts, a_stack_knows_its_accounts_cell) {
  const auto stack = stack_of(kLimit3000);
  const auto cell = stack.budget->account().ledger_cell();
  ASSERT_TRUE(cell);
  EXPECT_EQ(device::account_cell_of(*stack.budget), cell);
  EXPECT_EQ(device::account_cell_of(*FaultResource::create(stack.budget).value()), cell) << "from anywhere above";
  EXPECT_EQ(device::account_cell_of(*stack.fault), std::nullopt) << "the budget stands above this one";
}

struct Middle {
  std::uint64_t in_flight = 0, claimed = 0, allocated = 0;
  std::vector<flight::InFlightOperation> operations;
};

Middle look(DeviceAccount const& account) {
  const auto seen = snapshot_of(account);
  return {seen.in_flight_bytes, seen.claimed, seen.allocated, flight::FlightView::of_this_process()->in_flight()};
}

TEST(DeviceAccounts, an_operation_without_a_manager_names_itself) {
  const auto stack = stack_of(kLimit3000);
  Middle allocating;
  Middle freeing;
  stack.watching->in_allocate = [&] { allocating = look(stack.budget->account()); };
  stack.watching->in_deallocate = [&] { freeing = look(stack.budget->account()); };
  const auto block = stack.budget->allocate({.bytes = 640}).value();
  EXPECT_EQ(allocating.in_flight, 640U);
  EXPECT_EQ(allocating.claimed, 640U);
  EXPECT_EQ(allocating.allocated, 0U);
  ASSERT_EQ(allocating.operations.size(), 1U);
  EXPECT_EQ(allocating.operations[0].operation, flight::InFlight::allocating);
  EXPECT_EQ(allocating.operations[0].ledger, stack.budget->account().ledger_cell());
  ASSERT_TRUE(stack.budget->deallocate(block));
  EXPECT_EQ(freeing.in_flight, 640U);
  ASSERT_EQ(freeing.operations.size(), 1U);
  EXPECT_EQ(freeing.operations[0].operation, flight::InFlight::freeing);
  ASSERT_TRUE(stack.budget->reserve(100));
  ASSERT_TRUE(stack.budget->allocate({.bytes = 60, .reserved = true}));
  EXPECT_EQ(allocating.in_flight, 60U);
  EXPECT_EQ(allocating.operations.at(0).operation, flight::InFlight::spending);
  EXPECT_EQ(snapshot_of(stack.budget->account()).in_flight_bytes, 0U);
}

TEST(DeviceAccounts, an_operation_of_its_manager_is_named_once) {
  const auto stack = stack_of(kLimit3000);
  const auto device = Device::custom("gpu", stack.budget).value();
  auto manager = GpuMemoryManager::create(device, MemoryBudget::unlimited()).value();
  auto& cell = flight::recorder.ledgers[manager.ledger_cell().value()];
  cell.parent_cell.store(device::account_cell_of(*stack.budget).value() + 1, std::memory_order_relaxed);
  Middle allocating;
  Middle freeing;
  stack.watching->in_allocate = [&] { allocating = look(stack.budget->account()); };
  stack.watching->in_deallocate = [&] { freeing = look(stack.budget->account()); };
  {
    const auto buffer = manager.alloc<std::byte>(640);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(stack.stats().allocated, 640U);
  }
  EXPECT_EQ(allocating.in_flight, 640U);
  ASSERT_EQ(allocating.operations.size(), 1U);
  EXPECT_EQ(allocating.operations[0].ledger, manager.ledger_cell());
  EXPECT_EQ(freeing.in_flight, 640U);
  EXPECT_EQ(freeing.operations.at(0).ledger, manager.ledger_cell());
  // Within a manager's operation, another one of the stack itself still names itself.
  int depth = 0;
  stack.watching->in_allocate = [&] {
    if (++depth == 2) {
      allocating = look(stack.budget->account());
      return;
    }
    const auto block = stack.budget->allocate({.bytes = 100}).value();
    EXPECT_TRUE(stack.budget->deallocate(block));
  };
  ASSERT_TRUE(manager.alloc<std::byte>(640));
  EXPECT_EQ(allocating.in_flight, 740U);
  EXPECT_EQ(allocating.claimed, 740U);
  cell.parent_cell.store(0, std::memory_order_relaxed);
  EXPECT_EQ(snapshot_of(stack.budget->account()).in_flight_bytes, 0U);
  expect_empty(stack.budget->account());
}

TEST(DeviceAccounts, an_operation_of_a_manager_that_has_no_parent_names_itself_too) {
  const auto stack = stack_of(kLimit3000);
  auto manager = GpuMemoryManager::create(Device::custom("gpu", stack.budget).value(), MemoryBudget::unlimited()).value();
  Middle allocating;
  stack.watching->in_allocate = [&] { allocating = look(stack.budget->account()); };
  ASSERT_TRUE(manager.alloc<std::byte>(640));
  EXPECT_EQ(allocating.in_flight, 640U);
  EXPECT_EQ(allocating.claimed, 640U);
  expect_empty(stack.budget->account());
}

// What a post-mortem relies on, wherever the process dies: looked at from every point inside the steps.
struct EveryPoint {
  static inline DeviceAccount const* account = nullptr;
  static inline int visited = 0;
  explicit EveryPoint(DeviceAccount const& watched) {
    account = &watched;
    visited = 0;
    test_point_handler.store(&look, std::memory_order_release);
  }
  ~EveryPoint() { test_point_handler.store(nullptr, std::memory_order_release); }
  EveryPoint(EveryPoint const&) = delete;
  EveryPoint& operator=(EveryPoint const&) = delete;

  static void look(TestPoint point) noexcept {
    if (point == TestPoint::read_before_earlier) return;  // passed by this look itself
    ++visited;
    const auto at = static_cast<int>(point);
    auto const& cell = flight::recorder.ledgers[account->ledger_cell().value()];
    const std::uint64_t claimed = cell.claim.load() & flight::kBytesMask;
    const std::uint64_t allocated = cell.alloc.load() & flight::kBytesMask;
    EXPECT_LE(cell.pending_free_bytes.load(), allocated) << at;
    EXPECT_LE(allocated + cell.unspent.load(), claimed) << at;
    EXPECT_LE(claimed - allocated - cell.unspent.load(), snapshot_of(*account).in_flight_bytes) << at;
  }
};

TEST(DeviceAccounts, what_is_claimed_and_not_allocated_is_in_flight_at_every_point) {
  if (!kTestPoints) GTEST_SKIP() << "a build without test points";
  for (bool const with_parent : {false, true}) {
    const auto stack = stack_of(kLimit3000, stream_ordered());
    auto manager = GpuMemoryManager::create(Device::custom("gpu", stack.budget).value(), MemoryBudget::unlimited()).value();
    auto& parent = flight::recorder.ledgers[manager.ledger_cell().value()].parent_cell;
    parent.store(with_parent ? stack.budget->account().ledger_cell().value() + 1 : 0, std::memory_order_relaxed);
    {
      const EveryPoint watching{stack.budget->account()};
      auto buffer = manager.alloc<std::byte>(1000).value();
      ASSERT_TRUE(buffer.release());
      const auto block = stack.budget->allocate({.bytes = 2000}).value();
      ASSERT_TRUE(stack.budget->deallocate(block));
      buffer = manager.alloc<std::byte>(3000).value();  // takes both pending frees back on the way
      EXPECT_FALSE(manager.alloc<std::byte>(1));
      ASSERT_TRUE(buffer.release());
      ASSERT_TRUE(stack.budget->reserve(2500));
      const auto spent = stack.budget->allocate({.bytes = 1500, .reserved = true}).value();
      stack.fault->faults().add({.operation = FaultOperation::allocate});
      EXPECT_FALSE(stack.budget->allocate({.bytes = 600, .reserved = true}));
      stack.budget->unreserve(1000);
      ASSERT_TRUE(stack.budget->deallocate(spent));
      ASSERT_TRUE(stack.budget->reap_pending(ReapMode::synchronize));
      EXPECT_GT(EveryPoint::visited, 50);
    }
    parent.store(0, std::memory_order_relaxed);
    expect_empty(stack.budget->account());
  }
}

TEST(DeviceAccounts, a_return_inside_a_free_is_named_by_that_free) {
  if (!kTestPoints) GTEST_SKIP() << "a build without test points";
  const auto stack = stack_of(kLimit3000);
  auto manager = GpuMemoryManager::create(Device::custom("gpu", stack.budget).value(), MemoryBudget::unlimited()).value();
  auto& parent = flight::recorder.ledgers[manager.ledger_cell().value()].parent_cell;
  parent.store(stack.budget->account().ledger_cell().value() + 1, std::memory_order_relaxed);
  auto buffer = manager.alloc<std::byte>(640).value();
  static DeviceAccount const* account = nullptr;
  static int visited = 0;
  account = &stack.budget->account();
  test_point_handler.store(
      [](TestPoint point) noexcept {
        if (point != TestPoint::return_before_retire && point != TestPoint::return_before_unclaim) return;
        ++visited;
        EXPECT_EQ(snapshot_of(*account).in_flight_bytes, 640U) << "once, not twice";
      },
      std::memory_order_release);
  EXPECT_TRUE(buffer.release());
  test_point_handler.store(nullptr, std::memory_order_release);
  EXPECT_EQ(visited, 2);
  parent.store(0, std::memory_order_relaxed);
}

}  // namespace
}  // namespace headroom
