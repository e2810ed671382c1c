#include "flight/log_lines.hpp"

#include "flight/recorder.hpp"
#include "flight/thread_state.hpp"

namespace headroom::flight {

constinit std::atomic<std::uint64_t> log_lines_refused{0};

namespace {

Draft draft_of(LogRecord const& record, std::uint32_t thread) noexcept {
  Draft draft;
  draft.words[0] = pack_kind(record.kind, record.bytes > kRequestedMask ? kFlagBytesSaturated : 0);
  draft.words[1] = record.ticks;
  draft.words[2] = record.address;
  draft.words[3] = pack_bytes(record.bytes, record.alignment);
  draft.words[4] = record.stream;
  draft.words[5] = Subject{.tag = record.tag, .result = record.result}.pack() | ((record.log & kLogMask) << kLogShift);
  draft.words[7] = pack_duration(0, thread);
  return draft;
}

// The two counts of a ring: this line gets them as they are, and whoever may write the lane moves them on after the record.
class Numbered {
public:
  Numbered(std::atomic<std::uint64_t>& of_log, Word& of_all) noexcept
      : of_log_(of_log),
        of_all_(of_all),
        log_before_(of_log.load(std::memory_order_relaxed)),
        all_before_(of_all.load(std::memory_order_relaxed)) {}

  [[nodiscard]] std::uint64_t word() const noexcept { return (log_before_ << 32) | (all_before_ & 0xFFFF'FFFFU); }
  void move_on() noexcept {
    of_log_.store(log_before_ + 1, std::memory_order_release);
    of_all_.store(all_before_ + 1, std::memory_order_release);
  }

private:
  std::atomic<std::uint64_t>& of_log_;
  Word& of_all_;
  std::uint64_t log_before_;
  std::uint64_t all_before_;
};

Numbered number_in(LogCounts& counts, std::uint32_t lane_index, LaneBooks& lane, EventKind kind) noexcept {
  const bool main = is_main(kind);
  return {counts.lanes[lane_index].lines[main ? 0 : 1], main ? lane.header.main.log_lines : lane.header.journal.log_lines};
}

void refuse(LogCounts& counts, Word& reason) noexcept {
  reason.fetch_add(1, std::memory_order_relaxed);
  counts.refused.fetch_add(1, std::memory_order_release);
  log_lines_refused.fetch_add(1, std::memory_order_release);
}

// For threads without a lane of their own.
void write_shared_log_line(LogCounts& counts, EventKind kind, Draft& draft, bool reentrant) noexcept {
  FileHeader& header = *recorder.header;
  if (reentrant) return refuse(counts, header.refused_reentrant);
  const std::uint32_t index = enter_shared_lane();
  if (index == kLaneCount) return refuse(counts, header.refused_no_lane);
  LaneBooks& lane = recorder.lane(index);
  auto numbered = number_in(counts, index, lane, kind);
  draft.words[6] = numbered.word();
  if (recorder.events) write_entered(lane, kind, &draft, 1);
  numbered.move_on();
  leave_shared_lane(index);
  if (recorder.events) write_clock_sync_if_due(draft.words[1]);
}

}  // namespace

std::uint64_t LogCounts::total() const noexcept {
  std::uint64_t sum = refused.load(std::memory_order_acquire);
  for (auto const& lane : lanes) {
    for (auto const& lines : lane.lines) sum += lines.load(std::memory_order_acquire);
  }
  return sum;
}

void write_log_line(LogCounts& counts, LogRecord const& record) noexcept {
  ThreadState& thread = this_thread();
  const LaneSection section{thread};
  Draft draft = draft_of(record, thread.thread_id);
  LaneBooks* lane = section.lane();
  if (lane == nullptr) [[unlikely]] {
    write_shared_log_line(counts, record.kind, draft, section.reentrant());
    return;
  }
  auto numbered = number_in(counts, thread.lane_index, *lane, record.kind);
  draft.words[6] = numbered.word();
  emit(section, record.kind, draft);
  numbered.move_on();
}

}  // namespace headroom::flight
