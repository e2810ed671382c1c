// The first ten misuses of the process, kept in full: a program that frees wrongly tends to do so a million times, and the first ones
// say why.
#pragma once

#include <cstdint>

#include <headroom/raw_door.hpp>

namespace headroom::manager {

inline constexpr std::uint64_t kMisusesReported = 10;

/// Counts one misuse. True when it is among the first ten: then keep_report follows.
[[nodiscard]] bool count_misuse() noexcept;
/// Keeps the report, and says its sentence on stderr unless HEADROOM_QUIET is set. Throws std::bad_alloc.
void keep_report(MisuseReport report);

}  // namespace headroom::manager
