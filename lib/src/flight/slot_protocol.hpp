// The protocol of one slot of the live table: who may change its words, and how readers know that what they copied is one
// allocation's.
//
//   taken    its bit in the share was 0 and is 1 now        acquire, pairs with the release of whoever gave it back
//   publish  state := generation + 1, writing · fields · state := live        fields and last store release
//   move     live → freeing, freeing → failed, failed → freeing               CAS; or a plain store by the block's only owner
//   clear    state := free                                                    release
//   given    its bit is 0 again
//
// Why no copy mixes two allocations: a field of a later one, loaded with acquire, brings along the `writing` mark stored before it,
// so the reader's second look at the state (read_guarded) sees that mark or something newer, and never the value it began with, as
// generations only grow. tests/model runs this file under a model checker.
//
// Thread safety: static functions over shared words. Cost: what the stores cost; the functions vanish.
#pragma once

#include <cstdint>

#include <headroom/flight_format.hpp>

#include "flight/book_readers.hpp"

namespace headroom::flight {

template <class Atomics>
struct SlotProtocol {
  using Word = typename Atomics::Word;

  // ── The bit that says who may write ──

  /// `bits` becomes what the bitmap's word held before. One try: the caller looks for another 0 in `bits` when it was lost.
  static bool take(Word& bitmap, std::uint64_t bit, std::uint64_t& bits) noexcept {
    // Acquire: the slot's last owner cleared it before it gave the bit back (release).
    bits = Atomics::fetch_or_acquire(bitmap, bit);
    return (bits & bit) == 0;
  }
  static void give(Word& bitmap, std::uint64_t bit) noexcept { Atomics::fetch_and_release(bitmap, ~bit); }

  // ── The slot's words ──

  /// `put_fields()` stores every field with put(). Only by whoever took the slot. Returns the generation.
  template <class PutFields>
  static std::uint64_t publish(Word& state, PutFields&& put_fields) noexcept {
    const std::uint64_t generation = slot_generation(Atomics::load_relaxed(state)) + 1;
    // Relaxed would do: the fields' release stores carry it. Release costs nothing on x86 and stays, like every word of a slot.
    Atomics::store_release(state, pack_slot(generation, SlotState::free, true));
    put_fields();
    Atomics::store_release(state, pack_slot(generation, SlotState::live, false));
    return generation;
  }
  static void put(Word& field, std::uint64_t value) noexcept { Atomics::store_release(field, value); }
  static std::uint64_t get(Word const& field) noexcept { return Atomics::load_acquire(field); }

  /// False when the slot is in another state or of another generation.
  static bool move(Word& state, std::uint64_t generation, SlotState from, SlotState to) noexcept {
    std::uint64_t expected = pack_slot(generation, from, false);
    return Atomics::cas_acq_rel(state, expected, pack_slot(generation, to, false));
  }
  /// live → freeing where no other thread can hold the block.
  static bool move_by_owner(Word& state, std::uint64_t generation) noexcept {
    if (Atomics::load_relaxed(state) != pack_slot(generation, SlotState::live, false)) return false;
    Atomics::store_release(state, pack_slot(generation, SlotState::freeing, false));
    return true;
  }
  /// By whoever moved it to freeing.
  static void clear(Word& state) noexcept {
    Atomics::store_release(state, pack_slot(slot_generation(Atomics::load_relaxed(state)), SlotState::free, false));
  }

  // ── Readers ──

  static constexpr GuardSays judge(std::uint64_t state) noexcept {
    if ((state & kSlotWriting) != 0) return GuardSays::writing;
    // Three bits name four states: what a damaged file may hold besides is none of them.
    return slot_state(state) == SlotState::free || slot_state(state) > SlotState::failed ? GuardSays::unwanted
                                                                                         : GuardSays::readable;
  }
  /// `copy_fields(state)` loads every field with get().
  template <class CopyFields>
  [[nodiscard]] static GuardedRead read(Word const& state, CopyFields&& copy_fields) {
    return read_guarded<Atomics>(state, judge, copy_fields);
  }
};

}  // namespace headroom::flight
