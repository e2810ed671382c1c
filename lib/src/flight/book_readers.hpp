// headroom: how the words of the books are read while threads change them.
//
// Three protocols, each a template over an atomics policy (base/atomics.hpp), so that a model checker compiles this very file:
// the three words of a ledger, a tag cell beside its ledger's peak, and whatever lies behind a guard word that is changed before
// and after its fields (directory entries, live slots, clock syncs). None waits for a writer: tries are bounded.
//
// Thread safety: pure functions over shared words, which they only load. Cost: a few loads when nobody is writing.
#pragma once

#include <algorithm>
#include <cstdint>

#include <headroom/flight_format.hpp>

namespace headroom::flight {

/// Bytes of one ledger. allocated ≤ claimed and allocated ≤ peak, always.
struct LedgerBytes {
  std::uint64_t claimed = 0;
  std::uint64_t allocated = 0;
  std::uint64_t peak = 0;
  std::uint64_t peak_word = 0;         ///< as loaded: tells which peak it was
  std::uint64_t operation_number = 0;  ///< of the operation that made `allocated` what it is
};

inline constexpr int kClaimTries = 64;

/// Claim, alloc, claim: taken when claim, with its version, is the same twice. Two plain loads show allocated > claimed now and
/// then, in either order. After 64 tries the larger is shown as claimed, which is what claim was at some instant between.
template <class Atomics>
[[nodiscard]] LedgerBytes read_ledger_bytes(typename Atomics::Word const& claim_word, typename Atomics::Word const& alloc_word,
                                            typename Atomics::Word const& peak_word) {
  // Acquire: a claim that shows a free's return brings along the `alloc` that was lowered before it.
  auto claim = Atomics::load_acquire(claim_word);
  std::uint64_t alloc = 0;
  for (int i = 0; i < kClaimTries; ++i) {
    // Acquire: an `alloc` that shows an allocation brings along its claim, which the next load then sees.
    alloc = Atomics::load_acquire(alloc_word);
    auto const claim_after = Atomics::load_acquire(claim_word);
    if (claim_after == claim) break;
    claim = claim_after;
  }
  LedgerBytes bytes;
  bytes.allocated = alloc & kBytesMask;
  bytes.operation_number = alloc >> kBytesBits;
  bytes.claimed = std::max(claim & kBytesMask, bytes.allocated);
  // After alloc, and the larger is shown: a thread raises peak only after it raised alloc.
  bytes.peak_word = Atomics::load_acquire(peak_word);
  bytes.peak = std::max(bytes.peak_word & kBytesMask, bytes.allocated);
  return bytes;
}

/// One lane's part of a tag; signed in two's complement, since a block may be freed on another lane than it came from.
struct TagBytes {
  std::uint64_t bytes = 0;
  std::uint64_t at_peak = 0;
};

/// Valid only if the ledger's peak word is still `peak_word` afterwards. The writer stores at_peak, peak_seen, bytes (each
/// release), the first two only when peak moved since; so the loads go the other way round (each acquire). New bytes bring along
/// the peak_seen before them, and a new peak_seen its at_peak; old bytes with an old peak_seen are what was held at the peak.
template <class Atomics, class Cell>
[[nodiscard]] TagBytes read_tag_bytes(Cell const& cell, std::uint64_t peak_word) {
  TagBytes tag;
  tag.bytes = Atomics::load_acquire(cell.bytes);
  auto const peak_seen = Atomics::load_acquire(cell.peak_seen);
  auto const at_peak = Atomics::load_acquire(cell.at_peak);
  tag.at_peak = peak_seen == peak_word ? at_peak : tag.bytes;
  return tag;
}

enum class GuardedRead : std::uint8_t {
  whole,     ///< everything that `copy` loaded belongs to the guard's one value
  unwanted,  ///< the guard said that there is nothing to read
  busy,      ///< being written each time that we looked
};

enum class GuardSays : std::uint8_t { readable, unwanted, writing };

inline constexpr int kGuardTries = 8;

/// Calls `copy(guard)` until the guard has the same value before and after. `copy` must load every field with acquire: a field of
/// a later writer then brings along that writer's mark in the guard, and the second load, though relaxed, must see it.
template <class Atomics, class Judge, class Copy>
[[nodiscard]] GuardedRead read_guarded(typename Atomics::Word const& guard, Judge&& judge, Copy&& copy) {
  for (int i = 0; i < kGuardTries; ++i) {
    // Acquire: pairs with the release store that ended the write.
    auto const before = Atomics::load_acquire(guard);
    auto const says = judge(before);
    if (says == GuardSays::unwanted) return GuardedRead::unwanted;
    if (says == GuardSays::writing) continue;
    copy(before);
    if (Atomics::load_relaxed(guard) == before) return GuardedRead::whole;
  }
  return GuardedRead::busy;
}

}  // namespace headroom::flight
