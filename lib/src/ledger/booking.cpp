// What a ledger writes down about each outcome: counters, tag cells, peak, live slot, events. Split from ledger.cpp, which holds the
// steps that decide.
#include "base/clock.hpp"
#include "base/test_point.hpp"
#include "flight/emit.hpp"
#include "flight/first_failure.hpp"
#include "flight/recorder.hpp"
#include "ledger/ledger.hpp"
#include "ledger/waiting.hpp"

namespace headroom::ledger {

using namespace flight;  // NOLINT(google-build-using-namespace): the ledger is written in the flight file's terms

namespace {

using Waiting = WaitProtocol<StdAtomics>;

// Word 0 to 3 and 7, which all records about a block share.
Draft block_draft(EventKind kind, Booking const& booking, std::uint64_t duration_ns, std::uint64_t flags,
                  std::uint32_t thread) noexcept {
  Draft draft;
  draft.words[0] = pack_kind(
      kind, flags | (duration_ns > 0xFFFFFFFFU ? kFlagDurationSaturated : 0) | (booking.slot == kNoSlot ? kFlagUntracked : 0));
  draft.words[1] = booking.end_ticks;
  draft.words[2] = booking.address;
  draft.words[3] = pack_bytes(booking.bytes, booking.alignment);
  draft.words[4] = booking.alloc_word;
  draft.words[6] = booking.site;
  draft.words[7] = pack_duration(duration_ns, thread);
  return draft;
}

}  // namespace

CountersRef<LedgerCounters> Ledger::counters(LaneSection const& section) const noexcept {
  LaneBooks* lane = section.lane();
  if (lane != nullptr && index_ < kLaneLedgers) [[likely]] {
    return {lane->counters[index_], true};
  }
  return {*shared_counters_, false};
}

// Who held what at the peak, in constant time: the first change of a cell after a new peak keeps what it held then.
void Ledger::change_tag(LaneSection const& section, TagPlace place, std::uint64_t bytes, std::uint64_t allocations) noexcept {
  if (place.cell == kNoTagCell) return;
  LaneBooks* lane = section.lane();
  TagCell& cell = lane != nullptr ? lane->tags[place.cell] : recorder.overflow->tags[place.cell];
  const CountersRef<TagCell> ref{cell, lane != nullptr};
  const std::uint64_t peak = cell_->peak.load(std::memory_order_relaxed);
  if (cell.peak_seen.load(std::memory_order_relaxed) != peak) {
    cell.at_peak.store(cell.bytes.load(std::memory_order_relaxed), std::memory_order_release);
    cell.peak_seen.store(peak, std::memory_order_release);
  }
  ref.add(cell.bytes, bytes);
  if (allocations != 0) ref.add(cell.allocations, allocations);
}

std::uint64_t Ledger::book_allocation(LaneSection const& section, Booking const& booking) noexcept {
  const std::uint64_t duration_ns = recorder.to_ns(booking.end_ticks - booking.start_ticks);
  const auto count = counters(section);
  count.add(count->allocations, 1);
  count.add(count->allocation_bytes, booking.bytes);
  if (booking.counted) [[likely]]
    count.add(booking.typed ? count->typed_requests : count->raw_requests, 1);
  count.add(count->allocation_ns, duration_ns);
  count.add(count->size_histogram[log2_bucket<kSizeBuckets>(booking.bytes)], 1);
  count.add(count->duration_histogram[log2_bucket<kDurationBuckets>(duration_ns)], 1);
  if (const double scale = use_scale_.load(std::memory_order_relaxed); scale != 0.0) {
    const auto bucket = static_cast<std::uint64_t>(static_cast<double>(booking.claimed_before + booking.bytes) * scale);
    count.add(count->use_histogram[bucket < kUseBuckets ? bucket : kUseBuckets - 1], 1);
  }
  change_tag(section, booking.tag, booking.bytes, 1);
  note_taken(section.thread(), booking.bytes);

  test_point(TestPoint::book_before_peak);
  const bool new_peak = Steps::raise_peak(cell_->peak, booking.alloc_word);
  test_point(TestPoint::book_before_publish);
  std::uint64_t generation = 0;
  if (booking.slot != kNoSlot) [[likely]] {
    generation = publish_slot(booking.slot, {.address = booking.address,
                                             .bytes = booking.bytes,
                                             .alignment = booking.alignment,
                                             .stream = booking.stream,
                                             .ticks = booking.end_ticks,
                                             .operation = booking.alloc_word,
                                             .tag = booking.tag.entry,
                                             .ledger = record_id(),
                                             .site = booking.site,
                                             .thread = section.thread().thread_id});
  } else {
    cell_->live_untracked_bytes.fetch_add(booking.bytes, std::memory_order_acq_rel);
    cell_->live_untracked.fetch_add(1, std::memory_order_relaxed);
  }
  test_point(TestPoint::book_before_record);
  Draft draft = block_draft(EventKind::allocate, booking, duration_ns, new_peak ? kFlagPeak : 0, section.thread().thread_id);
  draft.words[5] = Subject{.tag = booking.tag.entry, .ledger = record_id(), .pressure = pressure_state()}.pack();
  emit(section, EventKind::allocate, draft);
  if (new_peak) note_peak(section, booking);
  return generation;
}

// Every peak change is a flag on its allocation; the journal hears of it when it moved far enough to matter.
void Ledger::note_peak(LaneSection const& section, Booking const& booking) noexcept {
  const std::uint64_t peak = booking.alloc_word & kBytesMask;
  std::uint64_t noted = cell_->journal_peak.load(std::memory_order_relaxed);
  do {
    if (peak < noted + peak_step_.load(std::memory_order_relaxed)) return;
  } while (!cell_->journal_peak.compare_exchange_weak(noted, peak, std::memory_order_relaxed));
  Draft draft = block_draft(EventKind::peak, booking, 0, 0, section.thread().thread_id);
  draft.words[5] = Subject{.tag = booking.tag.entry, .ledger = record_id(), .pressure = pressure_state()}.pack();
  emit(section, EventKind::peak, draft);
}

void Ledger::book_free(LaneSection const& section, Booking const& booking, EventKind kind) noexcept {
  const std::uint64_t duration_ns = recorder.to_ns(booking.end_ticks - booking.start_ticks);
  const auto count = counters(section);
  count.add(count->frees, 1);
  count.add(count->deallocation_bytes, booking.bytes);
  count.add(count->free_ns, duration_ns);
  change_tag(section, booking.tag, std::uint64_t{0} - booking.bytes, 0);
  note_freed(section.thread(), booking.bytes);
  unclaim(booking.bytes, section);
  test_point(TestPoint::free_after_unclaim);
  if (kind == EventKind::write_off) tallies_->write_offs.fetch_add(1, std::memory_order_relaxed);

  Draft draft = block_draft(kind, booking, duration_ns, 0, section.thread().thread_id);
  draft.words[5] = Subject{.tag = booking.tag.entry, .ledger = record_id(), .pressure = pressure_state()}.pack();
  emit(section, kind, draft);
}

void Ledger::book_refusal(LaneSection const& section, Refusal const& refusal) noexcept {
  test_point(TestPoint::refusal_before_book);
  const auto count = counters(section);
  count.add(refusal.typed ? count->typed_requests : count->raw_requests, refusal.observed || !refusal.counted ? 0 : 1);
  if (refusal.observed) {
    tallies_->observed.fetch_add(1, std::memory_order_relaxed);
  } else {
    tallies_->refusals[static_cast<std::size_t>(refusal.kind)][static_cast<std::size_t>(refusal.layer)].fetch_add(
        1, std::memory_order_relaxed);
  }
  const std::uint64_t now = ticks_now();
  const std::uint64_t peak = cell_->peak.load(std::memory_order_relaxed);
  const std::uint64_t device_free = refusal.device_free ? *refusal.device_free + 1 : 0;
  const std::uint32_t thread = section.thread().thread_id;
  if (!refusal.observed) {
    note_failure(refusal.kind, refusal.layer,
                 {.ticks = now,
                  .requested = refusal.requested,
                  .claimed = refusal.claimed,
                  .limit_word = refusal.limit_word,
                  .peak_word = peak,
                  .device_free_plus_one = device_free,
                  .tag = refusal.tag.entry,
                  .site = refusal.site,
                  .ledger = record_id(),
                  .thread = thread});
  }
  const EventKind kind = refusal.observed ? EventKind::observed : EventKind::refusal;
  const std::uint64_t subject = Subject{.tag = refusal.tag.entry,
                                        .ledger = record_id(),
                                        .result = pack_result(refusal.kind, refusal.layer),
                                        .pressure = pressure_state()}
                                    .pack();
  Draft drafts[2];
  Draft& head = drafts[0];
  head.words[0] = pack_kind(kind, refusal.requested > kRequestedMask ? kFlagBytesSaturated : 0);
  head.words[1] = now;
  head.words[2] = refusal.requested;
  head.words[3] = pack_bytes(refusal.requested, refusal.alignment);
  head.words[4] = cell_->alloc.load(std::memory_order_relaxed);
  head.words[5] = subject;
  head.words[6] = refusal.site;
  head.words[7] = pack_duration(recorder.to_ns(now - refusal.start_ticks), thread);
  Draft& tail = drafts[1];
  tail.words[0] = pack_kind(kind, kFlagContinues);
  tail.words[1] = now;
  tail.words[RefusalTail::kClaimed] = refusal.claimed;
  tail.words[RefusalTail::kLimit] = refusal.limit_word;
  tail.words[RefusalTail::kPeak] = peak;
  tail.words[RefusalTail::kDeviceFree] = device_free;
  tail.words[RefusalTail::kUnspent] = cell_->unspent.load(std::memory_order_relaxed);
  tail.words[RefusalTail::kCode] = (std::uint64_t{static_cast<std::uint32_t>(refusal.device_code)} << 32) | thread;
  test_point(TestPoint::refusal_before_record);
  emit(section, kind, drafts, 2);
}

void Ledger::book_free_failure(LaneSection const& section, Booking const& booking, ErrorKind kind, Layer layer) noexcept {
  tallies_->free_failures[static_cast<std::size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
  Draft draft = block_draft(EventKind::free_failed, booking, recorder.to_ns(booking.end_ticks - booking.start_ticks), 0,
                            section.thread().thread_id);
  draft.words[5] =
      Subject{.tag = booking.tag.entry, .ledger = record_id(), .result = pack_result(kind, layer), .pressure = pressure_state()}
          .pack();
  test_point(TestPoint::free_failed_before_record);
  emit(section, EventKind::free_failed, draft);
}

void Ledger::book_misuse(LaneSection const& section, Booking const& booking, ErrorKind kind, Layer layer) noexcept {
  book_free_failure(section, booking, kind, layer);
  misuses_.fetch_add(1, std::memory_order_release);
}

void Ledger::book_trim(LaneSection const& section, std::uint64_t came_back, std::uint64_t requested, std::uint64_t alignment,
                       TagPlace tag) noexcept {
  Draft draft;
  draft.words[0] = pack_kind(EventKind::trim);
  draft.words[1] = ticks_now();
  draft.words[2] = came_back;
  draft.words[3] = pack_bytes(requested, alignment);
  draft.words[4] = cell_->alloc.load(std::memory_order_relaxed);
  draft.words[5] = Subject{.tag = tag.entry, .ledger = record_id(), .pressure = pressure_state()}.pack();
  draft.words[7] = pack_duration(0, section.thread().thread_id);
  emit(section, EventKind::trim, draft);
}

void Ledger::book_empty(LaneSection const& section, bool typed) noexcept {
  const auto count = counters(section);
  count.add(typed ? count->typed_requests : count->raw_requests, 1);
  count.add(count->zero_byte_requests, 1);
}

void Ledger::unclaim(std::uint64_t bytes, LaneSection const& section) noexcept {
  Steps::give_back(cell_->claim, bytes);
  test_point(TestPoint::unclaim_before_wake);
  wake_waiters();
  test_point(TestPoint::unclaim_before_judge);
  judge_pressure(section);
}

void Ledger::wake_waiters() noexcept {
  if (Waiting::bump_if_awaited(cell_->waiters, cell_->epoch)) [[unlikely]] {
    wake_all(cell_->epoch);
  }
}

void Ledger::judge_pressure(LaneSection const& section) noexcept {
  Steps::judge_pressure(
      cell_->pressure, cell_->claim, cell_->limit, cell_->pressure_margin, [&](Steps::Transition const& change) {
        test_point(TestPoint::pressure_before_record);
        tallies_->transitions[static_cast<std::size_t>(change.from)][static_cast<std::size_t>(change.to)].fetch_add(
            1, std::memory_order_relaxed);
        Draft draft;
        draft.words[0] = pack_kind(EventKind::pressure);
        draft.words[1] = ticks_now();
        draft.words[2] = std::uint64_t{static_cast<std::uint8_t>(change.from)} |
                         (std::uint64_t{static_cast<std::uint8_t>(change.to)} << 8) | (change.sequence << 16);
        draft.words[3] = cell_->claim.load(std::memory_order_relaxed) & kBytesMask;
        draft.words[4] = limit_word();
        draft.words[5] = Subject{.ledger = record_id(), .pressure = change.to}.pack();
        draft.words[7] = pack_duration(0, section.thread().thread_id);
        emit(section, EventKind::pressure, draft);
        if (PressureObserver* const listening = observer_.load(std::memory_order_seq_cst); listening != nullptr) [[unlikely]] {
          test_point(TestPoint::pressure_before_note);
          listening->note(notice_base() + change.sequence, change.from, change.to);
          section.thread().notices_due.store(true, std::memory_order_relaxed);
        }
      });
}

void Ledger::book_budget_change(LaneSection const& section, std::uint64_t before, std::uint64_t after) noexcept {
  Draft draft;
  draft.words[0] = pack_kind(EventKind::budget);
  draft.words[1] = ticks_now();
  draft.words[2] = before;
  draft.words[3] = after;
  draft.words[4] = cell_->claim.load(std::memory_order_relaxed);
  draft.words[5] = Subject{.ledger = record_id(), .pressure = pressure_state()}.pack();
  draft.words[7] = pack_duration(0, section.thread().thread_id);
  emit(section, EventKind::budget, draft);
}

}  // namespace headroom::ledger
