// The free path of a manager: the driver first, the budget last. A free that fails keeps its bytes charged and can be tried again.
#include "manager/release.hpp"
#include "base/clock.hpp"
#include "base/test_point.hpp"
#include "base/thrown_error.hpp"
#include "device/guarded.hpp"
#include "flight/live_table.hpp"
#include "flight/recorder.hpp"
#include "manager/block.hpp"
#include "manager/core.hpp"
#include "manager/errors.hpp"

namespace headroom::manager {
namespace {

using flight::EventKind;
using flight::InFlight;
using flight::LaneSection;
using flight::SlotState;
using ledger::Booking;
using ledger::Ledger;

// A published slot has a generation of at least 1.
bool is_tracked(Allocation const& allocation) noexcept { return allocation.slot_generation != 0; }

Booking booking_of(Allocation const& allocation, std::uint64_t start_ticks) noexcept {
  return {.bytes = allocation.bytes,
          .alignment = std::uint64_t{1} << allocation.alignment_log2,
          .address = reinterpret_cast<std::uintptr_t>(allocation.pointer),
          .stream = allocation.stream,
          .start_ticks = start_ticks,
          .end_ticks = ticks_now(),
          .tag = {allocation.tag_entry, allocation.tag_cell},
          .site = allocation.site,
          .slot = is_tracked(allocation) ? allocation.slot : flight::kNoSlot};
}

// No exception leaves the library, whatever a user's resource throws.
Result<void> ask_resource(Allocation const& allocation) noexcept {
  return device::guarded([&] { return allocation.route->resource().deallocate(block_of(allocation)); });
}

// The block was freed before, or another block lives in its slot now. Nothing is touched; the driver is not asked.
Result<void> refuse_misuse(Allocation const& allocation, flight::ThreadState& thread, std::uint64_t start_ticks) {
  const std::uint64_t word = flight::slot_word(allocation.slot);
  const bool same_block = flight::slot_generation(word) == allocation.slot_generation;
  const ErrorKind kind = same_block ? ErrorKind::double_free : ErrorKind::use_after_free;
  {
    const LaneSection section{thread};
    allocation.route->ledger().book_misuse(section, booking_of(allocation, start_ticks), kind);
  }
  return fail(kind, Layer::manager, words([&] {
                return std::string{
                    same_block ? "the block is already being freed, or its free failed before"
                               : "the block was freed before; its place in the live table belongs to another allocation now"};
              }));
}

void book_failure(Allocation const& allocation, flight::ThreadState& thread, std::uint64_t start_ticks, Error const& error,
                  bool first) {
  Ledger& ledger = allocation.route->ledger();
  test_point(TestPoint::free_failed_before_move);
  if (first) {
    ledger.cell().failed_free_bytes.fetch_add(allocation.bytes, std::memory_order_relaxed);
    ledger.cell().failed_frees.fetch_add(1, std::memory_order_relaxed);
  }
  if (is_tracked(allocation)) {
    // Ours alone while it says `freeing`: the move cannot fail.
    static_cast<void>(flight::move_slot(allocation.slot, allocation.slot_generation, SlotState::freeing, SlotState::failed));
    allocation.route->core().quarantine(allocation);
  }
  const LaneSection section{thread};
  ledger.book_free_failure(section, booking_of(allocation, start_ticks), error.kind, error.layer);
}

void book_success(Allocation const& allocation, flight::ThreadState& thread, std::uint64_t start_ticks, EventKind kind) {
  Ledger& ledger = allocation.route->ledger();
  allocation.route->note_gone(thread);  // no more use of the route from here on
  if (is_tracked(allocation)) {
    flight::give_slot_back(thread, allocation.slot);
  } else {
    ledger.cell().live_untracked_bytes.fetch_sub(allocation.bytes, std::memory_order_acq_rel);
    ledger.cell().live_untracked.fetch_sub(1, std::memory_order_relaxed);
  }
  test_point(TestPoint::free_after_slot);
  Booking booking = booking_of(allocation, start_ticks);
  booking.alloc_word = ledger.retire(booking.bytes);
  test_point(TestPoint::free_after_retire);
  const LaneSection section{thread};
  ledger.book_free(section, booking, kind);
}

// One try to free a block whose slot this thread moved to `freeing`. `again`: it failed before, and stands in the failed figures.
Result<void> free_block(Allocation const& allocation, flight::ThreadState& thread, std::uint64_t start_ticks, bool again) {
  test_point(TestPoint::free_before_driver);
  Result<void> freed = ask_resource(allocation);
  test_point(TestPoint::free_after_driver);
  if (!freed) {
    book_failure(allocation, thread, start_ticks, freed.error(), !again);
    return freed;
  }
  if (again) forget_failure(allocation);
  book_success(allocation, thread, start_ticks, EventKind::free);
  return freed;
}

// What every release of an owner is: `free(thread, start ticks, lets_go)` between the marks of an operation, after which the owner is
// empty unless it says otherwise.
template <class Free>
[[gnu::always_inline]] inline Result<void> in_one_operation(Allocation& allocation, Free const& free) {
  if (allocation.route == nullptr) return success();  // empty, or released before
  // In a forked child the device and the books are the parent's: letting go is all that may happen here.
  if (flight::in_forked_child()) {
    allocation.clear();
    return success();
  }
  flight::ThreadState& thread = flight::this_thread();
  const std::uint64_t start_ticks = ticks_now();
  Route& route = *allocation.route;
  ledger::InFlightScope in_flight{thread, route.ledger(), InFlight::freeing, allocation.bytes, start_ticks};
  bool lets_go = true;
  Result<void> freed = free(thread, start_ticks, lets_go);
  if (!lets_go) return freed;
  allocation.clear();
  in_flight.end();
  route.core().note_freed(route);
  return freed;
}

}  // namespace

void forget_failure(Allocation const& allocation) noexcept {
  auto& cell = allocation.route->ledger().cell();
  cell.failed_free_bytes.fetch_sub(allocation.bytes, std::memory_order_relaxed);
  cell.failed_frees.fetch_sub(1, std::memory_order_relaxed);
}

Result<void> release(Allocation& allocation) {
  return in_one_operation(allocation, [&](flight::ThreadState& thread, std::uint64_t start_ticks, bool& /*lets_go*/) {
    // A buffer has one owner, so nobody else moves its slot away from `live`; only a copy of the buffer's bytes could, after the fact.
    return !is_tracked(allocation) || flight::move_slot_of_owner(allocation.slot, allocation.slot_generation)
               ? free_block(allocation, thread, start_ticks, false)
               : refuse_misuse(allocation, thread, start_ticks);
  });
}

Result<void> release_or_keep(Allocation& allocation) {
  return in_one_operation(allocation, [&](flight::ThreadState& thread, std::uint64_t start_ticks, bool& lets_go) -> Result<void> {
    lets_go = false;
    if (is_tracked(allocation) && !flight::move_slot_of_owner(allocation.slot, allocation.slot_generation)) {
      return refuse_misuse(allocation, thread, start_ticks);
    }
    test_point(TestPoint::free_before_driver);
    Result<void> freed = ask_resource(allocation);
    test_point(TestPoint::free_after_driver);
    if (freed) {
      book_success(allocation, thread, start_ticks, EventKind::free);
      lets_go = true;
      return freed;
    }
    if (is_tracked(allocation)) {
      // As it was: nobody else can have moved a slot that says `freeing`.
      static_cast<void>(flight::move_slot(allocation.slot, allocation.slot_generation, SlotState::freeing, SlotState::live));
    }
    const LaneSection section{thread};
    allocation.route->ledger().book_free_failure(section, booking_of(allocation, start_ticks), freed.error().kind,
                                                 freed.error().layer);
    return freed;
  });
}

void release_or_count(Allocation& allocation) noexcept {
  if (allocation.route == nullptr) return;
  // The failure was counted and the block kept for a retry: a destructor has nobody to tell.
  static_cast<void>(release(allocation));
}

bool host_accessible(Allocation const& allocation) noexcept {
  return allocation.pointer != nullptr && allocation.route->resource().host_accessible();
}

Result<void> retry(Allocation const& allocation) {
  flight::ThreadState& thread = flight::this_thread();
  const std::uint64_t start_ticks = ticks_now();
  ledger::InFlightScope in_flight{thread, allocation.route->ledger(), InFlight::freeing, allocation.bytes, start_ticks};
  if (is_tracked(allocation) &&
      !flight::move_slot(allocation.slot, allocation.slot_generation, SlotState::failed, SlotState::freeing)) {
    return fail(ErrorKind::double_free, Layer::manager,
                words([] { return std::string{"the block is no longer in quarantine"}; }));
  }
  allocation.route->ledger().tallies().retries.fetch_add(1, std::memory_order_relaxed);
  Result<void> freed = free_block(allocation, thread, start_ticks, true);
  in_flight.end();
  allocation.route->core().note_freed(*allocation.route);
  return freed;
}

Result<void> retry_by_owner(Allocation const& allocation) {
  if (is_tracked(allocation)) allocation.route->core().leave_quarantine(allocation);
  return retry(allocation);
}

bool write_off(Allocation const& allocation) {
  flight::ThreadState& thread = flight::this_thread();
  const std::uint64_t start_ticks = ticks_now();
  ledger::InFlightScope in_flight{thread, allocation.route->ledger(), InFlight::freeing, allocation.bytes, start_ticks};
  if (!flight::move_slot(allocation.slot, allocation.slot_generation, SlotState::failed, SlotState::freeing)) return false;
  forget_failure(allocation);
  book_success(allocation, thread, start_ticks, EventKind::write_off);
  in_flight.end();
  allocation.route->core().note_freed(*allocation.route);
  return true;
}

}  // namespace headroom::manager
