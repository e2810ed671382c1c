// headroom: who holds how much, and what changed between two looks: what `headroom diff` and the viewer compare.
// Layer: follow
//
// Thread safety: pure functions over what they are given. Cost: a walk over the live table; O(n log n) of the holders.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/follow_source.hpp>

namespace headroom::follow {

/// Who holds memory: a tag ("untagged" where there is none), and the place in the program that asked for it, empty where nobody noted it.
struct Holder {
  std::string tag, site;
  friend auto operator<=>(Holder const&, Holder const&) = default;
};

using Holdings = std::map<Holder, std::uint64_t>;  ///< bytes, never 0

/// What the live table of `records` holds, by tag and site.
[[nodiscard]] Holdings live_holdings(Source const& records);

/// What `managers` hold by their books. Tags are exact: they come from the tag cells, which count every allocation. Sites come from the
/// live table of `records`; what it has no slot for, or what changes while it is read, belongs to its tag without a site.
[[nodiscard]] Holdings holdings_of_books(Source const& records, std::span<flight::LedgerSnapshot const> managers);

/// What they held at their peaks, as their books noted it: by tag alone.
[[nodiscard]] Holdings peak_holdings(std::span<flight::LedgerSnapshot const> managers);

struct HoldingChange {
  Holder holder;
  std::uint64_t bytes_a = 0, bytes_b = 0;
  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_a > bytes_b ? bytes_a - bytes_b : bytes_b - bytes_a; }
};

/// Each list by the size of the change, largest first; of equal ones in the order of their names.
struct HoldingsDifference {
  std::vector<HoldingChange> grown, vanished, appeared, shrunk;
  std::uint64_t bytes_a = 0, bytes_b = 0;
};
[[nodiscard]] HoldingsDifference compare(Holdings const& a, Holdings const& b);

}  // namespace headroom::follow
