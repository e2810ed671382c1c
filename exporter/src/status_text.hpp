// headroom: the page at `/`, as plain text: what serves here, its routes, and one line for each manager or process.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <headroom/flight_reader.hpp>

#include "followed.hpp"

namespace headroom::exporter {

/// `process` is null when nothing was recorded yet. Names are made valid UTF-8 without control characters.
[[nodiscard]] std::string status_text(flight::ProcessInfo const* process, std::span<flight::LedgerSnapshot const> ledgers,
                                      std::uint64_t errors);

/// The same for a machine: one line for each process, the first kMostLines of them. `looks`: without details, in the order in which they
/// are listed; `all`: how many there are. Those that ended are counted alone.
struct MachineStatus {
  static constexpr std::size_t kMostLines = 200;
  std::span<Look const> looks;
  std::size_t all = 0, ended = 0;
  std::uint64_t errors = 0;
};
[[nodiscard]] std::string status_text(MachineStatus const& status);

}  // namespace headroom::exporter
