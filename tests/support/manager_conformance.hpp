// The suite that every manager passes through every way in (manager_factories.hpp). Each test ends with nothing left: not in the manager's
// books, not in its device's, not at the resource. A file with tests of it says TEST_P(ManagerConformance, …); one instantiates them all.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <utility>

#include <gtest/gtest.h>

#include "manager_factories.hpp"

namespace headroom::testing {

inline constexpr std::uint64_t kLimit = 1'000'000;  // of the manager's budget unless a test says otherwise
inline const AllocTag kConformanceTag{"conformance"};

class ManagerConformance : public ::testing::TestWithParam<ManagerCase> {
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
  [[nodiscard]] ManagerTraits const& traits() const { return GetParam().factory.traits; }
  [[nodiscard]] AllocationWay const& way() const { return GetParam().way; }
  [[nodiscard]] Result<Held> allocate(std::uint64_t bytes, std::uint64_t alignment = kMinimumAlignment) const {
    return allocate_(bytes, {.tag = kConformanceTag, .stream = {}, .alignment = alignment});
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
      EXPECT_EQ(stats.tag_bytes.has_value(), account.ledger_cell().has_value());
      if (stats.tag_bytes) {
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

  MadeManager made_;
  std::function<Result<Held>(std::uint64_t, AllocOptions const&)> allocate_;
  std::uint64_t left_at_device_ = 0;  // what a write-off left there
};

}  // namespace headroom::testing
