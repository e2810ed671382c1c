// The live table: one slot for each live allocation, taken and given back without a lock.
//
// A slot is taken through its share's bitmap and belongs to the taker until publish(); a block then knows slot and generation, which
// alone tells a double free and a stale one. States: free → (published) live → freeing → free, or failed, from where a retry goes to
// freeing again. Only the thread that moved the state by CAS goes on. The order of every access is slot_protocol.hpp's.
#pragma once

#include <cstdint>

#include <headroom/flight_format.hpp>

#include "base/atomics.hpp"
#include "flight/recorder.hpp"
#include "flight/slot_protocol.hpp"
#include "flight/thread_state.hpp"

namespace headroom::flight {

inline constexpr std::uint32_t kNoSlot = 0xFFFFFFFFU;

using SlotSteps = SlotProtocol<StdAtomics>;

/// What a slot says of its block.
struct LiveEntry {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 0;
  std::uint64_t stream = 0;
  std::uint64_t ticks = 0;
  std::uint64_t operation = 0;
  std::uint32_t tag = 0;
  std::uint32_t ledger = 0;
  std::uint32_t site = 0;
  std::uint32_t thread = 0;
};

/// Takes a free slot: one that this thread freed lately, else from its own share, else from a neighbour's; kNoSlot when all are taken.
/// Up to kSlotCache freed slots wait in each thread that owns a lane; their bitmap bits stay set, their state says `free`.
[[nodiscard]] std::uint32_t take_slot_from_shares(ThreadState& thread) noexcept;
[[nodiscard]] inline std::uint32_t take_slot(ThreadState& thread) noexcept {
  return thread.may_cache_slots() && thread.cached_slots != 0 ? thread.slot_cache[--thread.cached_slots]
                                                              : take_slot_from_shares(thread);
}

/// Makes a taken slot live; returns its generation.
std::uint64_t publish_slot(std::uint32_t slot, LiveEntry const& entry) noexcept;

/// Moves a slot of this generation from `from` to `to`; false when it is in another state or of another generation.
[[nodiscard]] bool move_slot(std::uint32_t slot, std::uint64_t generation, SlotState from, SlotState to) noexcept;

/// live → freeing by the block's only owner: a check and a store, without the CAS that competing owners need.
[[nodiscard]] inline bool move_slot_of_owner(std::uint32_t slot, std::uint64_t generation) noexcept {
  return SlotSteps::move_by_owner(recorder.slots[slot].state, generation);
}

/// Clears a slot in state freeing and gives it back. Also gives back a slot that was taken and never published.
void return_slot_to_share(std::uint32_t slot) noexcept;
inline void give_slot_back(ThreadState& thread, std::uint32_t slot) noexcept {
  SlotSteps::clear(recorder.slots[slot].state);
  if (thread.may_cache_slots() && thread.cached_slots < kSlotCache) [[likely]] {
    thread.slot_cache[thread.cached_slots++] = slot;
  } else {
    return_slot_to_share(slot);
  }
}
/// Returns a thread's cached slots to their shares: when it gives its lane back.
void flush_slot_cache(ThreadState& thread) noexcept;

/// The present word 0 of a slot.
[[nodiscard]] std::uint64_t slot_word(std::uint32_t slot) noexcept;

/// Reads a slot with the readers' protocol; false when it is free, or being written each time that we looked.
[[nodiscard]] bool read_slot(std::uint32_t slot, std::uint64_t& word, LiveEntry& entry) noexcept;

}  // namespace headroom::flight
