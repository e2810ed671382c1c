// The books at every step of a reservation's life, one thread stopped exactly there, and what others may do meanwhile.
#include <memory>
#include <optional>

#include "fake_stack.hpp"
#include "managers.hpp"
#include "standstill.hpp"

#ifdef HEADROOM_TEST_POINTS

namespace headroom::test {
namespace {

class Reserving : public AtEveryPoint {};
class Spending : public AtEveryPoint {};
class Dropping : public AtEveryPoint {};

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
  while_stopped_at(
      TestPoint::allocate_after_driver, [&] { buffer = reservation.alloc<std::byte>(300).value(); },
      [&] {
        reservation.release();
        EXPECT_EQ(reservation.remaining_bytes(), 0U);
        EXPECT_EQ(manager.claimed_bytes(), 500U);
        EXPECT_EQ(manager.audit().unspent, 200U);
        EXPECT_EQ(fake.stack->figures().unreserves, 0);
        EXPECT_EQ(reservation.alloc<std::byte>(1).error().kind, ErrorKind::invalid_argument);
      });
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
  while_stopped_at(
      TestPoint::refusal_before_record, [&] { EXPECT_FALSE(reservation.alloc<std::byte>(300)); },
      [&] {
        reservation.release();
        EXPECT_EQ(manager.claimed_bytes(), 500U);
        EXPECT_EQ(manager.audit().unspent, 500U);
      });
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
  while_stopped_at(
      TestPoint::reserve_before_claim,
      [&] {
        auto refused = manager.reserve_bytes(500);
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().layer, Layer::manager);
        EXPECT_EQ(refused.error().current, 600U);
      },
      [&] {
        EXPECT_EQ(fake.stack->figures().unspent, 500U);
        other = manager.alloc<std::byte>(600).value();
      });
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
  std::shared_ptr<FakeStack> held;  // taken meanwhile, to look at what the free did before it lets go
  std::optional overlay{
      parent.with_runtime_overlay(DeviceRuntime::create(base.device, {.stack = std::move(decorated)}).value()).value()};
  std::optional buffer{overlay->alloc<std::byte>(300).value()};
  while_stopped_at(
      TestPoint::free_before_driver, [&] { EXPECT_TRUE(buffer->release()); },
      [&] {
        overlay.reset();
        held = stack.lock();
        EXPECT_NE(held, nullptr) << "the free is about to go through it";
      });
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(held->figures().deallocates, 1);
  held.reset();
  EXPECT_TRUE(stack.expired()) << "nobody needs it any more";
  EXPECT_EQ(parent.claimed_bytes(), 0U);
}

}  // namespace
}  // namespace headroom::test

#endif
