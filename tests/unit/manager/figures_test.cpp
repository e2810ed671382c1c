// Figures after resets, beside other threads, and of frees that somebody refused.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

#include <headroom/fault_plan.hpp>

#include "doors.hpp"
#include "managers.hpp"

namespace headroom::test {
namespace {

// The base of a reset that comes between the two halves of a look must not exceed the sum that was read before it.
TEST(Figures, the_count_of_requests_never_wraps_beside_resets) {
  auto manager = null_manager(MemoryBudget::unlimited());
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> resets{0};
  std::thread other{[&] {
    while (!stop.load()) {
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(manager.alloc<std::byte>(0));
      manager.reset_alloc_count();
      resets.fetch_add(1);
    }
  }};
  std::uint64_t largest = 0;
  for (std::uint64_t looks = 0; looks < 20'000 || resets.load() < 100; ++looks)
    largest = std::max(largest, manager.alloc_count());
  stop.store(true);
  other.join();
  EXPECT_LT(largest, std::uint64_t{1} << 62);
}

TEST(Figures, every_free_that_the_device_refused_counts_and_none_that_the_manager_refused) {
  auto host = host_manager(MemoryBudget::unlimited());
  auto& manager = host.manager;
  auto buffer = manager.alloc<std::byte>(100).value();
  host.resource->faults().add({.operation = FaultOperation::deallocate, .nth = 1, .kind = ErrorKind::double_free});
  EXPECT_FALSE(buffer.release());
  EXPECT_EQ(manager.deallocation_failure_bytes(), 100U);
  EXPECT_EQ(manager.deallocation_failure_count(), 1U) << "what the device calls misuse is a failure all the same";

  auto door = door_on(manager);
  int never_given_out = 0;
  EXPECT_EQ(door.deallocate(&never_given_out, 4).error().kind, ErrorKind::unknown_pointer);
  EXPECT_EQ(manager.deallocation_failure_count(), 1U) << "the device never heard of it";
  EXPECT_EQ(manager.retry_failed_deallocations(), 1U);
  EXPECT_EQ(manager.deallocation_failure_bytes(), 0U);
  EXPECT_EQ(manager.deallocation_failure_count(), 1U);
}

// The journal hears of a peak that moved by a 256th of the budget: 4 MiB.
TEST(Figures, after_a_reset_the_journal_hears_of_peaks_below_the_old_one) {
  auto manager = null_manager(MemoryBudget::with_limit(1U << 30));
  {
    auto high = manager.alloc<std::byte>(900U << 20).value();
  }
  manager.reset_peak();
  auto peaks_told = [&, watch = EventWatch{}, before = std::size_t{0}]() mutable {
    const std::size_t now = watch.count(manager, flight::EventKind::peak);
    return now - std::exchange(before, now);
  };
  {
    auto lower = manager.alloc<std::byte>(500U << 20).value();
    EXPECT_EQ(peaks_told(), 1U);
    manager.reset_peak();
    auto near = manager.alloc<std::byte>(3U << 20).value();
    EXPECT_EQ(peaks_told(), 0U) << "3 MiB above what was held at the reset";
    auto beyond = manager.alloc<std::byte>(1U << 20).value();
    EXPECT_EQ(peaks_told(), 1U);
  }
  ASSERT_TRUE(manager.reset_tracking());
  auto small = manager.alloc<std::byte>(4U << 20).value();
  EXPECT_EQ(peaks_told(), 1U);
}

}  // namespace
}  // namespace headroom::test
