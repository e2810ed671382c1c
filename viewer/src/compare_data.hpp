// headroom: two looks at who holds what, side by side: what grew, went, and is new. No ImGui. Thread safety: none.
// Cost: holdings_of() walks the live table, or looks at one instant of each manager's past; comparison_of() takes what both hold.
#pragma once

#include <cstdint>
#include <vector>

#include <headroom/follow.hpp>
#include <headroom/holdings.hpp>

#include "plain_table.hpp"

namespace headroom::viewer {

/// Of all managers of a model: what is live, or was when it ended; or what each held at its peak, by tag alone.
[[nodiscard]] follow::Holdings holdings_of(follow::Model const& model, bool at_peak);

enum class ChangeKind : std::uint8_t { grown, appeared, shrunk, vanished };

struct ChangeRow {
  ChangeKind kind = ChangeKind::grown;
  follow::HoldingChange change{};
};

struct Comparison {
  std::uint64_t bytes_a = 0, bytes_b = 0;
  std::vector<ChangeRow> rows;  ///< largest change first, whatever its direction
};
[[nodiscard]] Comparison comparison_of(follow::Holdings const& a, follow::Holdings const& b);

[[nodiscard]] PlainTable plain_comparison(Comparison const& comparison);

}  // namespace headroom::viewer
