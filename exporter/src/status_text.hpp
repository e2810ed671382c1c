// headroom: the page at `/`, as plain text: what serves here, its routes, and one line for each manager.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <headroom/flight_reader.hpp>

namespace headroom::exporter {

/// `process` is null when nothing was recorded yet. Names are made valid UTF-8 without control characters.
[[nodiscard]] std::string status_text(flight::ProcessInfo const* process, std::span<flight::LedgerSnapshot const> ledgers,
                                      std::uint64_t errors);

}  // namespace headroom::exporter
