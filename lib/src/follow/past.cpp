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

/// Blocks that were live all the time from the keyframe on.
void raise(Keyframe& keyframe, std::uint16_t tag, TagPoint const& more) {
  auto& held = point(keyframe.sums.tags, tag);
  held.bytes += more.bytes;
  held.allocations += more.allocations;
  keyframe.sums.known += more.bytes;
  keyframe.sums.blocks += more.allocations;
  if (tag >= keyframe.tags.size()) keyframe.tags.resize(std::size_t{tag} + 1);
  keyframe.tags[tag].low += more.bytes;
  keyframe.tags[tag].high += more.bytes;
}

void widen(Keyframe& keyframe, Sums const& now, std::uint16_t tag) {
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
  std::size_t bytes =
      sizeof(Chunk) + base.capacity() * sizeof(Block) + steps.capacity() * sizeof(Step) + heights.capacity() * sizeof(Range);
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
  settle();
  start.ticks = std::max(start.ticks, last_ticks_);
  looked_ticks_ = start.looked_ticks;
  Segment segment;
  segment.number = next_segment_++;
  segment.from_birth = start.from_birth;
  segment.missing = start.missing;
  segment.is_whole = start.is_whole;
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
  chunks_.push_back({.begin_ticks = ticks,
                     .segment = segments_.back().number,
                     .base = std::move(base),
                     .steps = {},
                     .keyframes = {},
                     .heights = {}});
  memory_ += chunks_.back().memory();
  add_keyframe();
}

void LedgerPast::add_keyframe() {
  auto& chunk = chunks_.back();
  Keyframe keyframe{.at = chunk.steps.size(), .sums = sums_, .tags = {}};
  keyframe.tags.reserve(sums_.tags.size());
  for (auto const& tag : sums_.tags) keyframe.tags.push_back({tag.bytes, tag.bytes});
  memory_ += memory_of(keyframe);
  chunk.keyframes.push_back(std::move(keyframe));
}

void LedgerPast::append(Step const& step) {
  auto& chunk = chunks_.back();
  auto const before = chunk.steps.capacity() * sizeof(Step) + chunk.heights.capacity() * sizeof(Range);
  if (chunk.steps.size() % kHeightSteps == 0) chunk.heights.push_back({step.allocated, step.allocated});
  chunk.steps.push_back(step);
  widen(chunk.heights.back(), step.allocated);
  memory_ += chunk.steps.capacity() * sizeof(Step) + chunk.heights.capacity() * sizeof(Range) - before;
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
  auto taken = live_.take(step.address, step.bytes);
  auto const& base = chunks_[first_chunk_of_segment()].keyframes.front().sums;
  auto const known = checked_add(base.known, late_bytes_);
  auto const sum = known ? checked_add(*known, step.bytes) : known;
  auto const may_be_of_base = sum && *sum <= base.allocated;
  if (taken && taken->bytes != step.bytes && may_be_of_base) {
    // A device gives an address out again before the free before is booked: this is the free of a block that was never seen, and what
    // lies there now stays.
    live_.insert(step.address, taken->bytes, taken->value);
    taken.reset();
  }
  if (taken) {
    // What was allocated comes back, whatever the free says: sums of the past stay what they were.
    step.bytes = taken->bytes;
    step.tag = taken->value.tag;
    step.site = step.site != 0 ? step.site : taken->value.site;
  } else {
    if (!may_be_of_base) {
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

std::size_t LedgerPast::first_chunk_of_segment() const noexcept {
  auto first = chunks_.size() - 1;
  while (first != 0 && chunks_[first - 1].segment == chunks_[first].segment) --first;
  return first;
}

/// It was live from the segment's begin until now. The last keyframe is still being written, and gets the block at once; going
/// through all those before it for each block would take a busy ledger's frees quadratic time.
void LedgerPast::add_to_base(Block const& block) {
  auto& chunk = chunks_.back();
  auto& keyframe = chunk.keyframes.back();
  auto const before = chunk.base.capacity() * sizeof(Block) + memory_of(keyframe);
  chunk.base.push_back(block);
  raise(keyframe, block.tag, {.bytes = block.bytes, .allocations = 1});
  memory_ += chunk.base.capacity() * sizeof(Block) + memory_of(keyframe) - before;
  sums_.add(block.tag, block.bytes);
  auto const last = chunks_.size() - 1;
  if (chunk.keyframes.size() == 1 && first_chunk_of_segment() == last) return;
  late_.push_back({.block = block, .chunk = last, .keyframe = chunk.keyframes.size() - 1});
  late_bytes_ += block.bytes;
}

void LedgerPast::settle() {
  if (late_.empty()) return;
  auto const first = first_chunk_of_segment();
  std::vector<TagPoint> sums;  // of the blocks whose frees come after the keyframe
  std::size_t rest = late_.size();
  for (std::size_t at = late_.back().chunk + 1; at-- > first;) {
    auto& chunk = chunks_[at];
    memory_ -= std::min(memory_, chunk.memory());
    // The base has those of its own chunk.
    auto const later = std::ranges::upper_bound(late_, at, {}, &Late::chunk);
    chunk.base.reserve(chunk.base.size() + static_cast<std::size_t>(late_.end() - later));
    for (auto late = later; late != late_.end(); ++late) chunk.base.push_back(late->block);
    for (std::size_t k = chunk.keyframes.size(); k-- > 0;) {
      for (; rest != 0 && std::pair{late_[rest - 1].chunk, late_[rest - 1].keyframe} > std::pair{at, k}; --rest) {
        auto const& block = late_[rest - 1].block;
        auto& sum = point(sums, block.tag);
        sum.bytes += block.bytes;
        ++sum.allocations;
      }
      for (std::size_t tag = 0; tag < sums.size(); ++tag) {
        if (sums[tag].allocations != 0) raise(chunk.keyframes[k], static_cast<std::uint16_t>(tag), sums[tag]);
      }
    }
    memory_ += chunk.memory();
  }
  late_ = {};
  late_bytes_ = 0;
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
    begin_continuation(last_ticks_, peak, false);  // somebody reset it since the last poll
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

void LedgerPast::reopen(std::uint64_t ticks) {
  // Some of its operations are here already, as the books were not to be had in time: for them the peak was only reset.
  if (last_ticks_ > ticks) return;
  begin_continuation(ticks, sums_.allocated, true);
}

/// From here on another peak counts.
void LedgerPast::begin_continuation(std::uint64_t ticks, std::uint64_t peak, bool is_new_owner) {
  settle();
  last_ticks_ = std::max(ticks, last_ticks_);
  Segment after;
  after.number = next_segment_++;
  after.begin_ticks = last_ticks_;
  after.continues = true;
  after.is_new_owner = is_new_owner;
  after.peak_was = Segment::PeakWas::before;
  after.peak = peak;
  segments_.push_back(after);
  sums_.highest = std::min(sums_.allocated, peak);
  begin_chunk(last_ticks_, live());
}

void LedgerPast::forget_oldest() {
  settle();  // places of what is late are counted from the oldest chunk on
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
