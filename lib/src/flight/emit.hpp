// Writing events. Wait-free; bounded; never fails the caller: an event that finds no lane is refused and counted.
//
// Cost in an owned lane: eight stores, two more for head and reserve, no read-modify-write.
#pragma once

#include <bit>
#include <cstdint>

#include <headroom/error.hpp>
#include <headroom/flight_format.hpp>
#include <headroom/pressure.hpp>

#include "base/atomics.hpp"
#include "flight/recorder.hpp"
#include "flight/ring_writer.hpp"
#include "flight/thread_state.hpp"

namespace headroom::flight {

/// The words of a record before it has a number.
struct Draft {
  std::uint64_t words[kRecordWords]{};
};

[[nodiscard]] constexpr bool is_main(EventKind kind) noexcept { return static_cast<std::uint8_t>(kind) < 16; }

[[nodiscard]] constexpr std::uint32_t pack_result(ErrorKind kind, Layer layer) noexcept {
  return (static_cast<std::uint32_t>(kind) + 1) * 64 + static_cast<std::uint32_t>(layer);
}

/// Word 5.
struct Subject {
  std::uint32_t tag = 0;     ///< directory ids
  std::uint32_t ledger = 0;  ///< cell
  std::uint32_t hook = 0;
  std::uint32_t result = 0;
  PressureLevel pressure = PressureLevel::none;
  [[nodiscard]] constexpr std::uint64_t pack() const noexcept {
    return (std::uint64_t{tag} & 0xFFFFU) | ((std::uint64_t{ledger} & 0xFFFU) << 16) | ((std::uint64_t{hook} & 0xFFFU) << 28) |
           ((std::uint64_t{result} & 0xFFFU) << 40) | (std::uint64_t{static_cast<std::uint8_t>(pressure)} << 52);
  }
};

[[nodiscard]] constexpr std::uint64_t pack_kind(EventKind kind, std::uint64_t flags = 0) noexcept {
  return (std::uint64_t{static_cast<std::uint8_t>(kind)} << 56) | flags;
}
/// Word 3; a size above 48 bits needs kFlagBytesSaturated in word 0 (no ledger holds one, but a refusal may name it).
[[nodiscard]] constexpr std::uint64_t pack_bytes(std::uint64_t bytes, std::uint64_t alignment) noexcept {
  const std::uint64_t log2 = alignment == 0 ? 0 : static_cast<std::uint64_t>(std::countr_zero(alignment));
  return (bytes > kRequestedMask ? kRequestedMask : bytes) | (log2 << 48);
}
[[nodiscard]] constexpr std::uint64_t pack_duration(std::uint64_t ns, std::uint32_t thread) noexcept {
  return ((ns > 0xFFFFFFFFU ? 0xFFFFFFFFU : ns) << 32) | thread;
}

void write_clock_sync_if_due(std::uint64_t ticks) noexcept;
void write_shared(EventKind kind, Draft const* drafts, std::size_t count, bool reentrant) noexcept;

/// A shared lane for this thread alone until leave_shared_lane; kLaneCount when all are busy.
[[nodiscard]] std::uint32_t enter_shared_lane() noexcept;
void leave_shared_lane(std::uint32_t index) noexcept;
/// Writes into a shared lane that this thread is in.
void write_entered(LaneBooks& lane, EventKind kind, Draft const* drafts, std::size_t count) noexcept;

/// Writes one record, or two that belong together, in this thread's own lane when `section` holds it, else in a shared one.
inline void emit(LaneSection const& section, EventKind kind, Draft const* drafts, std::size_t count) noexcept {
  if (!recorder.events) {
    return;
  }
  LaneBooks* lane = section.lane();
  if (lane == nullptr) [[unlikely]] {
    write_shared(kind, drafts, count, section.reentrant());
    return;
  }
  const bool main = is_main(kind);
  RingWords& ring = main ? lane->header.main : lane->header.journal;
  Word* slots = main ? section.thread().main_ring : section.thread().journal_ring;
  auto const& sizes = recorder.geometry.sizes;
  const std::uint64_t records = main ? sizes.main_records : sizes.journal_records;
  const std::uint64_t block = main ? sizes.main_block : sizes.journal_block;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t number = RingWriter<StdAtomics>::write(ring.head, ring.reserve, slots, records, block, drafts[i].words);
    // A ring is larger than the first-level cache: the next record's line comes in while the program goes on.
    __builtin_prefetch(slots + ((number + 1) & (records - 1)) * kRecordWords, 1);
    if ((number & (block - 1)) == 0) [[unlikely]] {
      write_clock_sync_if_due(drafts[i].words[1]);
    }
  }
}

inline void emit(LaneSection const& section, EventKind kind, Draft const& draft) noexcept { emit(section, kind, &draft, 1); }

/// Attach and detach records of a thread.
void emit_thread(EventKind kind, ThreadState& state) noexcept;

}  // namespace headroom::flight
