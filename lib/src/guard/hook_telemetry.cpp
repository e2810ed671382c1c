#include "guard/hook_telemetry.hpp"

#include "base/clock.hpp"
#include "flight/counters.hpp"
#include "flight/emit.hpp"

namespace headroom::guard {

using namespace flight;  // NOLINT(google-build-using-namespace): written in the flight file's terms

namespace {

void add(Word& word, std::uint64_t amount) noexcept { word.fetch_add(amount, std::memory_order_relaxed); }

}  // namespace

std::uint64_t HookTelemetry::subject() const noexcept {
  const std::uint64_t pressure = ledger_.cell().pressure.load(std::memory_order_relaxed);
  return Subject{.ledger = ledger_.record_id(), .hook = place_.entry, .pressure = static_cast<PressureLevel>(pressure & 0xFF)}
      .pack();
}

bool HookTelemetry::begin(HookAsk const& ask, std::uint64_t start_ticks) const noexcept {
  const LaneSection section{this_thread()};
  HookCell& cell = *place_.cell;
  bool shown = true;
  if (place_.own) {
    cell.running_thread.store(section.thread().thread_id, std::memory_order_release);
    cell.limit_ns.store(ask.limit_ns, std::memory_order_release);
    cell.running_since_ticks.store(start_ticks, std::memory_order_release);
  } else {
    std::uint64_t nobody = 0;
    shown = cell.running_since_ticks.compare_exchange_strong(nobody, start_ticks, std::memory_order_release,
                                                             std::memory_order_relaxed);
  }
  Draft draft;
  draft.words[0] = pack_kind(EventKind::hook_begin);
  draft.words[1] = start_ticks;
  draft.words[2] = ask.shortfall;
  draft.words[3] = ask.estimate;
  draft.words[4] = ask.headroom;
  draft.words[5] = subject();
  draft.words[6] = ask.requested;
  draft.words[7] = pack_duration(0, section.thread().thread_id);
  emit(section, EventKind::hook_begin, draft);
  return shown;
}

void HookTelemetry::end(HookAsk const& ask, HookRunFigures const& run, bool shown) const noexcept {
  const LaneSection section{this_thread()};
  HookCell& cell = *place_.cell;
  if (shown) cell.running_since_ticks.store(0, std::memory_order_release);
  add(cell.runs, 1);
  if (run.threw) add(cell.errors, 1);
  add(cell.reported_bytes, run.reported);
  add(cell.freed_bytes, run.freed);
  add(cell.estimated_bytes, ask.estimate);
  add(cell.duration_ns, run.ns);
  add(cell.duration_histogram[log2_bucket<kDurationBuckets>(run.ns)], 1);

  const std::uint64_t now = ticks_now();
  const std::uint32_t thread = section.thread().thread_id;
  Draft drafts[2];
  Draft& head = drafts[0];
  head.words[0] = pack_kind(EventKind::hook_end, (run.threw ? kFlagHookThrew : 0) | (run.overran ? kFlagHookOverran : 0) |
                                                     (run.ns > 0xFFFFFFFFU ? kFlagDurationSaturated : 0));
  head.words[1] = now;
  head.words[HookEnd::kReported] = run.reported;
  head.words[HookEnd::kNs] = run.ns;
  head.words[HookEnd::kFreed] = run.freed;
  head.words[5] = subject();
  head.words[7] = pack_duration(run.ns, thread);
  Draft& tail = drafts[1];
  tail.words[0] = pack_kind(EventKind::hook_end, kFlagContinues);
  tail.words[1] = now;
  tail.words[HookEndTail::kLedgerFell] = static_cast<std::uint64_t>(run.ledger_fell);
  tail.words[HookEndTail::kEstimate] = ask.estimate;
  tail.words[HookEndTail::kRequested] = ask.requested;
  tail.words[HookEndTail::kShortfall] = ask.shortfall;
  tail.words[HookEndTail::kLimitNs] = ask.limit_ns;
  tail.words[7] = pack_duration(0, thread);
  emit(section, EventKind::hook_end, drafts, 2);
}

void HookTelemetry::skip(HookAsk const& ask, HookSkip reason, std::chrono::nanoseconds waited) const noexcept {
  const auto ns = static_cast<std::uint64_t>(waited.count());
  const LaneSection section{this_thread()};
  if (reason == HookSkip::large) add(place_.cell->skips, 1);
  if (reason == HookSkip::busy) add(place_.cell->busy_skips, 1);
  Draft draft;
  draft.words[0] = pack_kind(EventKind::hook_skip, ns > 0xFFFFFFFFU ? kFlagDurationSaturated : 0);
  draft.words[1] = ticks_now();
  draft.words[2] = ask.shortfall;
  draft.words[3] = ask.overhead;
  draft.words[4] = ask.headroom;
  draft.words[5] = subject();
  draft.words[6] = static_cast<std::uint64_t>(reason);
  draft.words[7] = pack_duration(ns, section.thread().thread_id);
  emit(section, EventKind::hook_skip, draft);
}

void HookTelemetry::overrun(std::uint64_t limit_ns, std::uint64_t ns_so_far, std::uint64_t start_ticks,
                            std::uint32_t running_thread) const noexcept {
  const LaneSection section{this_thread()};
  add(place_.cell->overruns, 1);
  Draft draft;
  draft.words[0] = pack_kind(EventKind::hook_overrun);
  draft.words[1] = ticks_now();
  draft.words[2] = limit_ns;
  draft.words[3] = ns_so_far;
  draft.words[4] = start_ticks;
  draft.words[5] = subject();
  draft.words[6] = running_thread;
  draft.words[7] = pack_duration(ns_so_far, section.thread().thread_id);
  emit(section, EventKind::hook_overrun, draft);
}

}  // namespace headroom::guard
