#include "guard/policy_records.hpp"

#include "base/clock.hpp"
#include "flight/emit.hpp"

namespace headroom::guard {

using flight::EventKind;

void write_record(ledger::Ledger& ledger, PolicyRecord const& record) noexcept {
  flight::ThreadState& thread = flight::this_thread();
  const auto level = static_cast<PressureLevel>(ledger.cell().pressure.load(std::memory_order_relaxed) & 0xFF);
  const auto ns = static_cast<std::uint64_t>(record.duration.count());
  const std::uint32_t result = record.refusal != nullptr ? flight::pack_result(record.refusal->kind, record.refusal->layer) : 0;
  flight::Draft draft;
  draft.words[0] = flight::pack_kind(EventKind::policy, ns > 0xFFFFFFFFU ? flight::kFlagDurationSaturated : 0);
  draft.words[1] = ticks_now();
  draft.words[2] = std::uint64_t{static_cast<std::uint8_t>(record.step)} |
                   (std::uint64_t{static_cast<std::uint8_t>(record.policy.kind())} << 8) |
                   (std::uint64_t{static_cast<std::uint8_t>(record.begins)} << 16);
  draft.words[3] = ns;
  draft.words[4] = record.bytes;
  draft.words[5] =
      flight::Subject{
          .tag = ledger.tag_place(record.tag).entry, .ledger = ledger.record_id(), .result = result, .pressure = level}
          .pack();
  draft.words[7] = flight::pack_duration(ns, thread.thread_id);
  const flight::LaneSection section{thread};
  flight::emit(section, EventKind::policy, draft);
}

}  // namespace headroom::guard
