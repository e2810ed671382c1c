// headroom: what one flight file, or one post-mortem, says about its process, summed over its managers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/follow_source.hpp>
#include <headroom/pressure.hpp>

namespace headroom::command {

struct ProcessFigures {
  flight::ProcessInfo info;
  std::string state;       ///< living, exited (in good order), killed, or unknown
  bool is_record = false;  ///< of a post-mortem: everything is as it was when that was written
  double age_seconds = 0;
  std::vector<flight::LedgerSnapshot> managers;  ///< device accounts are no managers: their bytes are counted there already
  std::optional<std::uint64_t> budget_bytes;     ///< sum; absent when any manager is unlimited, or there is none
  std::uint64_t allocated_bytes = 0, claimed_bytes = 0;
  std::uint64_t peak_bytes = 0;  ///< sum of the managers' peaks, which need not have been at the same time
  std::uint64_t live_allocations = 0;
  std::uint64_t failures = 0;                    ///< requests that failed
  PressureLevel pressure = PressureLevel::none;  ///< the worst
  [[nodiscard]] bool living() const noexcept { return state == "living" && !is_record; }
};

[[nodiscard]] ProcessFigures process_figures(flight::FlightView const& view);
/// The same of whatever has the books of a process: no history.
[[nodiscard]] ProcessFigures process_figures(follow::Source const& source);

/// "allocating", "freeing", …, or "idle".
[[nodiscard]] std::string word_of(flight::InFlight operation);

/// "2026-01-31 12:00:00 UTC".
[[nodiscard]] std::string format_utc(std::uint64_t realtime_ns);

}  // namespace headroom::command
