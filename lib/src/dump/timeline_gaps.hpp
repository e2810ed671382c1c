// What was live between two gaps of a ledger.
//
// After the last gap the live table tells it (PastStretch::is_whole). After one that others follow there are three ways to know:
//   * what is freed before the next gap was live: the model has that;
//   * what was seen live later and is older than the gap's end was live (SeenBlocks);
//   * what was live before the gap may be live still, unless its address is allocated anew before the next gap. It went in this gap, or in
//     a later one, and nobody knows: it stays, oldest first, as long as the ledger holds that much (LiveBetweenGaps).
// What the ledger holds besides is in blocks that nobody saw.
//
// Thread safety: none. Memory: SeenBlocks three words for each block that a look at the table showed; LiveBetweenGaps what is live.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

#include <headroom/follow.hpp>

#include "dump/timeline.hpp"

namespace headroom::dump {

/// Of one cell: blocks that were live when a stretch began and whose allocation has a time.
class SeenBlocks {
public:
  void add(std::size_t stretch, std::vector<follow::LiveBlock> const& live) {
    for (std::size_t place = 0; place < live.size(); ++place) {
      if (live[place].ticks) blocks_.push_back({.ticks = *live[place].ticks, .stretch = stretch, .place = place});
    }
  }
  /// After the last add(), before the first question.
  void sort() {
    std::ranges::sort(blocks_, {}, [](Seen const& seen) { return std::pair{seen.ticks, seen.stretch}; });
  }
  /// Those that were seen after `stretch` and are older than `ticks`, oldest first: visit(stretch, place in its live). One that was seen
  /// several times is visited as often.
  template <class Visit>
  void for_each_older(std::size_t stretch, std::uint64_t ticks, Visit&& visit) const {
    for (auto const& seen : blocks_) {
      if (seen.ticks >= ticks) return;
      if (seen.stretch > stretch) visit(seen.stretch, seen.place);
    }
  }

private:
  struct Seen {
    std::uint64_t ticks = 0;
    std::size_t stretch = 0;
    std::size_t place = 0;
  };
  std::vector<Seen> blocks_;
};

class LiveBetweenGaps {
public:
  /// `known`: what is live for certain; `allocated`: what the ledger holds.
  LiveBetweenGaps(std::uint64_t allocated, std::vector<TimelineBlock> known) : blocks_{std::move(known)} {
    std::uint64_t sum = 0;
    for (auto const& block : blocks_) {
      sum += block.bytes;
      addresses_.insert(block.address);
    }
    room_ = allocated > sum ? allocated - sum : 0;
  }
  /// Something is allocated there next: what lay there before was gone.
  void leave_out(std::uint64_t address) { addresses_.insert(address); }
  /// The better known ones first.
  void take(TimelineBlock const& block) {
    if (block.bytes > room_ || !addresses_.insert(block.address).second) return;
    room_ -= block.bytes;
    blocks_.push_back(block);
  }
  [[nodiscard]] std::vector<TimelineBlock> blocks() && { return std::move(blocks_); }

private:
  std::vector<TimelineBlock> blocks_;
  std::unordered_set<std::uint64_t> addresses_;
  std::uint64_t room_ = 0;
};

}  // namespace headroom::dump
