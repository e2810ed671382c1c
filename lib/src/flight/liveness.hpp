// headroom: whether the process that wrote a flight file still runs.
#pragma once

#include <string_view>

#include <headroom/flight_reader.hpp>

namespace headroom::flight {

class MappedFlight;

/// By the lock on the file, which is right across pid namespaces and at once after SIGKILL. Only where the writer could not have
/// that lock, by pid, start time and boot id, which say "dead" of a process in another pid namespace. Unknown when there is no
/// file.
[[nodiscard]] Liveness liveness_of(MappedFlight const& mapped);

/// Field 22 of a /proc/<pid>/stat line. The name in field 2 may hold anything, so that fields count from the last ')'. 0 = not
/// found.
[[nodiscard]] std::uint64_t start_ticks_in(std::string_view stat_line) noexcept;

}  // namespace headroom::flight
