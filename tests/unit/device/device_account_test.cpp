// The account that stacks of one device share: who gets which, and what threads and a forked child make of it.
#include <headroom/device_account.hpp>

#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_budgets.hpp"

namespace headroom {
namespace {

using test::expect_balanced;
using test::expect_empty;
using test::host_of;
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
