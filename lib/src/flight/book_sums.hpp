// headroom: sums over the lanes of a flight file.
//
// Counters and tag cells have one writer each, so that a figure of a ledger is the sum of every lane's word and the overflow
// block's, less what a reused ledger had before. Sums are taken modulo 2^64: a block allocated on one lane and freed on another
// makes one of them negative, and the sum right. What is negative in the sum itself, while threads are at work, is shown as 0.
//
// Thread safety: reads shared words only. Cost: one load for a word and lane.
#pragma once

#include <cstdint>
#include <vector>

#include <headroom/flight_reader.hpp>

namespace headroom::flight {

class MappedFlight;

/// Frees are read before allocations over all lanes, so that a busy ledger does not show more frees than allocations.
[[nodiscard]] CounterSums sum_counters(MappedFlight const& mapped, std::uint32_t ledger);

/// What the ledger's base says: the counters of the cell as they were when the ledger was opened.
[[nodiscard]] EarlierSums earlier_sums(MappedFlight const& mapped, std::uint32_t ledger) noexcept;

/// What one tag cell (below kTagCells) holds; the rest of `tag` stays as it is. All tags of a ledger belong to one peak: read its
/// peak word before the first and after the last, and again if it moved.
void sum_tag(MappedFlight const& mapped, std::uint32_t cell, std::uint64_t peak_word, TagSnapshot& tag) noexcept;

/// A tag of some ledger, as its directory entry names it.
struct TagName {
  std::uint32_t id = 0;
  std::uint32_t cell = 0;  ///< below kTagCells
  std::uint32_t ledger_id = 0;
  bool open = false;
  std::string label;
};

/// All tags of `wanted` and what they hold, largest first. `peak_word` is the ledger's.
[[nodiscard]] std::vector<TagSnapshot> sum_tags(MappedFlight const& mapped, std::vector<TagName const*> const& wanted,
                                                Word const& peak_word);

}  // namespace headroom::flight
