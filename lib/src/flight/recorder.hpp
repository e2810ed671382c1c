// The recorder: this process's flight memory, mapped once and never unmapped, and typed ways into it.
//
// start_recorder() is called by whatever makes the first ledger. From then on every pointer here is constant, so the hot paths read
// them without any order of their own: whoever holds a ledger got it from a call that happened after the start.
#pragma once

#include <atomic>
#include <cstdint>

#include <headroom/flight_format.hpp>

#include "flight/geometry.hpp"

namespace headroom::flight {

/// Everything the writers need, in one place. Written once by start_recorder, before anyone can hold a ledger.
struct Recorder {
  std::byte* base = nullptr;
  FileHeader* header = nullptr;
  ClockSync* syncs = nullptr;
  DirectoryEntry* directory = nullptr;
  LedgerCell* ledgers = nullptr;
  LedgerTallies* tallies = nullptr;
  LedgerCounters* ledger_bases = nullptr;
  TagCell* tag_bases = nullptr;
  HookCell* hooks = nullptr;
  FirstFailure* first_failures = nullptr;
  LiveSlot* slots = nullptr;
  LiveShare* shares = nullptr;
  std::byte* lanes = nullptr;
  OverflowBooks* overflow = nullptr;
  Geometry geometry{};
  std::uint64_t ticks_to_ns_multiplier = 0;  // 32.32 fixed point
  std::uint64_t sync_interval_ticks = 0;
  bool events = false;  // false: books only (HEADROOM_FLIGHT=off)

  [[nodiscard]] LaneBooks& lane(std::uint32_t index) const noexcept {
    return *reinterpret_cast<LaneBooks*>(lanes + std::size_t{index} * geometry[Region::lanes].stride);
  }
  [[nodiscard]] Word* main_ring(LaneBooks& lane) const noexcept { return ring_at(lane, geometry.lane_main_offset); }
  [[nodiscard]] Word* journal_ring(LaneBooks& lane) const noexcept { return ring_at(lane, geometry.lane_journal_offset); }
  [[nodiscard]] std::uint64_t to_ns(std::uint64_t ticks) const noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((Wide{ticks} * ticks_to_ns_multiplier) >> 32);
  }

private:
  static Word* ring_at(LaneBooks& lane, std::uint32_t offset) noexcept {
    return reinterpret_cast<Record*>(reinterpret_cast<std::byte*>(&lane) + offset)->words;
  }
};

/// Constant after start_recorder. `base` is null before, and for ever when the system refused even anonymous memory.
extern constinit Recorder recorder;

/// Takes the memory, writes the header, installs fork and exit handlers. Idempotent; the first caller does it, others wait for it.
/// Returns false only when the system has no memory at all.
[[nodiscard]] bool start_recorder();

/// True in a child forked after the start: its books are a private copy, and nobody reads them.
/// Written by the fork handler in the child, alone there.
extern constinit std::atomic<bool> forked_child;
[[nodiscard]] inline bool in_forked_child() noexcept { return forked_child.load(std::memory_order_relaxed); }

}  // namespace headroom::flight
