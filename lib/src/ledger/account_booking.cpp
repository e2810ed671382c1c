// What a device account writes down. Its managers have records, slots and durations of the same memory; the account adds what only it
// can tell: how full the device's budget was, who holds it across all managers, and its own high-water mark.
#include "base/clock.hpp"
#include "flight/counters.hpp"
#include "ledger/ledger.hpp"

namespace headroom::ledger {

using namespace flight;  // NOLINT(google-build-using-namespace): the ledger is written in the flight file's terms

void Ledger::book_account_allocation(LaneSection const& section, Booking const& booking) noexcept {
  const auto count = counters(section);
  count.add(count->allocations, 1);
  count.add(count->allocation_bytes, booking.bytes);
  count.add(count->raw_requests, 1);
  count.add(count->size_histogram[log2_bucket<kSizeBuckets>(booking.bytes)], 1);
  if (const double scale = use_scale_.load(std::memory_order_relaxed); scale != 0.0) {
    const auto bucket = static_cast<std::uint64_t>(static_cast<double>(booking.claimed_before + booking.bytes) * scale);
    count.add(count->use_histogram[bucket < kUseBuckets ? bucket : kUseBuckets - 1], 1);
  }
  change_tag(section, booking.tag, booking.bytes, 1);
  if (!Steps::raise_peak(cell_->peak, booking.alloc_word)) return;
  // Without a slot of its own the record would say "untracked".
  Booking peak = booking;
  peak.slot = 0;
  peak.end_ticks = ticks_now();
  note_peak(section, peak);
}

void Ledger::book_account_free(LaneSection const& section, TagPlace tag, std::uint64_t bytes) noexcept {
  const auto count = counters(section);
  count.add(count->frees, 1);
  count.add(count->deallocation_bytes, bytes);
  change_tag(section, tag, std::uint64_t{0} - bytes, 0);
}

}  // namespace headroom::ledger
