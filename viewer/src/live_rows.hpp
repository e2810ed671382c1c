// headroom: who holds what at one instant: blocks, or groups of them by tag, site or thread; and what outlived the begin of a range.
//
// A block whose age is not known (it was there when the kept past begins) counts as the oldest of all. No ImGui. Thread safety: none.
// Cost: O(what is live) when the instant or the question changes, nothing between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/follow.hpp>

#include "plain_table.hpp"

namespace headroom::viewer {

enum class LiveGrouping : std::uint8_t { none, tag, site, thread };
enum class LiveOrder : std::uint8_t { bytes, age, count, name };

struct LiveQuery {
  std::uint32_t ledger = 0;
  std::uint64_t ticks = 0;
  /// Only what was allocated before: the leak list of a range that begins then.
  std::optional<std::uint64_t> alive_since{};
  std::string text{};  ///< a part of tag or site, in any case
  LiveGrouping grouping = LiveGrouping::none;
  LiveOrder order = LiveOrder::bytes;
  bool is_descending = true;
  std::size_t most = 100'000;  ///< rows
  friend bool operator==(LiveQuery const&, LiveQuery const&) = default;
};

/// A block, or a group of them.
struct LiveRow {
  std::string tag{};   ///< of a group by site or thread: of its largest tag
  std::string site{};  ///< likewise
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 1;
  std::optional<std::uint64_t> oldest_ticks{};  ///< absent: before the kept past
  std::uint64_t address = 0;                    ///< 0 of a group
  std::uint64_t thread = 0;                     ///< as the program or history numbers it
  bool has_several_tags = false, has_several_sites = false, has_several_threads = false;
};

struct LiveRows {
  follow::Known known = follow::Known::no_ledger;
  std::vector<LiveRow> rows;
  std::uint64_t total = 0;   ///< rows, before they were cut at `most`
  std::uint64_t blocks = 0;  ///< in all rows
  std::uint64_t bytes = 0;
  std::uint64_t allocated = 0;           ///< of the ledger then, whatever the query leaves out
  std::uint64_t unattributed_bytes = 0;  ///< of that, in blocks that were never seen
};

[[nodiscard]] LiveRows live_rows(follow::Model const& model, LiveQuery const& query);

[[nodiscard]] std::vector<std::string> plain_live_columns();
/// For other programs; its age in nanoseconds at `ticks`.
[[nodiscard]] PlainRow plain_live(follow::Model const& model, LiveRow const& row, std::uint64_t ticks);
/// All of them.
[[nodiscard]] PlainTable plain_live(follow::Model const& model, LiveRows const& rows, std::uint64_t ticks);

}  // namespace headroom::viewer
