// What dead processes left behind in a flight folder, kept within bounds. Whoever starts next tidies up: nobody else has to run.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace headroom::flight {

struct StaleLimits {
  std::size_t files = 16;
  std::chrono::hours age = std::chrono::hours{7 * 24};  ///< since the last sign of life
  /// All together. Absent: a quarter of the folder's file system, since containers often have 64 MiB of it in all.
  std::optional<std::uint64_t> bytes;
};

/// Removes the files of dead processes beyond these limits, those that died first going first; the one that died last is kept however
/// large it is, since somebody will ask for it. Files under their temporary name that nobody holds go too, after a minute. Never touches
/// what it cannot identify, or what may be alive.
void remove_stale_files(std::string const& folder, StaleLimits const& limits = {}) noexcept;

}  // namespace headroom::flight
