#include "follow/past.hpp"

#include <algorithm>
#include <utility>

#include "base/checked.hpp"

namespace headroom::follow {
namespace {

std::uint64_t less(std::uint64_t a, std::uint64_t b) noexcept { return checked_sub(a, b).value_or(0); }

TagPoint& point(std::vector<TagPoint>& tags, std::uint16_t tag) {
  if (tag >= tags.size()) tags.resize(std::size_t{tag} + 1);
  return tags[tag];
}

std::size_t memory_of(Keyframe const& keyframe) noexcept {
  return sizeof(Keyframe) + keyframe.sums.tags.capacity() * sizeof(TagPoint) + keyframe.tags.capacity() * sizeof(Range);
}

void widen(Range& range, std::uint64_t value) noexcept {
  range.low = std::min(range.low, value);
  range.high = std::max(range.high, value);
}

void widen(Keyframe& keyframe, Sums const& now, std::uint16_t tag) {
  widen(keyframe.allocated, now.allocated);
  // A tag that is new since the keyframe held nothing until now.
  if (tag >= keyframe.tags.size()) keyframe.tags.resize(std::size_t{tag} + 1);
  widen(keyframe.tags[tag], tag < now.tags.size() ? now.tags[tag].bytes : 0);
}

}  // namespace

void Sums::add(std::uint16_t tag, std::uint64_t bytes) {
  auto& held = point(tags, tag);
  held.bytes += bytes;
  ++held.allocations;
  known += bytes;
  ++blocks;
}

void Sums::remove(std::uint16_t tag, std::uint64_t bytes) {
  auto& held = point(tags, tag);
  held.bytes = less(held.bytes, bytes);
  held.allocations = less(held.allocations, 1);
  known = less(known, bytes);
  blocks = less(blocks, 1);
}

std::size_t Chunk::memory() const noexcept {
  std::size_t bytes = sizeof(Chunk) + base.capacity() * sizeof(Block) + steps.capacity() * sizeof(Step);
  for (auto const& keyframe : keyframes) bytes += memory_of(keyframe);
  return bytes;
}

Block LedgerPast::to_block(std::uint64_t address, Live::Live const& live) {
  auto const& held = live.value;
  return {.address = address,
          .bytes = live.bytes,
          .ticks = held.ticks,
          .site = held.site,
          .thread = held.thread,
          .tag = held.tag,
          .untracked = held.untracked};
}

void LedgerPast::begin_segment(Start start) {
  start.ticks = std::max(start.ticks, last_ticks_);
  looked_ticks_ = start.looked_ticks;
  Segment segment;
  segment.number = next_segment_++;
  segment.from_birth = start.from_birth;
  segment.missing = start.missing;
  segment.begin_ticks = start.from_birth ? 0 : start.ticks;
  segments_.push_back(segment);
  live_ = {};
  sums_ = {};
  sums_.allocated = start.allocated;
  sums_.highest = start.allocated;
  for (auto const& block : start.live) {
    live_.insert(
        block.address, block.bytes,
        {.ticks = block.ticks, .site = block.site, .thread = block.thread, .tag = block.tag, .untracked = block.untracked});
    sums_.add(block.tag, block.bytes);
  }
  last_ticks_ = start.ticks;
  begin_chunk(segments_.back().begin_ticks, std::move(start.live));
}

void LedgerPast::begin_chunk(std::uint64_t ticks, std::vector<Block> base) {
  chunks_.push_back(
      {.begin_ticks = ticks, .segment = segments_.back().number, .base = std::move(base), .steps = {}, .keyframes = {}});
  memory_ += chunks_.back().memory();
  add_keyframe();
}

void LedgerPast::add_keyframe() {
  auto& chunk = chunks_.back();
  Keyframe keyframe{.at = chunk.steps.size(), .sums = sums_, .allocated = {sums_.allocated, sums_.allocated}, .tags = {}};
  keyframe.tags.reserve(sums_.tags.size());
  for (auto const& tag : sums_.tags) keyframe.tags.push_back({tag.bytes, tag.bytes});
  memory_ += memory_of(keyframe);
  chunk.keyframes.push_back(std::move(keyframe));
}

void LedgerPast::append(Step const& step) {
  auto& chunk = chunks_.back();
  auto const before = chunk.steps.capacity();
  chunk.steps.push_back(step);
  memory_ += (chunk.steps.capacity() - before) * sizeof(Step);
  auto& keyframe = chunk.keyframes.back();
  auto const tags_before = keyframe.tags.capacity();
  widen(keyframe, sums_, step.tag);
  memory_ += (keyframe.tags.capacity() - tags_before) * sizeof(Range);
  ++steps_;
  if (chunk.steps.size() >= chunk_steps_) {
    begin_chunk(step.ticks, live());
  } else if (chunk.steps.size() - keyframe.at >= kKeyframeSteps) {
    add_keyframe();
  }
}

void LedgerPast::apply(Step step) {
  // The order of the ledger counts: a record's ticks were taken a moment before or after its operation.
  auto const stamped = step.ticks;
  step.ticks = std::max(stamped, last_ticks_);
  last_ticks_ = step.ticks;
  if (step.adds()) {
    allocate(step, stamped);
  } else {
    release(step);
  }
  sums_.allocated = step.allocated;
  sums_.highest = std::max(sums_.highest, step.allocated);
  append(step);
}

void LedgerPast::allocate(Step const& step, std::uint64_t stamped) {
  if (stamped <= looked_ticks_ && was_seen_early(step, stamped)) return;
  live_.insert(step.address, step.bytes,
               {.ticks = step.ticks,
                .site = step.site,
                .thread = step.thread,
                .tag = step.tag,
                .untracked = (step.bits & Step::kUntracked) != 0});
  sums_.add(step.tag, step.bytes);
}

/// The live table was read after this allocation, and its record only now: then the block was taken for one of the base. It has the
/// record's ticks as they were stamped, which tells it from an older block whose free is not booked yet.
bool LedgerPast::was_seen_early(Step const& step, std::uint64_t stamped) {
  auto const older = live_.take(step.address, step.bytes);
  if (!older) return false;
  live_.insert(step.address, older->bytes, older->value);
  if (older->value.ticks != stamped || older->bytes != step.bytes) return false;
  take_from_base(to_block(step.address, *older));
  sums_.add(older->value.tag, older->bytes);  // from now on, as it is
  return true;
}

void LedgerPast::release(Step& step) {
  auto const taken = live_.take(step.address, step.bytes);
  if (taken) {
    // What was allocated comes back, whatever the free says: sums of the past stay what they were.
    step.bytes = taken->bytes;
    step.tag = taken->value.tag;
    step.site = step.site != 0 ? step.site : taken->value.site;
  } else {
    auto first = std::prev(chunks_.end());
    while (first != chunks_.begin() && std::prev(first)->segment == first->segment) --first;
    auto const& base = first->keyframes.front().sums;
    if (auto const sum = checked_add(base.known, step.bytes); !sum || *sum > base.allocated) {
      ++unmatched_;  // it was not live when the segment began, and nobody allocated it since
      step.bits |= Step::kUnmatched;
      return;
    }
    add_to_base({.address = step.address,
                 .bytes = step.bytes,
                 .ticks = 0,
                 .site = step.site,
                 .thread = 0,
                 .tag = step.tag,
                 .untracked = (step.bits & Step::kUntracked) != 0});
  }
  sums_.remove(step.tag, step.bytes);
}

/// It was live from the segment's begin until now.
void LedgerPast::add_to_base(Block const& block) {
  for (auto at = chunks_.rbegin(); at != chunks_.rend() && at->segment == segments_.back().number; ++at) {
    auto& chunk = *at;
    memory_ -= std::min(memory_, chunk.memory());
    chunk.base.push_back(block);
    for (auto& keyframe : chunk.keyframes) {
      keyframe.sums.add(block.tag, block.bytes);
      if (block.tag >= keyframe.tags.size()) keyframe.tags.resize(std::size_t{block.tag} + 1);
      keyframe.tags[block.tag].low += block.bytes;
      keyframe.tags[block.tag].high += block.bytes;
    }
    memory_ += chunk.memory();
  }
  sums_.add(block.tag, block.bytes);
}

/// The live table was read after its allocation, the record is read now: it was not live when the segment began.
void LedgerPast::take_from_base(Block const& block) {
  for (auto at = chunks_.rbegin(); at != chunks_.rend() && at->segment == segments_.back().number; ++at) {
    auto& chunk = *at;
    auto const found = std::ranges::find_if(
        chunk.base, [&](Block const& other) { return other.address == block.address && other.ticks == block.ticks; });
    if (found == chunk.base.end()) continue;
    chunk.base.erase(found);
    for (auto& keyframe : chunk.keyframes) {
      keyframe.sums.remove(block.tag, block.bytes);
      if (block.tag >= keyframe.tags.size()) continue;
      auto& range = keyframe.tags[block.tag];
      range = {less(range.low, block.bytes), less(range.high, block.bytes)};
    }
  }
  sums_.remove(block.tag, block.bytes);
}

void LedgerPast::note_book_peak(std::uint64_t peak, bool settled, bool final) {
  auto* segment = &segments_.back();
  auto const tracked = segment->peak_was == Segment::PeakWas::before ? std::max(segment->peak, sums_.highest) : sums_.highest;
  if (peak < tracked) {
    // Somebody reset it since the last poll. From here on another peak counts.
    Segment after;
    after.number = next_segment_++;
    after.begin_ticks = last_ticks_;
    after.continues = true;
    after.peak_was = Segment::PeakWas::before;
    after.peak = peak;
    segments_.push_back(after);
    sums_.highest = std::min(sums_.allocated, peak);
    begin_chunk(last_ticks_, live());
    return;
  }
  if (segment->from_birth || segment->peak_was != Segment::PeakWas::unknown) return;
  // An operation may have raised the peak whose record is not read yet: a peak counts as older than the segment only if a whole
  // poll later no operation of the segment came up to it.
  auto const judged = final ? std::optional{peak} : segment->candidate;
  segment->candidate = peak;
  if (!judged || !settled) return;
  segment->peak_was = sums_.highest < *judged ? Segment::PeakWas::before : Segment::PeakWas::within;
  segment->peak = *judged;
}

void LedgerPast::forget_oldest() {
  auto const& oldest = chunks_.front();
  memory_ -= std::min(memory_, oldest.memory());
  forgotten_ += oldest.steps.size();
  chunks_.pop_front();
  while (segments_.front().number != chunks_.front().segment) segments_.pop_front();
}

std::vector<Block> LedgerPast::live() const {
  std::vector<Block> blocks;
  blocks.reserve(live_.size());
  live_.for_each([&](std::uint64_t address, Live::Live const& live) { blocks.push_back(to_block(address, live)); });
  return blocks;
}

}  // namespace headroom::follow
