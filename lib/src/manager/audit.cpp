// The books recomputed from the live table. Exact when idle.
#include <headroom/byte_size.hpp>
#include <headroom/manager.hpp>

#include "flight/live_table.hpp"
#include "flight/recorder.hpp"
#include "flight/tag_names.hpp"
#include "manager/core.hpp"

namespace headroom {
namespace {

using flight::SlotState;

void add_live_slots(AuditReport& report, ledger::Ledger const& ledger) {
  const std::uint32_t slots = flight::recorder.geometry[flight::Region::live_slots].count;
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    std::uint64_t word = 0;
    flight::LiveEntry entry;
    if (flight::slot_state(flight::slot_word(slot)) == SlotState::free || !flight::read_slot(slot, word, entry)) continue;
    if (flight::slot_state(word) == SlotState::free || entry.ledger != ledger.record_id()) continue;
    report.live_bytes += entry.bytes;
    ++report.live_allocations;
    if (flight::slot_state(word) == SlotState::failed) report.failed_free_bytes += entry.bytes;
  }
}

void compare(AuditReport& report, const char* left, std::uint64_t a, const char* right, std::uint64_t b) {
  if (a == b) return;
  report.problems.push_back(std::string{left} + " is " + std::to_string(a) + ", " + right + " " + std::to_string(b));
}

}  // namespace

AuditReport GpuMemoryManager::audit() const {
  auto& ledger = route_->ledger();
  AuditReport report;
  const auto words = ledger.words();
  // The word itself: readers are shown at least what is allocated, which would hide a claim that was given back twice.
  report.claimed = ledger.cell().claim.load(std::memory_order_seq_cst) & flight::kBytesMask;
  report.allocated = words.allocated;
  report.peak = words.peak;
  auto const& cell = ledger.cell();
  report.unspent = cell.unspent.load(std::memory_order_acquire);
  report.live_bytes = cell.live_untracked_bytes.load(std::memory_order_acquire);
  report.live_allocations = cell.live_untracked.load(std::memory_order_acquire);
  // Ledgers without a cell share one id in the table: what lies in it is not theirs alone.
  const bool own_slots = ledger.index() != flight::kNoCell;
  if (own_slots) add_live_slots(report, ledger);
  report.tag_bytes = ledger.all_tag_bytes();

  compare(report, "allocated", report.allocated, "claimed less unspent", report.claimed - report.unspent);
  if (own_slots) {
    compare(report, "allocated", report.allocated, "live blocks add up to", report.live_bytes);
    compare(report, "live allocations by the counters", live_allocations(), "in the table", report.live_allocations);
  }
  if (ledger.counts_all_tags()) compare(report, "allocated", report.allocated, "all tags together hold", report.tag_bytes);
  if (report.peak < report.allocated) {
    report.problems.push_back("peak " + std::to_string(report.peak) + " is below allocated " + std::to_string(report.allocated));
  }
  return report;
}

std::string AuditReport::to_string() const {
  std::string text = format_bytes(allocated) + " allocated in " + std::to_string(live_allocations) + ", " +
                     format_bytes(claimed) + " claimed, peak " + format_bytes(peak) + ", " + format_bytes(unspent) +
                     " unspent, " + format_bytes(failed_free_bytes) + " in failed frees: ";
  if (clean()) return text + "the books balance";
  for (std::size_t i = 0; i < problems.size(); ++i) text += (i == 0 ? "" : "; ") + problems[i];
  return text;
}

}  // namespace headroom
