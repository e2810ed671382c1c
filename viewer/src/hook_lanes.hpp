// headroom: runs of hooks through time: a lane for each hook, slices as long as they took, and what made each of them run.
//
// A hook runs because a request was refused; where the record of that is lost, what is known is the last rise of pressure before it.
// No ImGui. Thread safety: none. Cost: a look at all stories and the journal when the model read something; a lane's cells cost a look at
// what is visible when that changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <headroom/follow.hpp>

#include "state.hpp"

namespace headroom::viewer {

enum class HookCause : std::uint8_t { unknown, failure, pressure };

struct HookSlice {
  follow::HookTurnStory turn{};
  std::uint64_t begin = 0, end = 0;  ///< ticks; equal where it did not run
  std::uint64_t thread = 0;          ///< as the program numbers it
  HookCause cause = HookCause::unknown;
  std::uint64_t cause_ticks = 0;
  std::uint64_t failure = 0;  ///< number of its story; 0: none
  [[nodiscard]] bool has_run() const noexcept {
    return turn.result == follow::HookResult::ran || turn.result == follow::HookResult::threw ||
           turn.result == follow::HookResult::running;
  }
  [[nodiscard]] bool is_bad() const noexcept { return turn.overran || turn.result == follow::HookResult::threw; }
};

struct HookLane {
  std::string name{};
  std::vector<HookSlice> slices;                              ///< by begin
  std::uint64_t runs = 0, skipped = 0, threw = 0, freed = 0;  ///< of those slices
};

/// Of one ledger; lanes in the order in which their hooks first ran.
struct HookLanes {
  std::vector<HookLane> lanes;
  std::vector<std::uint64_t> failures;  ///< ticks of failures about which hooks were asked, in order
};
[[nodiscard]] HookLanes hook_lanes(follow::Model const& model, std::uint32_t ledger);

/// One slice of a lane, or several that are too narrow to be told apart.
struct LaneCell {
  float begin = 0, end = 0;  ///< pixels from the left
  std::size_t first = 0;     ///< slice
  std::size_t count = 1;
  std::uint64_t freed = 0;
  bool has_run = false, has_skip = false, is_bad = false;
};
/// What of a lane is visible on `width` pixels: never more cells than pixels.
[[nodiscard]] std::vector<LaneCell> cells_of(HookLane const& lane, TickRange visible, float width);

}  // namespace headroom::viewer
