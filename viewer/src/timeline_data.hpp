// headroom: what the timeline shows of a range, reduced to columns of pixels. No ImGui.
//
// Thread safety: none. Cost: that of Model::series for the total and of one walk for all shown tags, a few dozen instants, a look at the
// journal of the range, and up to 256 changes of the budget. It grows with the columns, not with the operations of the range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <headroom/follow.hpp>

#include "state.hpp"

namespace headroom::viewer {

/// One tag's share of the stack.
struct TimelineLayer {
  std::string tag;
  std::vector<std::uint64_t> bytes;  ///< in each column; the layers of a column never add up to more than its total
};

struct TimelineData {
  TickRange range{};
  std::vector<follow::SeriesColumn> total;
  std::vector<TimelineLayer> layers;  ///< the largest first, from the bottom of the stack
  std::vector<std::uint64_t> rest;    ///< of smaller tags, and of blocks that were never seen
  bool has_rest = false;

  struct Limit {
    std::uint64_t begin = 0;  ///< ticks, until the next one's
    std::optional<std::uint64_t> bytes{};
  };
  std::vector<Limit> limits;

  struct Band {
    TickRange range{};
    PressureLevel level = PressureLevel::none;
  };
  std::vector<Band> bands;  ///< where there was pressure; at most a few thousand

  struct Flag {
    std::size_t column = 0;
    std::uint64_t first_ticks = 0;
    std::uint64_t count = 0;
  };
  std::vector<Flag> failures;  ///< one for each column that has any

  std::optional<std::uint64_t> peak_ticks{};
  std::uint64_t peak_bytes = 0;
  std::uint64_t highest = 0;  ///< of the total in the range

  [[nodiscard]] std::size_t column_of(std::uint64_t ticks) const noexcept;
};

/// `range` in `columns` columns, with at most `most_tags` tags told apart.
[[nodiscard]] TimelineData timeline_data(follow::Model const& model, std::uint32_t ledger, TickRange range, std::size_t columns,
                                         std::size_t most_tags);

/// Bytes from one line of a grid to the next: a power of two, at most `most` lines below `top`.
[[nodiscard]] std::uint64_t byte_step(std::uint64_t top, std::size_t most) noexcept;
/// Nanoseconds likewise: 1, 2 or 5 of a decimal unit; above that seconds, minutes, hours and days in numbers people use.
[[nodiscard]] std::uint64_t time_step(std::uint64_t length_ns, std::size_t most) noexcept;

}  // namespace headroom::viewer
