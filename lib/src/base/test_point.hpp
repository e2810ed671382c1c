// Named points between the steps of the protocols, where a test may stop a thread. Compiled out unless HEADROOM_TEST_POINTS is set:
// a release has neither the call nor the load.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom {

/// In the order of books: between which two steps a thread stands.
enum class TestPoint : std::uint8_t {
  allocate_before_claim,
  allocate_after_claim,
  allocate_after_driver,
  allocate_after_slot,
  allocate_after_admit,
  book_before_publish,
  book_before_record,
  free_before_driver,
  free_after_driver,
  free_after_slot,
  free_after_retire,
  free_after_unclaim,
  // Ways out that are not the common ones.
  claim_before_retry,   ///< refused beside claims in flight elsewhere, about to look again
  refusal_before_book,  ///< nothing of the refusal is booked yet; a resource's refusal has given its claim back
  refusal_before_record,
  free_failed_before_move,    ///< the driver said no, the slot still says `freeing`
  free_failed_before_record,  ///< the slot says `failed`
  operation_before_end,       ///< all is booked and recorded; the in-flight word still names the operation
  // What other threads look at.
  book_before_peak,        ///< admitted and counted, the peak not yet raised
  unclaim_before_wake,     ///< the bytes are back, nobody knows
  unclaim_before_judge,    ///< waiters were woken, the pressure state is the old one
  budget_before_wake,      ///< the new limit is in force, nobody knows
  pressure_before_record,  ///< the state changed, its event is not written
  wait_before_epoch,       ///< announced, neither epoch nor policy read
  wait_before_sleep,       ///< announced, epoch read, claim refused: about to sleep
  lane_before_give_back,   ///< a thread ends: its kept slots were returned, its lane is still its own
  // Reservations.
  reserve_before_claim,
  reserve_after_claim,
  reserve_after_unspent,
  spend_before_unspent,  ///< the token has given the bytes up, the ledger still calls them unspent
  spend_after_unspent,
  drop_before_unspent,
  drop_after_unspent,
  drop_after_unclaim,
  // Device accounts: memory is the device's again.
  return_before_retire,   ///< no longer pending, still allocated
  return_before_unclaim,  ///< no longer allocated, still claimed
  room_before_claim,      ///< short of room: the frees under way were looked at
  room_after_claim,       ///< … the claim was refused, and they are about to be looked at again
  // Within a claim.
  claim_before_exchange,  ///< the request was found to fit, nothing is taken yet
  // Followers of a log.
  flush_asked,  ///< the follower's thread will see the wish. Its mutex is held: a handler may not wait for that thread
  // Notices of pressure.
  pressure_before_note,    ///< the change's event is written, nobody who listens can know of it yet
  notices_before_give_up,  ///< everything was told, the right to tell is about to be given up
  notices_after_give_up,   ///< … was given up; about to look once more
  // Ledgers whose cell changes hands.
  open_before_generation,  ///< the base of the new ledger is stored, and nothing else of it
  read_before_earlier,     ///< a reader has the counters of a ledger, and not yet what its cell had counted before it
  // Hooks and listeners that run elsewhere. Passed under the list's mutex: a handler may note that, and must not wait.
  hook_before_wait,
  removal_before_wait,
  listeners_locked,  ///< the mutex over a list of listeners was taken. A handler that waits keeps all that need it
};
inline constexpr std::uint8_t kTestPointCount = static_cast<std::uint8_t>(TestPoint::listeners_locked) + 1;

#ifdef HEADROOM_TEST_POINTS
inline constexpr bool kTestPoints = true;
#else
inline constexpr bool kTestPoints = false;
#endif

using TestPointHandler = void (*)(TestPoint) noexcept;
/// Set by tests before their threads start; null does nothing.
inline constinit std::atomic<TestPointHandler> test_point_handler{nullptr};

inline void test_point(TestPoint point) noexcept {
  if constexpr (kTestPoints) {
    if (const auto handler = test_point_handler.load(std::memory_order_acquire); handler != nullptr) handler(point);
  } else {
    static_cast<void>(point);
  }
}

}  // namespace headroom
