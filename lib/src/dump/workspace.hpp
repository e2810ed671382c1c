// The memory in which a post-mortem is made: one piece, taken beforehand, sized for one flight file. 0.9 MiB for the default file.
//
//   buffer ──────── what JsonStream fills
//   places ──────── of each directory id: what it names
//   sites ───────── of each directory id: live bytes and blocks
//   live keys ───── (bytes, slot) of each live allocation, to be sorted
//   tags ────────── of one ledger
//   operations ──── in flight, of each lane
//   rings ───────── a cursor and the next record of each
//   syncs ───────── clock
//
// A file that is larger than anything the recorder makes is read as far as the caps below, and the dump says so.
// Thread safety: one user at a time. Cost: an mmap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <headroom/flight_reader.hpp>

#include "flight/mapping.hpp"

namespace headroom::dump {

inline constexpr std::size_t kBufferBytes = std::size_t{64} << 10;
inline constexpr std::uint32_t kMostSlots = std::uint32_t{1} << 20;  // a slot's index has 20 bits in a LiveKey
inline constexpr std::uint32_t kMostPlaces = std::uint32_t{1} << 16;
inline constexpr std::uint32_t kMostLanes = 1024;
inline constexpr std::uint32_t kMostSyncs = 1024;
inline constexpr std::size_t kMostTags = 512;  // of one ledger

struct Place {
  std::uint32_t parent = 0;
  std::uint16_t cell = 0;
  flight::EntryKind kind = flight::EntryKind::none;
  bool open = false;
};

struct SiteSum {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
};

/// Bytes (44, saturating) · index of the slot (20): sorts by bytes.
using LiveKey = std::uint64_t;

struct RingState {
  flight::RingCursor cursor;
  std::uint64_t end = 0;    ///< what was written when the events began: no further, or a busy writer would keep us for ever
  std::uint64_t first = 0;  ///< number of the first record listed
  std::uint64_t last = 0;   ///< of the last one; both only while listed is not 0
  std::uint64_t listed = 0;
  std::uint64_t number = 0;  ///< of `words`
  flight::LaneRingReader::Words words{};
  bool uncommitted = false;
};

struct RingKey {
  std::uint64_t ticks = 0;
  std::uint32_t ring = 0;  ///< 2 · lane, + 1 for the journal
};

struct TagSum {
  std::uint32_t id = 0;
  std::uint32_t cell = 0;
  std::uint64_t bytes = 0, at_peak = 0, allocations = 0;
};

/// How much of each a file needs.
struct WorkspaceSizes {
  std::uint32_t slots = 0, places = 0, lanes = 0, syncs = 0;
  [[nodiscard]] static WorkspaceSizes of(flight::MappedFlight const& mapped) noexcept {
    return {.slots = std::min(mapped.live_slots().size(), kMostSlots),
            .places = std::min(mapped.directory().size(), kMostPlaces),
            .lanes = std::min(mapped.lanes().size(), kMostLanes),
            .syncs = std::min(mapped.clock_syncs().size(), kMostSyncs) + 1};
  }
};

class Workspace {
public:
  /// Empty when the system has no memory.
  explicit Workspace(WorkspaceSizes const& sizes) noexcept;
  ~Workspace();
  Workspace(Workspace const&) = delete;
  Workspace& operator=(Workspace const&) = delete;

  [[nodiscard]] bool is_there() const noexcept { return base_ != nullptr; }

  std::span<char> buffer;
  std::span<Place> places;
  std::span<SiteSum> sites;
  std::span<LiveKey> live;
  std::span<TagSum> tags;
  std::span<flight::InFlightOperation> operations;
  std::span<RingState> rings;
  std::span<RingKey> heap;
  std::span<flight::ClockMap::Sync> syncs;

private:
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace headroom::dump
