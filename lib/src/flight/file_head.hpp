// headroom: what a flight file says of itself, read and not mapped: for whoever looks at the files of strangers only in passing, as
// every process does when it starts, and must not end by SIGBUS when one of them is cut off at that moment.
//
// Thread safety: pure functions over a descriptor; its offset does not move. Cost: read_head one read of 4 KiB, last_sign_of_life_ns
// a few reads for each lane that has records.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <headroom/flight_reader.hpp>

#include "flight/layout.hpp"

namespace headroom::flight {

/// Of a finished file whose sizes and offsets are sound.
struct FileHead {
  Layout layout;
  AliveBy alive_by = AliveBy::ofd_lock;  ///< as it lies there
  std::uint64_t ticks_per_second = 0;
  ClockMap::Sync start{};
  std::uint64_t syncs_written = 0, lanes_used = 0;
  std::string boot_id, host;  ///< valid UTF-8
};

/// Nothing when `fd` cannot be read or is no flight file that FlightView would open.
[[nodiscard]] std::optional<FileHead> read_head(int fd);

/// The newest clock sync or record, in nanoseconds since 1970. A process may have lived on without a word: this is the earliest
/// moment at which it can have died. What cannot be read is left out, down to the start of the process.
[[nodiscard]] std::uint64_t last_sign_of_life_ns(int fd, FileHead const& head);

}  // namespace headroom::flight
