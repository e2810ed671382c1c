// Raw doors for tests: the books before and after, in one comparison.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include <headroom/raw_door.hpp>

#include "managers.hpp"

namespace headroom::test {

/// Everything of a manager's books that misuse may not change.
struct Books {
  std::uint64_t claimed = 0, allocated = 0, peak = 0, live = 0, allocations = 0, frees = 0, failed_bytes = 0, failure_count = 0;
  std::uint64_t blocks = 0;  ///< of the door
  friend bool operator==(Books const&, Books const&) = default;
  friend std::ostream& operator<<(std::ostream& out, Books const& books) {
    return out << "claimed " << books.claimed << ", allocated " << books.allocated << ", peak " << books.peak << ", live "
               << books.live << ", allocations " << books.allocations << ", frees " << books.frees << ", in failed frees "
               << books.failed_bytes << ", failures " << books.failure_count << ", blocks " << books.blocks;
  }
};

inline Books books_of(RawDoor const& door) {
  auto const& manager = door.manager();
  const auto stats = manager.stats();
  return {stats.claimed,
          stats.allocated,
          stats.peak,
          stats.live_allocations,
          stats.allocations,
          stats.frees,
          manager.deallocation_failure_bytes(),
          manager.deallocation_failure_count(),
          door.live_blocks()};
}

inline RawDoor door_on(GpuMemoryManager const& manager, RawDoorOptions options = {}) {
  return RawDoor::create(manager, options).value();
}

/// Frees of this kind that the manager's ledger counts as failed, as the exporter shows them under their reason.
inline std::uint64_t free_failures(GpuMemoryManager const& manager, ErrorKind kind) {
  return snapshot_of(manager).free_failures[static_cast<std::size_t>(kind)];
}

inline void* offset_by(void* pointer, std::uint64_t bytes) { return static_cast<std::byte*>(pointer) + bytes; }

}  // namespace headroom::test
