// The books while an operation stands exactly between two of its steps, and what others may do meanwhile. Only in builds with test
// points.
#pragma once

#include <cstdint>
#include <ostream>
#include <thread>

#include "managers.hpp"
#include "stop_at.hpp"

namespace headroom::test {

/// What a reader finds while an operation stands at `point`.
struct Standstill {
  TestPoint point;
  std::uint64_t claimed, allocated, live, unspent;
};
inline std::ostream& operator<<(std::ostream& out, Standstill const& at) { return out << "point " << static_cast<int>(at.point); }

/// A manager with a limit of 2,000, of which 1,000 bytes lie still beside the operation.
class AtEveryPoint : public ::testing::TestWithParam<Standstill> {
protected:
  /// Stops `operation`, of `in_flight` bytes, at the point; looks at the books and lets others go on meanwhile.
  template <class Operation>
  void stand_still(std::uint64_t in_flight, Operation&& operation) {
    while_stopped_at(GetParam().point, operation, [&] {
      expect_books(in_flight);
      expect_others_go_on();
      expect_books(in_flight);
    });
  }

  void expect_books(std::uint64_t in_flight) const {
    auto const& expected = GetParam();
    const auto ledger = snapshot_of(manager_);
    std::uint64_t live = 0;
    flight::FlightView::of_this_process()->for_each_live([&](flight::LiveAllocation const& block) {
      if (block.ledger == ledger.cell) live += block.bytes;
    });
    EXPECT_EQ(ledger.claimed, expected.claimed);
    EXPECT_EQ(ledger.allocated, expected.allocated);
    EXPECT_EQ(live, expected.live);
    EXPECT_EQ(ledger.unspent, expected.unspent);
    EXPECT_EQ(ledger.in_flight_bytes, in_flight);
    EXPECT_GE(ledger.peak, ledger.allocated);
    ASSERT_GE(ledger.claimed, live + ledger.unspent);
    EXPECT_LE(ledger.claimed - live - ledger.unspent, in_flight) << "invariant 6";
  }

  /// Nobody waits for the one that stands: others allocate, free and reserve as ever.
  void expect_others_go_on() {
    std::thread{[&] {
      auto other = manager_.alloc<std::byte>(50);
      ASSERT_TRUE(other);
      EXPECT_EQ(manager_.claimed_bytes(), GetParam().claimed + 50);
      ASSERT_TRUE(other->release());
    }}.join();
    std::thread{[&] { EXPECT_TRUE(manager_.reserve_bytes(50)); }}.join();
    EXPECT_EQ(manager_.claimed_bytes(), GetParam().claimed);
  }

  void expect_end(std::uint64_t claimed, std::uint64_t unspent) const {
    EXPECT_EQ(manager_.claimed_bytes(), claimed);
    EXPECT_EQ(manager_.allocated_bytes(), claimed - unspent);
    EXPECT_GE(manager_.peak_bytes(), claimed - unspent);
    EXPECT_EQ(manager_.audit().unspent, unspent);
    EXPECT_TRUE(manager_.audit().clean()) << manager_.audit().to_string();
  }

  GpuMemoryManager manager_ = null_manager(MemoryBudget::with_limit(2000));
  TrackedBuffer<std::byte> still_ = manager_.alloc<std::byte>(1000).value();
};

}  // namespace headroom::test
