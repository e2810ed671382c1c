// What every manager must do through every way in, run over all of manager_factories.hpp. Each test ends with nothing left: not in the
// manager's books, not in its device's, not at the resource.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "manager_factories.hpp"
#include "scale.hpp"

namespace headroom {
namespace {

using testing::Held;

constexpr std::uint64_t kLimit = 1'000'000;  // of the manager's budget unless a test says otherwise
const AllocTag kTag{"conformance"};

std::uint64_t address(Held const& held) { return reinterpret_cast<std::uint64_t>(held.data()); }

class ManagerConformance : public ::testing::TestWithParam<testing::ManagerCase> {
protected:
  /// All books that a call which had no effect may not have moved, with no free pending.
  struct Books {
    std::uint64_t claimed, allocated, peak, live, allocations, frees, unspent, failed_bytes, outstanding;
    std::uint64_t account_claimed, account_allocated, account_unspent, account_reservations;
    friend bool operator==(Books const&, Books const&) = default;
    friend std::ostream& operator<<(std::ostream& out, Books const& b) {
      return out << "claimed " << b.claimed << ", allocated " << b.allocated << ", peak " << b.peak << ", live " << b.live
                 << ", allocations " << b.allocations << ", frees " << b.frees << ", unspent " << b.unspent
                 << ", in failed frees " << b.failed_bytes << ", outstanding " << b.outstanding << "; account: claimed "
                 << b.account_claimed << ", allocated " << b.account_allocated << ", unspent " << b.account_unspent << " in "
                 << b.account_reservations;
    }
  };

  void SetUp() override {
    auto made = GetParam().factory.make(MemoryBudget::with_limit(kLimit));
    if (!made) GTEST_SKIP() << made.error().to_string();
    made_ = *std::move(made);
    allocate_ = GetParam().way.open(manager());
  }

  void TearDown() override {
    if (!made_.bottom) return;  // skipped
    if (made_.manager) {
      reap();
      const auto report = manager().audit();
      EXPECT_TRUE(report.clean()) << report.to_string();
      EXPECT_EQ(report.claimed, 0U);
      EXPECT_EQ(report.live_allocations, 0U);
      EXPECT_EQ(manager().deallocation_failure_bytes(), 0U);
    }
    expect_device_holds(left_at_device_);
  }

  [[nodiscard]] GpuMemoryManager& manager() { return *made_.manager; }
  [[nodiscard]] testing::ManagerTraits const& traits() const { return GetParam().factory.traits; }
  [[nodiscard]] testing::AllocationWay const& way() const { return GetParam().way; }
  [[nodiscard]] Result<Held> allocate(std::uint64_t bytes, std::uint64_t alignment = kMinimumAlignment) const {
    return allocate_(bytes, {.tag = kTag, .stream = {}, .alignment = alignment});
  }
  /// Requests as alloc_count or raw_alloc_count has them, whichever this way moves; and the other one.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> requests() {
    const std::pair both{manager().alloc_count(), manager().raw_alloc_count()};
    return way().counts_as_typed ? both : std::pair{both.second, both.first};
  }

  void reap() const { ASSERT_TRUE(made_.bottom->reap_pending(ReapMode::synchronize)); }

  void expect_device_holds(std::uint64_t bytes) const {
    reap();
    if (traits().keeps_books) {
      EXPECT_EQ(made_.bottom->bytes_outstanding(), bytes);
    }
    if (made_.device_budget) {
      auto const& account = made_.device_budget->account();
      const auto stats = account.stats();
      EXPECT_EQ(stats.allocated, bytes);
      EXPECT_EQ(stats.claimed, bytes);
      EXPECT_EQ(stats.pending_free, 0U);
      EXPECT_EQ(stats.unspent, 0U);
      EXPECT_GE(stats.peak, bytes);
      // Where all tests run in one process, earlier ones may have used up the cells, and nothing is known by tag.
      if (account.ledger_cell()) {
        EXPECT_EQ(stats.tag_bytes, bytes);
      }
    }
  }

