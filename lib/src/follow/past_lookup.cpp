// LedgerPast: looking things up.
#include <algorithm>
#include <iterator>
#include <utility>

#include "follow/past.hpp"

namespace headroom::follow {
namespace {

void step_sums(Sums& sums, Step const& step) {
  if (step.adds()) {
    sums.add(step.tag, step.bytes);
  } else if ((step.bits & Step::kUnmatched) == 0) {
    sums.remove(step.tag, step.bytes);
  }
  sums.allocated = step.allocated;
  sums.highest = std::max(sums.highest, step.allocated);
}

}  // namespace

Segment const& LedgerPast::segment_of(Chunk const& chunk) const noexcept {
  return segments_[chunk.segment - segments_.front().number];
}

LedgerPast::Place LedgerPast::find(std::uint64_t ticks) const {
  auto const next = std::ranges::upper_bound(chunks_, ticks, {}, &Chunk::begin_ticks);
  if (next == chunks_.begin()) return {};
  Place place;
  auto chunk = std::prev(next);
  place.chunk = &*chunk;
  place.steps = static_cast<std::size_t>(std::ranges::upper_bound(chunk->steps, ticks, {}, &Step::ticks) - chunk->steps.begin());
  place.known = Known::exact;
  auto const is_last = next == chunks_.end();
  auto const gap_follows = is_last ? is_behind_ : next->segment != chunk->segment && !segment_of(*next).continues;
  auto const last = chunk->steps.empty() ? chunk->begin_ticks : chunk->steps.back().ticks;
  if (gap_follows && place.steps == chunk->steps.size() && ticks > last) {
    place.known = Known::gap;
    place.missing = is_last ? 0 : segment_of(*next).missing;
  }
  return place;
}

Sums LedgerPast::sums_at(Place const& place) const {
  auto const& keyframes = place.chunk->keyframes;
  auto const& keyframe = *std::prev(std::ranges::upper_bound(keyframes, place.steps, {}, &Keyframe::at));
  Sums sums = keyframe.sums;
  for (std::size_t i = keyframe.at; i < place.steps; ++i) step_sums(sums, place.chunk->steps[i]);
  return sums;
}

void LedgerPast::change(Live& live, Step const& step) {
  if (step.adds()) {
    live.insert(step.address, step.bytes,
                {.ticks = step.ticks, .site = step.site, .thread = step.thread, .tag = step.tag, .untracked = false});
  } else if ((step.bits & Step::kUnmatched) == 0) {
    static_cast<void>(live.take(step.address, step.bytes));
  }
}

std::vector<Block> LedgerPast::live_at(Place const& place) const {
  if (place.chunk == &chunks_.back() && place.steps == chunks_.back().steps.size()) return live();
  Live live;
  for (auto const& block : place.chunk->base) {
    live.insert(
        block.address, block.bytes,
        {.ticks = block.ticks, .site = block.site, .thread = block.thread, .tag = block.tag, .untracked = block.untracked});
  }
  for (std::size_t i = 0; i < place.steps; ++i) change(live, place.chunk->steps[i]);
  std::vector<Block> blocks;
  blocks.reserve(live.size());
  live.for_each([&](std::uint64_t address, Live::Live const& block) { blocks.push_back(to_block(address, block)); });
  return blocks;
}

Step const* LedgerPast::step_before(Place const& place) const {
  if (place.steps != 0) return &place.chunk->steps[place.steps - 1];
  // The chunk before has it, unless a gap lies between.
  for (std::size_t i = 1; i < chunks_.size(); ++i) {
    if (&chunks_[i] != place.chunk) continue;
    auto const& before = chunks_[i - 1];
    auto const& segment = segment_of(*place.chunk);
    auto const is_whole = before.segment == segment.number || (segment.continues && !segment.is_new_owner);
    return is_whole && !before.steps.empty() ? &before.steps.back() : nullptr;
  }
  return nullptr;
}

std::optional<std::uint64_t> LedgerPast::peak_at(Place const& place, Sums const& sums) const {
  auto const& segment = segment_of(*place.chunk);
  if (segment.from_birth) return sums.highest;
  if (segment.peak_was == Segment::PeakWas::before) return std::max(segment.peak, sums.highest);
  if (segment.peak_was == Segment::PeakWas::within && sums.highest >= segment.peak) return sums.highest;
  return std::nullopt;
}

LedgerPast::Place LedgerPast::find_peak(std::uint64_t bytes, std::uint64_t since) const {
  for (auto const& chunk : chunks_) {
    if (chunk.steps.empty() || chunk.steps.back().ticks < since) continue;
    for (std::size_t height = 0; height < chunk.heights.size(); ++height) {
      if (chunk.heights[height].high < bytes) continue;
      auto const end = std::min((height + 1) * kHeightSteps, chunk.steps.size());
      for (auto i = height * kHeightSteps; i < end; ++i) {
        if (chunk.steps[i].adds() && chunk.steps[i].allocated == bytes && chunk.steps[i].ticks >= since) {
          return {.chunk = &chunk, .steps = i + 1, .known = Known::exact, .missing = 0};
        }
      }
    }
  }
  return {};
}

}  // namespace headroom::follow
