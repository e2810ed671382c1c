// What every manager must do: owners, failures, loops and threads.
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "manager_conformance.hpp"
#include "scale.hpp"

namespace headroom {
namespace {

using testing::Held;
using testing::kLimit;
using testing::ManagerConformance;

// ── owners ──

TEST_P(ManagerConformance, a_free_on_another_thread_credits_the_same_books) {
  auto held = allocate(4096).value();
  std::thread([&] { free(held); }).join();
  expect_held(0, 0);
  EXPECT_EQ(manager().stats().frees, 1U);
  auto again = allocate(kLimit).value();
  free(again);
}

TEST_P(ManagerConformance, a_buffer_outlives_every_handle) {
  auto held = allocate(4096).value();
  allocate_ = {};
  made_.others.clear();
  made_.manager.reset();
  expect_device_holds(4096);
  free(held);
  expect_device_holds(0);
}

// ── failures ──

TEST_P(ManagerConformance, an_allocation_that_the_device_fails_is_rolled_back_at_every_layer) {
  if (!made_.faults) GTEST_SKIP() << "this device cannot be broken";
  auto held = allocate(1000).value();
  for (const auto kind : {ErrorKind::driver, ErrorKind::device_out_of_memory}) {
    const auto before = books();
    const auto rule =
        made_.faults().add({.operation = FaultOperation::allocate, .times = kFaultForever, .kind = kind, .device_code = 700});
    const auto refused = allocate(2000);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, kind);
    EXPECT_EQ(refused.error().layer, Layer::driver);
    EXPECT_EQ(refused.error().device_code, 700);
    EXPECT_EQ(refused.error().requested, 2000U);
    EXPECT_EQ(books(), before);
    ASSERT_TRUE(made_.faults().remove(rule));
    auto rest = allocate(kLimit - 1000);
    ASSERT_TRUE(rest) << "the claim of what failed did not stay: " << rest.error().to_string();
    free(*rest);
    expect_held(1000, 1);
  }
  EXPECT_EQ(manager().stats().refusals, 2U);
  free(held);
}

TEST_P(ManagerConformance, a_free_that_fails_keeps_its_bytes_charged_until_a_retry_works) {
  if (!made_.faults) GTEST_SKIP() << "this device cannot be broken";
  auto held = allocate(1000).value();
  made_.faults().add({.operation = FaultOperation::deallocate, .times = 2, .kind = ErrorKind::driver, .device_code = 700});
  const auto failed = held.release();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::driver);
  EXPECT_EQ(failed.error().device_code, 700);
  EXPECT_EQ(manager().deallocation_failure_count(), 1U);
  EXPECT_EQ(manager().deallocation_failure_bytes(), 1000U);
  EXPECT_EQ(manager().audit().failed_free_bytes, 1000U);
  expect_held(1000, 1);
  const auto refused = allocate(kLimit - 999);
  ASSERT_FALSE(refused) << "the budget has not got them back";
  EXPECT_EQ(refused.error().failed_free_bytes, 1000U);
  EXPECT_EQ(refused.error().failed_frees, 1U);

  EXPECT_EQ(manager().retry_failed_deallocations(), 0U) << "fails again";
  EXPECT_EQ(manager().deallocation_failure_count(), 2U);
  EXPECT_EQ(manager().deallocation_failure_bytes(), 1000U) << "once, however often it fails";
  expect_held(1000, 1);
  EXPECT_EQ(manager().retry_failed_deallocations(), 1U);
  EXPECT_EQ(manager().deallocation_failure_bytes(), 0U);
  EXPECT_EQ(manager().deallocation_failure_count(), 2U);
  expect_held(0, 0);
  EXPECT_EQ(manager().retry_failed_deallocations(), 0U);
  EXPECT_EQ(manager().write_off_failed_deallocations(), 0U);
}

TEST_P(ManagerConformance, what_is_written_off_is_given_back_to_the_manager_and_stays_with_the_device) {
  if (!made_.faults) GTEST_SKIP() << "this device cannot be broken";
  if (made_.device_budget && !made_.bottom->device_uuid().empty()) {
    GTEST_SKIP() << "the account of a device with an identity would have these bytes for the rest of the process";
  }
  auto held = allocate(1000).value();
  made_.faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver});
  ASSERT_FALSE(held.release());
  expect_held(1000, 1);
  EXPECT_EQ(manager().write_off_failed_deallocations(), 1000U);
  EXPECT_EQ(manager().deallocation_failure_bytes(), 0U);
  EXPECT_EQ(manager().claimed_bytes(), 0U);
  left_at_device_ = 1000;
  expect_device_holds(1000);
  EXPECT_EQ(manager().write_off_failed_deallocations(), 0U);
  EXPECT_EQ(manager().retry_failed_deallocations(), 0U);
  auto all = allocate(kLimit);
  ASSERT_TRUE(all) << all.error().to_string();
  free(*all);
}

// ── loops and threads ──

TEST_P(ManagerConformance, a_tight_loop_at_exactly_the_limit_is_never_refused) {
  const std::uint64_t rounds = test::scaled(500);
  // The manager's own limit first, then what lies below it, too.
  for (const std::uint64_t block : {kLimit, traits().caches ? kLimit : traits().device_bytes.value_or(kLimit)}) {
    manager().set_budget(MemoryBudget::with_limit(block));
    std::uint64_t refused = 0;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      auto held = allocate(block);
      if (!held) {
        ++refused;
        continue;
      }
      free(*held);
    }
    EXPECT_EQ(refused, 0U) << "of " << rounds << " at " << block;
    EXPECT_EQ(manager().peak_bytes(), block);
  }
  EXPECT_EQ(manager().stats().refusals, 0U);
}

TEST_P(ManagerConformance, threads_that_pass_blocks_on_never_exceed_the_limit_and_leave_nothing) {
  constexpr int kThreads = 4;
  const std::uint64_t rounds = test::scaled(500);
  std::mutex mutex;
  std::vector<Held> shelf;  // under the mutex
  std::atomic<std::uint64_t> granted{0};
  std::atomic<std::uint64_t> refused{0};
  std::vector<std::thread> threads;
  for (unsigned index = 0; index < kThreads; ++index) {
    threads.emplace_back([&, index] {
      std::mt19937_64 random{index};
      for (std::uint64_t round = 0; round < rounds; ++round) {
        if (auto held = allocate(1 + random() % (kLimit / 4))) {
          ++granted;
          const std::scoped_lock lock{mutex};
          shelf.push_back(*std::move(held));
        } else {
          ++refused;
          EXPECT_EQ(held.error().kind, ErrorKind::over_budget) << held.error().to_string();
        }
        EXPECT_LE(manager().claimed_bytes(), kLimit);
        std::optional<Held> taken;
        {
          const std::scoped_lock lock{mutex};
          if (shelf.size() > random() % 8) {
            std::swap(shelf[random() % shelf.size()], shelf.back());
            taken = std::move(shelf.back());
            shelf.pop_back();
          }
        }
        if (taken) free(*taken);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(granted + refused, kThreads * rounds);
  EXPECT_EQ(manager().stats().allocations, granted.load());
  EXPECT_EQ(manager().stats().refusals, refused.load());
  EXPECT_LE(manager().peak_bytes(), kLimit);
  std::uint64_t bytes = 0;
  for (auto const& held : shelf) bytes += held.size_bytes();
  expect_held(bytes, shelf.size());
  for (auto& held : shelf) free(held);
}

}  // namespace
}  // namespace headroom
