// The account that stacks of one device share: who gets which, what it outlives, and what threads and readers see of it.
#include <headroom/device_account.hpp>

#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <headroom/manager.hpp>

#include "base/test_point.hpp"
#include "device/device_account_cell.hpp"
#include "device_budgets.hpp"
#include "flight/recorder.hpp"

namespace headroom {
namespace {

using test::expect_balanced;
using test::expect_empty;
using test::host_of;
using test::snapshot_of;
using test::stack_of;
using test::stack_on;
using test::stream_ordered;
using test::try_stack_on;
using ::testing::HasSubstr;

constexpr auto kLimit3000 = MemoryBudget::with_limit(3000);

// ── sharing ──

TEST(DeviceAccounts, stacks_of_one_device_share_one_limit) {
  const auto host = host_of();
  const auto one = stack_on(host, kLimit3000);
  const auto two = stack_on(host, kLimit3000);
  EXPECT_EQ(one.budget->account(), two.budget->account());
  const auto first = one.budget->allocate({.bytes = 2000}).value();
  const auto refused = two.budget->allocate({.bytes = 1001});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().current, 2000U);
  const auto second = two.budget->allocate({.bytes = 1000}).value();
  EXPECT_EQ(one.stats().claimed, 3000U);
  ASSERT_TRUE(two.budget->deallocate(first)) << "through either stack";
  ASSERT_TRUE(one.budget->deallocate(second));
  expect_empty(one.budget->account());
}

TEST(DeviceAccounts, another_device_has_an_account_of_its_own) {
  const auto one = stack_of(kLimit3000);
  const auto two = stack_of(kLimit3000);
  EXPECT_FALSE(one.budget->account() == two.budget->account());
  EXPECT_NE(one.budget->account().ledger_cell(), two.budget->account().ledger_cell());
  ASSERT_TRUE(one.budget->allocate({.bytes = 3000}));
  ASSERT_TRUE(two.budget->allocate({.bytes = 3000}));
}

TEST(DeviceAccounts, resources_with_one_uuid_are_one_device) {
  const auto one = std::make_shared<test::RecordingResource>();
  const auto two = std::make_shared<test::RecordingResource>();
  one->uuid = two->uuid = "GPU-shared";
  const auto first = GlobalDeviceBudget::create(Device::custom("a", one).value(), kLimit3000).value();
  const auto second = GlobalDeviceBudget::create(Device::custom("b", two).value(), kLimit3000).value();
  EXPECT_EQ(first->account(), second->account());
  EXPECT_EQ(second->account().name(), "account-a") << "the first user names it";
  ASSERT_TRUE(first->allocate({.bytes = 3000}));
  EXPECT_FALSE(second->allocate({.bytes = 1}));
}

TEST(DeviceAccounts, a_later_user_with_another_budget_is_refused_and_both_are_named) {
  const auto host = host_of();
  const auto first = stack_on(host, MemoryBudget::with_limit(8192), "card");
  for (auto const other :
       {MemoryBudget::with_limit(4096), MemoryBudget::observe(8192), MemoryBudget::unlimited(), MemoryBudget::with_limit(0)}) {
    const auto refused = try_stack_on(host, other, "card");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
    EXPECT_EQ(refused.error().layer, Layer::device_account);
    EXPECT_THAT(refused.error().message,
                HasSubstr("'account-card' has the budget 8 KiB from its first user; found " + other.to_string()));
  }
  EXPECT_TRUE(try_stack_on(host, MemoryBudget::with_limit(8192)));
  EXPECT_EQ(first.budget->account().budget(), MemoryBudget::with_limit(8192));
}

TEST(DeviceAccounts, a_limit_above_the_device_works_as_its_total) {
  const auto host = host_of({.total_bytes = 1 << 20});
  const auto stack = stack_on(host, MemoryBudget::with_limit(5 << 20));
  EXPECT_EQ(stack.budget->account().budget(), MemoryBudget::with_limit(1 << 20));
  EXPECT_EQ(stack.budget->budget_snapshot().value().limit_bytes, std::uint64_t{1} << 20);
  EXPECT_TRUE(try_stack_on(host, MemoryBudget::with_limit(1 << 20))) << "the same limit, said exactly";
  EXPECT_TRUE(try_stack_on(host, MemoryBudget::with_limit(9 << 20)));
  EXPECT_EQ(stack.budget->allocate({.bytes = (1 << 20) + 1}).error().kind, ErrorKind::over_budget);
  EXPECT_TRUE(stack.budget->allocate({.bytes = 1 << 20}));
}

TEST(DeviceAccounts, a_shortage_reaps_the_frees_of_every_stack) {
  const auto one = std::make_shared<test::RecordingResource>();  // has 77 bytes to give whenever it is asked
  one->uuid = "GPU-reap-all";
  const auto two = std::make_shared<test::RecordingResource>();
  two->uuid = "GPU-reap-all";
  const auto first = GlobalDeviceBudget::create(Device::custom("a", one).value(), kLimit3000).value();
  const auto second = GlobalDeviceBudget::create(Device::custom("a", two).value(), kLimit3000).value();
  ASSERT_TRUE(first->allocate({.bytes = 3000}));
  ASSERT_FALSE(first->allocate({.bytes = 1}));
  ASSERT_EQ(one->calls.size(), 2U);
  EXPECT_EQ(one->calls[1].mode, ReapMode::query);
  ASSERT_EQ(two->calls.size(), 1U);
  EXPECT_EQ(two->calls[0].mode, ReapMode::query);
}

TEST(DeviceAccounts, pending_frees_of_another_stack_make_room) {
  const auto host = host_of(stream_ordered());
  const auto one = stack_on(host, kLimit3000);
  const auto two = stack_on(host, kLimit3000);
  const auto block = one.budget->allocate({.bytes = 3000}).value();
  ASSERT_TRUE(one.budget->deallocate(block));
  const auto next = two.budget->allocate({.bytes = 3000});
  ASSERT_TRUE(next) << next.error().to_string();
  EXPECT_EQ(one.stats().claimed, 3000U);
  EXPECT_EQ(one.stats().pending_free, 0U);
}

// ── lives ──

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

// ── threads ──

TEST(DeviceAccounts, another_threads_reap_returns_the_bytes) {
  const auto stack = stack_of(kLimit3000, stream_ordered());
  const auto block = stack.budget->allocate({.bytes = 3000}).value();
  ASSERT_TRUE(stack.budget->deallocate(block));
  // Not through the stack: whoever reaps the device gives back what is the account's.
  std::thread([&] { EXPECT_EQ(stack.host->reap_pending(ReapMode::synchronize).value(), 3000U); }).join();
  expect_empty(stack.budget->account());
}

// Each thread holds at most an eighth of the limit, so every request fits as soon as frees are back: none may be refused.
TEST(DeviceAccounts, threads_never_exceed_the_limit_and_are_never_refused_what_fits) {
  constexpr std::uint64_t kThreads = 8;
  constexpr std::uint64_t kShare = 4096;
  constexpr std::uint64_t kLimit = kThreads * kShare;
  const auto host = host_of(stream_ordered());
  const auto one = stack_on(host, MemoryBudget::with_limit(kLimit));
  const auto two = stack_on(host, MemoryBudget::with_limit(kLimit));
  std::atomic<std::uint64_t> live{0};     // added after a grant, taken off before the free: never above what is live
  std::atomic<std::uint64_t> refused{0};  // relaxed: read after the threads were joined
  std::atomic<std::uint64_t> too_much{0};
  std::vector<std::thread> threads;
  for (std::uint64_t index = 0; index < kThreads; ++index) {
    threads.emplace_back([&, index] {
      std::mt19937_64 random(index);
      auto& budget = *(index % 2 == 0 ? one : two).budget;
      const auto stream = host->create_stream().value();
      for (int round = 0; round < 3000; ++round) {
        const std::uint64_t bytes = random() % 4 == 0 ? kShare : random() % kShare + 1;
        const auto block = budget.allocate({.bytes = bytes, .stream = stream});
        if (!block) {
          refused.fetch_add(1, std::memory_order_relaxed);
          ADD_FAILURE() << block.error().to_string();
          continue;
        }
        if (live.fetch_add(bytes, std::memory_order_seq_cst) + bytes > kLimit) too_much.fetch_add(1, std::memory_order_relaxed);
        if (budget.account().claimed_bytes() > kLimit) too_much.fetch_add(1, std::memory_order_relaxed);
        if (random() % 64 == 0) std::this_thread::yield();
        live.fetch_sub(bytes, std::memory_order_seq_cst);
        EXPECT_TRUE(budget.deallocate(*block));
        if (random() % 32 == 0) {
          EXPECT_TRUE(host->reap_pending(random() % 2 == 0 ? ReapMode::query : ReapMode::synchronize));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(refused.load(), 0U);
  EXPECT_EQ(too_much.load(), 0U);
  expect_balanced(one.budget->account());
  EXPECT_LE(one.stats().peak, kLimit);
  EXPECT_EQ(one.stats().allocations, kThreads * 3000);
  ASSERT_TRUE(host->reap_pending(ReapMode::synchronize));
  expect_empty(one.budget->account());
}

TEST(DeviceAccounts, threads_with_faults_and_reservations_leave_balanced_books) {
  const auto host = host_of(stream_ordered());
  const auto stack = stack_on(host, MemoryBudget::with_limit(20'000));
  stack.fault->faults().add({.operation = FaultOperation::allocate, .nth = 7, .every = 7, .times = kFaultForever});
  stack.fault->faults().add({.operation = FaultOperation::deallocate, .nth = 5, .every = 5, .times = kFaultForever});
  std::vector<std::thread> threads;
  for (std::uint64_t index = 0; index < 6; ++index) {
    threads.emplace_back([&, index] {
      std::mt19937_64 random(index + 100);
      for (int round = 0; round < 1500; ++round) {
        const std::uint64_t total = random() % 8000;
        if (!stack.budget->reserve(total)) continue;
        std::uint64_t rest = total;
        std::vector<Block> blocks;
        while (rest != 0) {
          const std::uint64_t bytes = random() % rest + 1;
          const auto block = stack.budget->allocate({.bytes = bytes, .reserved = true});
          if (!block) break;
          rest -= bytes;
          blocks.push_back(*block);
        }
        stack.budget->unreserve(rest);
        for (auto const& block : blocks) {
          while (!stack.budget->deallocate(block)) {
          }
        }
        if (const auto loose = stack.budget->allocate({.bytes = random() % 9000 + 1})) {
          while (!stack.budget->deallocate(*loose)) {
          }
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  expect_balanced(stack.budget->account());
  ASSERT_TRUE(host->reap_pending(ReapMode::synchronize));
  expect_empty(stack.budget->account());
}

TEST(DeviceAccounts, stacks_may_come_and_go_while_others_allocate) {
  const auto host = host_of(stream_ordered());
  const auto kept = stack_on(host, kLimit3000);
  std::vector<std::thread> threads;
  for (std::uint64_t index = 0; index < 4; ++index) {
    threads.emplace_back([&] {
      for (int round = 0; round < 300; ++round) {
        const auto stack = stack_on(host, kLimit3000);
        const auto block = stack.budget->allocate({.bytes = 700});
        ASSERT_TRUE(block) << block.error().to_string();
        EXPECT_TRUE(stack.budget->deallocate(*block));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(host->reap_pending(ReapMode::synchronize));
  expect_empty(kept.budget->account());
}

// ── what readers see ──

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

// ── fork ──

TEST(DeviceAccounts, a_forked_child_touches_nothing) {
  auto stack = stack_of(kLimit3000, stream_ordered());
  const auto block = stack.budget->allocate({.bytes = 1000}).value();
  const auto pending = stack.budget->allocate({.bytes = 500}).value();
  ASSERT_TRUE(stack.budget->deallocate(pending));
  ASSERT_TRUE(stack.budget->reserve(200));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int wrong = 0;
    const auto refused = [&](auto const& result) {
      if (result || result.error().kind != ErrorKind::unsupported) ++wrong;
    };
    refused(stack.budget->allocate({.bytes = 1}));
    refused(stack.budget->deallocate(block));
    refused(stack.budget->reserve(1));
    refused(GlobalDeviceBudget::create(stack.device, kLimit3000));
    stack.budget->unreserve(200);
    stack.budget.reset();
    stack.host.reset();
    _exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(stack.stats().claimed, 1700U);
  EXPECT_EQ(stack.stats().pending_free, 500U);
  EXPECT_EQ(stack.stats().unspent, 200U);
  stack.budget->unreserve(200);
  ASSERT_TRUE(stack.budget->deallocate(block));
  ASSERT_TRUE(stack.budget->reap_pending(ReapMode::synchronize));
  expect_empty(stack.budget->account());
}

}  // namespace
}  // namespace headroom
