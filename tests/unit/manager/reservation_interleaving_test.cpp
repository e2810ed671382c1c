// The books at every step of a reservation's life, one thread stopped exactly there, and what others may do meanwhile.
#include <optional>
#include <ostream>
#include <thread>

#include "fake_stack.hpp"
#include "managers.hpp"
#include "stop_at.hpp"

#ifdef HEADROOM_TEST_POINTS

namespace headroom::test {
namespace {

// Beside 1,000 bytes that lie still, under a limit of 2,000.
struct Standstill {
  TestPoint point;
  std::uint64_t claimed, allocated, live, unspent;
};
std::ostream& operator<<(std::ostream& out, Standstill const& at) { return out << "point " << static_cast<int>(at.point); }

class ReservationAtEveryPoint : public testing::TestWithParam<Standstill> {
protected:
  ReservationAtEveryPoint() : still_{manager_.alloc<std::byte>(1000).value()} {}

  // Stops `operation`, of `in_flight` bytes, at the point; looks at the books and lets others go on meanwhile.
  template <class Operation>
  void stand_still(std::uint64_t in_flight, Operation&& operation) {
    std::thread worker;
    {
      const StopAt stop{GetParam().point};
      worker = std::thread{operation};
      StopAt::wait_until_reached();
      expect_books(in_flight);
      std::thread{[&] { EXPECT_TRUE(manager_.alloc<std::byte>(50).value().release()); }}.join();
      std::thread{[&] { EXPECT_TRUE(manager_.reserve_bytes(50)); }}.join();
      expect_books(in_flight);
    }
    worker.join();
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
    ASSERT_GE(ledger.claimed, live + ledger.unspent);
    EXPECT_LE(ledger.claimed - live - ledger.unspent, in_flight) << "invariant 6";
  }
  void expect_end(std::uint64_t claimed, std::uint64_t unspent) const {
    EXPECT_EQ(manager_.claimed_bytes(), claimed);
    EXPECT_EQ(manager_.audit().unspent, unspent);
    EXPECT_TRUE(manager_.audit().clean()) << manager_.audit().to_string();
  }

