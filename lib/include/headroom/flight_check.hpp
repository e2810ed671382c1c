// headroom: is a flight file sound?
// Layer: flight
//
// FlightView::open refuses what cannot be read at all, and reading mends the rest silently: a figure that cannot be is shown as the
// nearest one that can. check_flight() says what was mended, word by word and with its byte: states and kinds that do not exist, names
// that lead nowhere, books that do not balance, records that are not where they must be. Use it when a file's figures look odd, or on
// files that came over a wire; an unharmed file, of the living or of the dead, has no findings.
//
// Of a dead process everything is judged, the balance of the books among it. While a process lives, or where nobody knows, words
// that belong together are seen at different instants: then only what holds at every instant is judged.
//
// Thread safety: pure function over a view. Cost: reads the whole file once; findings are capped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <headroom/flight_reader.hpp>

namespace headroom::flight {

struct FlightFinding {
  std::uint64_t offset = 0;  ///< byte in the file
  std::string text;          ///< what lies there, what was found, and what was expected

  friend bool operator==(FlightFinding const&, FlightFinding const&) = default;
};

struct FlightCheck {
  std::vector<FlightFinding> findings;  ///< the first ones
  std::uint64_t found = 0;              ///< all of them
  bool quiet = false;                   ///< judged as the file of a dead process
  // What was looked at.
  std::uint64_t names = 0, ledgers = 0, live_allocations = 0, records = 0;
};

struct FlightCheckOptions {
  std::size_t most_findings = 20;
  /// Whether the memory is quiet for good. Absent: when the file says that its process is dead.
  std::optional<bool> dead;
};

[[nodiscard]] FlightCheck check_flight(FlightView const& view, FlightCheckOptions const& options);

}  // namespace headroom::flight
