// What dead processes left behind in a flight folder, kept within bounds. Whoever starts next tidies up: nobody else has to run.
//
// Nothing in a file tells when its process died: it may have been busy, or idle, for a week after its last record. So whoever finds the
// file of a dead process first notes it: the file's time is set to now, and its write permission is taken away as the sign that this was
// done. From then on that time is when it died. Readers need no write permission, and removing it needs none.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace headroom::flight {

struct StaleLimits {
  std::size_t files = 16;
  std::chrono::hours age = std::chrono::hours{7 * 24};  ///< since it was first seen dead
  /// All together. Absent: a quarter of the folder's file system, since containers often have 64 MiB of it in all.
  std::optional<std::uint64_t> bytes;
};

/// Removes the files of dead processes beyond these limits, those that were first seen dead longest ago going first; among those seen
/// dead together, the one whose last sign of life is older. The one that died last is kept however old and large it is, since somebody
/// will ask for it. Files under their temporary name that nobody holds go too, after a minute. Never touches what it cannot identify, or
/// what may be alive: a file whose writer had no lock, and one of another machine, whose locks may not reach us, is left to others.
///
/// `folder`: an open folder; it stays open, and its offset where it was. What lies in it is read and never mapped.
void remove_stale_files(int folder, StaleLimits const& limits = {}) noexcept;

}  // namespace headroom::flight
