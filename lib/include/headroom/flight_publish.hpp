// headroom: what parts outside the recorder may write into this process's flight file.
// Layer: flight
//
// Thread safety: any thread. Before the first manager was made these calls start the recorder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <headroom/flight_format.hpp>

namespace headroom::flight {

/// State and port of the exporter in this process, for `headroom ps` and service discovery.
void publish_exporter(ExporterState state, std::uint16_t port) noexcept;

/// Keep the flight file when the process ends cleanly (default: remove it, unless HEADROOM_KEEP=1).
void keep_file(bool wanted) noexcept;

/// Path of this process's flight file; empty when the books lie in anonymous memory or nothing started yet.
[[nodiscard]] std::string own_file();

/// Writes a mark into the journal of this thread's lane: a label and a number of your choice, drawn on the timeline.
void mark(std::string_view label, std::uint64_t value = 0);

}  // namespace headroom::flight