  [[nodiscard]] Books books() {
    reap();
    const auto stats = manager().stats();
    const auto account = made_.device_budget ? made_.device_budget->account().stats() : DeviceAccountStats{};
    return {stats.claimed,
            stats.allocated,
            stats.peak,
            stats.live_allocations,
            stats.allocations,
            stats.frees,
            manager().audit().unspent,
            manager().deallocation_failure_bytes(),
            made_.bottom->bytes_outstanding(),
            account.claimed,
            account.allocated,
            account.unspent,
            account.unspent_reservations};
  }

  /// Of a manager, the way in and the device below: all hold exactly that.
  void expect_held(std::uint64_t bytes, std::uint64_t blocks) {
    const auto report = manager().audit();
    EXPECT_TRUE(report.clean()) << report.to_string();
    EXPECT_EQ(report.claimed, bytes);
    EXPECT_EQ(report.allocated, bytes);
    if (manager().ledger_cell()) {
      EXPECT_EQ(report.live_bytes, bytes);
      EXPECT_EQ(report.tag_bytes, bytes);
      EXPECT_EQ(report.live_allocations, blocks);
    }
    EXPECT_EQ(report.unspent, 0U);
    EXPECT_EQ(manager().live_allocations(), blocks);
    for (auto const& other : made_.others) EXPECT_EQ(other.claimed_bytes(), bytes);
    expect_device_holds(bytes);
  }

  static void free(Held& held) {
    const auto freed = held.release();
    EXPECT_TRUE(freed) << freed.error().to_string();
  }