  GpuMemoryManager manager_ = null_manager(MemoryBudget::with_limit(2000));
  TrackedBuffer<std::byte> still_;
};

class Reserving : public ReservationAtEveryPoint {};
class Spending : public ReservationAtEveryPoint {};
class Dropping : public ReservationAtEveryPoint {};

TEST_P(Reserving, books_obey_the_invariants_and_others_go_on) {
  std::optional<GpuMemoryReservation> reservation;
  stand_still(300, [&] { reservation = manager_.reserve_bytes(300).value(); });
  expect_end(1300, 300);
}
INSTANTIATE_TEST_SUITE_P(Points, Reserving,
                         testing::Values(Standstill{TestPoint::reserve_before_claim, 1000, 1000, 1000, 0},
                                         Standstill{TestPoint::reserve_after_claim, 1300, 1000, 1000, 0},
                                         Standstill{TestPoint::reserve_after_unspent, 1300, 1000, 1000, 300},
                                         Standstill{TestPoint::operation_before_end, 1300, 1000, 1000, 300}));

TEST_P(Spending, books_obey_the_invariants_and_others_go_on) {
  auto reservation = manager_.reserve_bytes(500).value();
  std::optional<TrackedBuffer<std::byte>> buffer;
  stand_still(300, [&] { buffer = reservation.alloc<std::byte>(300).value(); });
  EXPECT_EQ(reservation.remaining_bytes(), 200U);
  expect_end(1500, 200);
}
INSTANTIATE_TEST_SUITE_P(Points, Spending,
                         testing::Values(Standstill{TestPoint::spend_before_unspent, 1500, 1000, 1000, 500},
                                         Standstill{TestPoint::spend_after_unspent, 1500, 1000, 1000, 200},
                                         Standstill{TestPoint::allocate_after_driver, 1500, 1000, 1000, 200},
                                         Standstill{TestPoint::allocate_after_slot, 1500, 1000, 1000, 200},
                                         Standstill{TestPoint::allocate_after_admit, 1500, 1300, 1000, 200},
                                         Standstill{TestPoint::book_before_peak, 1500, 1300, 1000, 200},
                                         Standstill{TestPoint::book_before_publish, 1500, 1300, 1000, 200},
                                         Standstill{TestPoint::book_before_record, 1500, 1300, 1300, 200},
                                         Standstill{TestPoint::operation_before_end, 1500, 1300, 1300, 200}));

TEST_P(Dropping, books_obey_the_invariants_and_others_go_on) {
  auto reservation = manager_.reserve_bytes(500).value();
  stand_still(500, [&] { reservation.release(); });
  expect_end(1000, 0);
}
INSTANTIATE_TEST_SUITE_P(Points, Dropping,
                         testing::Values(Standstill{TestPoint::drop_before_unspent, 1500, 1000, 1000, 500},
                                         Standstill{TestPoint::drop_after_unspent, 1500, 1000, 1000, 0},
                                         Standstill{TestPoint::unclaim_before_wake, 1000, 1000, 1000, 0},
                                         Standstill{TestPoint::unclaim_before_judge, 1000, 1000, 1000, 0},
                                         Standstill{TestPoint::drop_after_unclaim, 1000, 1000, 1000, 0},
                                         Standstill{TestPoint::operation_before_end, 1000, 1000, 1000, 0}));

// Released while an allocation is under way: the rest waits for it, and the thread that allocates gives it back.
TEST(ReservationInterleaving, a_release_beside_an_allocation_under_way_leaves_the_rest_to_it) {
  FakeRuntime fake{{.limit = 1000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  auto reservation = manager.reserve_bytes(500).value();
  std::optional<TrackedBuffer<std::byte>> buffer;
  std::thread worker;
  {
    const StopAt stop{TestPoint::allocate_after_driver};
    worker = std::thread{[&] { buffer = reservation.alloc<std::byte>(300).value(); }};
    StopAt::wait_until_reached();
    reservation.release();
    EXPECT_EQ(reservation.remaining_bytes(), 0U);
    EXPECT_EQ(manager.claimed_bytes(), 500U);
    EXPECT_EQ(manager.audit().unspent, 200U);
    EXPECT_EQ(fake.stack->figures().unreserves, 0);
    EXPECT_EQ(reservation.alloc<std::byte>(1).error().kind, ErrorKind::invalid_argument);
  }
  worker.join();
  EXPECT_EQ(manager.claimed_bytes(), 300U);
  EXPECT_EQ(manager.audit().unspent, 0U);
  EXPECT_EQ(fake.stack->figures().unreserves, 1);
  EXPECT_EQ(fake.stack->figures().claimed, 300U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

// The same, and the device refuses that allocation: its bytes come back through the reservation, once.
TEST(ReservationInterleaving, a_release_beside_an_allocation_that_fails_gives_all_back) {
  FakeRuntime fake{{.limit = 1000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  auto reservation = manager.reserve_bytes(500).value();
  fake.host->faults().add({.operation = FaultOperation::allocate, .kind = ErrorKind::driver});
  std::thread worker;
  {
    const StopAt stop{TestPoint::refusal_before_record};
    worker = std::thread{[&] { EXPECT_FALSE(reservation.alloc<std::byte>(300)); }};
    StopAt::wait_until_reached();
    reservation.release();
    EXPECT_EQ(manager.claimed_bytes(), 500U);
    EXPECT_EQ(manager.audit().unspent, 500U);
  }
  worker.join();
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(fake.stack->figures().unreserves, 1);
  EXPECT_EQ(fake.stack->figures().claimed, 0U);
  EXPECT_EQ(fake.stack->figures().unspent, 0U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

// Between the look and the claim another thread takes the room: what was reserved below goes back.
TEST(ReservationInterleaving, room_that_goes_between_look_and_claim_is_refused_without_a_trace_below) {
  FakeRuntime fake{{.limit = 5000}};
  auto manager = fake.manager(MemoryBudget::with_limit(1000));
  std::optional<TrackedBuffer<std::byte>> other;
  std::thread worker;
  {
    const StopAt stop{TestPoint::reserve_before_claim};
    worker = std::thread{[&] {
      auto refused = manager.reserve_bytes(500);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().layer, Layer::manager);
      EXPECT_EQ(refused.error().current, 600U);
    }};
    StopAt::wait_until_reached();
    EXPECT_EQ(fake.stack->figures().unspent, 500U);
    other = manager.alloc<std::byte>(600).value();
  }
  worker.join();
  EXPECT_EQ(manager.claimed_bytes(), 600U);
  EXPECT_EQ(fake.stack->figures().claimed, 600U);
  EXPECT_EQ(fake.stack->figures().unspent, 0U);
  EXPECT_EQ(fake.stack->figures().unreserves, 1);
}

// A handle that goes while a buffer of its overlay is being freed: the runtime stays until that free no longer needs it.
TEST(OverlayInterleaving, a_handle_dropped_inside_a_free_leaves_the_runtime_to_it) {
  FakeRuntime base;
  auto parent = GpuMemoryManager::create(base.device, MemoryBudget::unlimited()).value();
  auto decorated = std::make_shared<FakeStack>(base.host, FakeStackOptions{});
  const std::weak_ptr<FakeStack> stack = decorated;
  std::optional overlay{
      parent.with_runtime_overlay(DeviceRuntime::create(base.device, {.stack = std::move(decorated)}).value()).value()};
  std::optional buffer{overlay->alloc<std::byte>(300).value()};
  std::thread worker;
  {
    const StopAt stop{TestPoint::free_before_driver};
    worker = std::thread{[&] { EXPECT_TRUE(buffer->release()); }};
    StopAt::wait_until_reached();
    overlay.reset();
    EXPECT_FALSE(stack.expired()) << "the free is about to go through it";
  }
  worker.join();
  EXPECT_EQ(stack.lock()->figures().deallocates, 1);
  EXPECT_EQ(parent.claimed_bytes(), 0U);
}

}  // namespace
}  // namespace headroom::test

#endif
