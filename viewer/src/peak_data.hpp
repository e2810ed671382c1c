// headroom: who held what when most was held: in all that is known, or within a range. No ImGui. Thread safety: none.
// Cost: a few hundred questions to the model for a range; O(what was live at the peak) for the blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <headroom/follow.hpp>

#include "live_rows.hpp"
#include "state.hpp"

namespace headroom::viewer {

struct PeakTag {
  std::string name{};
  std::uint64_t then = 0;
  std::uint64_t now = 0;                       ///< at the moment that is looked at
  std::optional<std::uint64_t> allocations{};  ///< at the peak; absent where only the books know it
};

struct PeakData {
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> ticks{};  ///< absent: before the kept past
  bool is_from_books = false;
  bool is_of_kept = false;               ///< the most of what is kept up to `until`: that of all came after it
  std::optional<std::uint64_t> limit{};  ///< the budget then
  std::vector<PeakTag> tags{};           ///< largest at the peak first, then those that hold something now only
  std::uint64_t unattributed_bytes = 0;
  LiveRows sites{};  ///< what was live then by site; empty where the instant is not known
};

/// Of all that is known of a ledger, or of `range`. `now`: what it is compared with. What came after `until` is as if it had not
/// happened yet.
[[nodiscard]] PeakData peak_data(follow::Model const& model, std::uint32_t ledger, std::optional<TickRange> range,
                                 std::uint64_t now, std::optional<std::uint64_t> until = {});

/// When a ledger held most: ever, or up to `until`. Nothing where that is before the kept past.
[[nodiscard]] std::optional<std::uint64_t> peak_ticks(follow::Model const& model, std::uint32_t ledger,
                                                      std::optional<std::uint64_t> until);

/// The first instant of `range` at which the ledger held most; nothing where none of it is known.
[[nodiscard]] std::optional<std::uint64_t> highest_in(follow::Model const& model, std::uint32_t ledger, TickRange range);

}  // namespace headroom::viewer