  testing::MadeManager made_;
  std::function<Result<Held>(std::uint64_t, AllocOptions const&)> allocate_;
  std::uint64_t left_at_device_ = 0;  // what a write-off left there
};

// ── budget ──

TEST_P(ManagerConformance, exact_fit_is_admitted_and_the_next_byte_refused_with_figures) {
  auto most = allocate(kLimit - 1000).value();
  auto rest = allocate(1000).value();
  expect_held(kLimit, 2);
  const auto before = books();
  const auto refusals = manager().stats().refusals;
  const auto refused = allocate(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().layer, Layer::manager);
  EXPECT_EQ(refused.error().requested, 1U);
  EXPECT_EQ(refused.error().current, kLimit);
  EXPECT_EQ(refused.error().required, kLimit + 1);
  EXPECT_EQ(refused.error().limit, kLimit);
  EXPECT_EQ(refused.error().peak, kLimit);
  EXPECT_STREQ(refused.error().holders[0].tag, "conformance");
  EXPECT_EQ(refused.error().holders[0].bytes, kLimit);
  EXPECT_EQ(books(), before);
  EXPECT_EQ(manager().stats().refusals, refusals + 1);
  EXPECT_EQ(manager().remaining_bytes(), 0U);
  free(most);
  free(rest);
  auto whole = allocate(kLimit).value();
  EXPECT_FALSE(allocate(1));
  free(whole);
  EXPECT_FALSE(allocate(kLimit + 1));
}

TEST_P(ManagerConformance, what_the_device_has_is_given_out_to_the_last_byte_and_no_further) {
  if (!traits().device_bytes) GTEST_SKIP() << "nothing below the manager has an end";
  const std::uint64_t all = *traits().device_bytes;
  manager().set_budget(MemoryBudget::unlimited());
  auto whole = allocate(all).value();
  expect_held(all, 1);
  const auto before = books();
  const auto refused = allocate(1);
  ASSERT_FALSE(refused);
  if (made_.device_budget) {
    EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
    EXPECT_EQ(refused.error().layer, Layer::device_account);
    EXPECT_EQ(refused.error().current, all);
    EXPECT_EQ(refused.error().required, all + 1);
    EXPECT_EQ(refused.error().limit, all);
  } else {
    EXPECT_EQ(refused.error().kind, ErrorKind::device_out_of_memory);
    EXPECT_EQ(refused.error().device_free, 0U);
  }
  EXPECT_EQ(refused.error().requested, 1U);
  EXPECT_EQ(books(), before);
  free(whole);
  EXPECT_FALSE(allocate(all + 1));
  expect_held(0, 0);
}

TEST_P(ManagerConformance, a_budget_lowered_below_use_takes_nothing_and_grants_nothing) {
  auto held = allocate(6000).value();
  manager().set_budget(MemoryBudget::with_limit(5000));
  expect_held(6000, 1);
  EXPECT_EQ(manager().remaining_bytes(), 0U);
  EXPECT_EQ(manager().pressure_level(), PressureLevel::critical);
  const auto before = books();
  const auto refused = allocate(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().current, 6000U);
  EXPECT_EQ(refused.error().limit, 5000U);
  EXPECT_EQ(books(), before);
  free(held);
  auto fits = allocate(5000).value();
  EXPECT_FALSE(allocate(1));
  manager().set_budget(MemoryBudget::with_limit(0));
  free(fits);
  EXPECT_FALSE(allocate(1));
  auto nothing = allocate(0);
  ASSERT_TRUE(nothing) << "no bytes need no budget";
  free(*nothing);
}

TEST_P(ManagerConformance, an_observing_budget_counts_what_it_would_have_refused_and_refuses_nothing) {
  manager().set_budget(MemoryBudget::observe(1000));
  auto fits = allocate(1000).value();
  EXPECT_EQ(manager().stats().observed_refusals, 0U);
  auto over = allocate(1).value();
  EXPECT_EQ(manager().stats().observed_refusals, 1U);
  EXPECT_EQ(manager().stats().refusals, 0U);
  expect_held(1001, 2);
  EXPECT_EQ(manager().remaining_bytes(), 0U);
  free(fits);
  free(over);
}

TEST_P(ManagerConformance, check_budget_looks_only) {
  auto held = allocate(1000).value();
  const auto before = books();
  const auto counted = requests();
  const auto refusals = manager().stats().refusals;
  EXPECT_TRUE(manager().check_budget(0));
  EXPECT_TRUE(manager().check_budget(kLimit - 1000));
  const auto over = manager().check_budget(kLimit - 999);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(over.error().current, 1000U);
  EXPECT_EQ(over.error().required, kLimit + 1);
  EXPECT_EQ(manager().check_budget(UINT64_MAX).error().kind, ErrorKind::overflow);
  EXPECT_EQ(books(), before);
  EXPECT_EQ(requests(), counted);
  EXPECT_EQ(manager().stats().refusals, refusals);
  free(held);
}

// ── books ──

TEST_P(ManagerConformance, each_event_moves_the_books_it_names_and_no_other) {
  const auto start = requests();
  auto first = allocate(1000).value();
  expect_held(1000, 1);
  EXPECT_EQ(manager().peak_bytes(), 1000U);
  EXPECT_EQ(requests(), std::pair(start.first + 1, start.second));
  auto second = allocate(500).value();
  expect_held(1500, 2);
  EXPECT_EQ(manager().peak_bytes(), 1500U);
  EXPECT_EQ(manager().remaining_bytes(), kLimit - 1500);
  free(first);
  expect_held(500, 1);
  EXPECT_EQ(manager().peak_bytes(), 1500U) << "the high-water mark stays";
  auto third = allocate(600).value();
  expect_held(1100, 2);
  EXPECT_EQ(manager().peak_bytes(), 1500U);
  free(second);
  free(third);
  expect_held(0, 0);
  EXPECT_EQ(requests(), std::pair(start.first + 3, start.second));
  const auto stats = manager().stats();
  EXPECT_EQ(stats.allocations, 3U);
  EXPECT_EQ(stats.frees, 3U);
  EXPECT_EQ(stats.allocation_bytes, 2100U);
  EXPECT_EQ(stats.deallocation_bytes, 2100U);
  EXPECT_EQ(stats.refusals, 0U);
}

TEST_P(ManagerConformance, zero_bytes_succeed_hold_nothing_and_charge_nothing) {
  const auto before = books();
  const auto start = requests();
  for (int i = 0; i < 100; ++i) {
    auto empty = allocate(0).value();
    EXPECT_EQ(empty.data(), nullptr);
    EXPECT_EQ(empty.size_bytes(), 0U);
    free(empty);
    free(empty);
  }
  EXPECT_EQ(books(), before);
  EXPECT_EQ(requests(), std::pair(start.first + 100, start.second)) << "they were asked for all the same";
}

TEST_P(ManagerConformance, sizes_that_no_ledger_can_hold_are_overflow_whatever_the_budget) {
  for (auto const budget : {MemoryBudget::with_limit(kLimit), MemoryBudget::unlimited(), MemoryBudget::observe(1)}) {
    manager().set_budget(budget);
    const auto before = books();
    for (const std::uint64_t bytes : {kLargestRequest + 1, UINT64_MAX - 255, UINT64_MAX}) {
      const auto refused = allocate(bytes);
      ASSERT_FALSE(refused) << bytes;
      EXPECT_EQ(refused.error().kind, ErrorKind::overflow) << refused.error().to_string();
      EXPECT_EQ(refused.error().requested, bytes);
    }
    EXPECT_EQ(books(), before);
  }
}

TEST_P(ManagerConformance, alignment_that_is_no_power_of_two_is_refused_and_named) {
  const auto before = books();
  for (const std::uint64_t alignment : {std::uint64_t{3}, std::uint64_t{257}, UINT64_MAX}) {
    const auto refused = allocate(64, alignment);
    ASSERT_FALSE(refused) << alignment;
    EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr(std::to_string(alignment)));
  }
  EXPECT_EQ(books(), before);
}

