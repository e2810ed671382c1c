#include "flight/emit.hpp"

#include <string_view>

#include <headroom/flight_publish.hpp>

#include "base/clock.hpp"
#include "flight/directory.hpp"
#include "flight/lane_owner.hpp"

namespace headroom::flight {

// Whoever moves next_sync_ticks forward writes the sync. Two writers could meet in one entry only if one of them slept through all
// 127 others, more than two minutes; the number, stored last and checked twice by readers, catches that too.
void write_clock_sync_if_due(std::uint64_t ticks) noexcept {
  FileHeader& header = *recorder.header;
  std::uint64_t due = header.next_sync_ticks.load(std::memory_order_relaxed);
  if (ticks < due ||
      !header.next_sync_ticks.compare_exchange_strong(due, ticks + recorder.sync_interval_ticks, std::memory_order_relaxed)) {
    return;
  }
  const ClockTriple now = clock_triple_now();
  const std::uint64_t number = header.syncs_written.fetch_add(1, std::memory_order_relaxed);
  ClockSync& sync = recorder.syncs[number % recorder.geometry[Region::clock_syncs].count];
  sync.number.store(0, std::memory_order_release);
  sync.ticks.store(now.ticks, std::memory_order_release);
  sync.monotonic_ns.store(now.monotonic_ns, std::memory_order_release);
  sync.realtime_ns.store(now.realtime_ns, std::memory_order_release);
  sync.number.store(number + 1, std::memory_order_release);
}

std::uint32_t enter_shared_lane() noexcept {
  constexpr std::uint32_t kShared = kLaneCount - kOwnedLanes;
  const std::uint32_t first = thread_state.thread_id;
  for (std::uint32_t i = 0; i < kShared; ++i) {
    const std::uint32_t index = kOwnedLanes + (first + i) % kShared;
    if (LaneOwner<StdAtomics>::try_enter(recorder.lane(index).header.owner)) return index;
  }
  return kLaneCount;
}

void leave_shared_lane(std::uint32_t index) noexcept { LaneOwner<StdAtomics>::leave(recorder.lane(index).header.owner); }

void write_entered(LaneBooks& lane, EventKind kind, Draft const* drafts, std::size_t count) noexcept {
  const bool main = is_main(kind);
  auto const& sizes = recorder.geometry.sizes;
  RingWords& ring = main ? lane.header.main : lane.header.journal;
  Word* slots = main ? recorder.main_ring(lane) : recorder.journal_ring(lane);
  for (std::size_t k = 0; k < count; ++k) {
    RingWriter<StdAtomics>::write(ring.head, ring.reserve, slots, main ? sizes.main_records : sizes.journal_records,
                                  main ? sizes.main_block : sizes.journal_block, drafts[k].words);
  }
}

void write_shared(EventKind kind, Draft const* drafts, std::size_t count, bool reentrant) noexcept {
  FileHeader& header = *recorder.header;
  if (reentrant) {
    header.refused_reentrant.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const std::uint32_t index = enter_shared_lane();
  if (index == kLaneCount) {
    header.refused_no_lane.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  write_entered(recorder.lane(index), kind, drafts, count);
  leave_shared_lane(index);
  write_clock_sync_if_due(drafts[0].words[1]);
}

void emit_thread(EventKind kind, ThreadState& state) noexcept {
  const LaneSection section{state};
  Draft draft;
  draft.words[0] = pack_kind(kind);
  draft.words[1] = ticks_now();
  draft.words[2] = state.lane != nullptr ? state.lane->header.thread_name[0].load(std::memory_order_relaxed) : 0;
  draft.words[3] = state.lane != nullptr ? state.lane->header.thread_name[1].load(std::memory_order_relaxed) : 0;
  draft.words[7] = pack_duration(0, state.thread_id);
  emit(section, kind, draft);
}

void mark(std::string_view label, std::uint64_t value) {
  if (!start_recorder()) return;
  const std::uint32_t id = intern_mark(label);
  const LaneSection section{this_thread()};
  Draft draft;
  draft.words[0] = pack_kind(EventKind::mark);
  draft.words[1] = ticks_now();
  draft.words[2] = value;
  draft.words[6] = id;
  draft.words[7] = pack_duration(0, section.thread().thread_id);
  emit(section, EventKind::mark, draft);
}

}  // namespace headroom::flight