TEST_P(ManagerConformance, small_alignment_is_raised_and_large_is_honoured) {
  std::vector<Held> blocks;
  for (std::uint64_t alignment = 1; alignment <= 1 << 20; alignment *= 2) {
    auto held = allocate(3, alignment);
    ASSERT_TRUE(held) << alignment << ": " << held.error().to_string();
    EXPECT_EQ(address(*held) % std::max(alignment, kMinimumAlignment), 0U);
    blocks.push_back(*std::move(held));
  }
  for (auto& held : blocks) free(held);
}

TEST_P(ManagerConformance, blocks_are_distinct_and_do_not_overlap) {
  std::mt19937_64 random{1};
  std::vector<Held> blocks;
  std::uint64_t bytes = 0;
  for (int i = 0; i < 200; ++i) {
    if (i % 3 == 2) {  // holes, to be filled again
      const auto victim = random() % blocks.size();
      bytes -= blocks[victim].size_bytes();
      free(blocks[victim]);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(victim));
      continue;
    }
    const std::uint64_t size = 1 + random() % 5000;
    auto held = allocate(size, std::uint64_t{256} << random() % 4);
    ASSERT_TRUE(held) << held.error().to_string();
    EXPECT_EQ(held->size_bytes(), size);
    bytes += size;
    blocks.push_back(*std::move(held));
  }
  expect_held(bytes, blocks.size());
  std::ranges::sort(blocks, {}, address);
  for (std::size_t at = 1; at < blocks.size(); ++at) {
    EXPECT_GE(address(blocks[at]), address(blocks[at - 1]) + (traits().owns_ranges ? blocks[at - 1].size_bytes() : 1));
  }
  for (auto& held : blocks) free(held);
}

TEST_P(ManagerConformance, peaks_and_manual_accounting_move_only_what_they_may) {
  auto held = allocate(1000).value();
  auto gone = allocate(2000).value();
  free(gone);
  EXPECT_EQ(manager().peak_bytes(), 3000U);
  const auto before = books();
  EXPECT_EQ(manager().record_free(1).error().kind, ErrorKind::invalid_argument);
  EXPECT_TRUE(manager().record_free(0));
  const auto busy = manager().reset_tracking();
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(busy.error().current, 1000U);
  EXPECT_EQ(books(), before);
  manager().reset_peak();
  EXPECT_EQ(manager().peak_bytes(), 1000U) << "never below what is allocated";
  free(held);
  EXPECT_EQ(manager().peak_bytes(), 1000U);
  EXPECT_EQ(manager().record_free(1).error().kind, ErrorKind::overflow) << "nothing is allocated: it would underflow";
  EXPECT_TRUE(manager().reset_tracking());
  EXPECT_EQ(manager().peak_bytes(), 0U);
}

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

INSTANTIATE_TEST_SUITE_P(every, ManagerConformance, ::testing::ValuesIn(testing::all_manager_cases()),
                         [](auto const& tested) { return tested.param.factory.name + tested.param.way.name; });

}  // namespace
}  // namespace headroom
