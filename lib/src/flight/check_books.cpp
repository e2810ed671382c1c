// check_flight(): ledgers, live allocations, and the balance between them.
#include <vector>

#include <headroom/byte_size.hpp>
#include <headroom/pressure.hpp>

#include "base/checked.hpp"
#include "flight/book_readers.hpp"
#include "flight/check_findings.hpp"

namespace headroom::flight {
namespace {

std::uint64_t load(Word const& word) noexcept { return StdAtomics::load_acquire(word); }
std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) noexcept { return checked_add(a, b).value_or(kMaxUint64); }

/// Of one ledger, from the live table and the lanes. Hostile numbers do not wrap.
struct Sums {
  std::uint64_t live = 0;
  std::uint64_t in_flight = 0;
};

class Books {
public:
  Books(MappedFlight const& mapped, CheckFindings& findings)
      : mapped_{mapped}, findings_{findings}, cells_{mapped.ledgers()}, sums_(cells_.size()), names_{names_in_use(mapped)} {}

  void run() {
    sum_in_flight();
    for (std::uint32_t i = 0; i < mapped_.live_slots().size(); ++i) slot(i);
    for (std::uint32_t i = 0; i < cells_.size(); ++i) ledger(i);
  }

private:
  void sum_in_flight() {
    for (std::uint32_t i = 0; i < mapped_.lanes_with_books(); ++i) {
      auto const word = load(mapped_.lanes()[i].header.in_flight);
      auto const cell = (word >> 44) & 0xFFFU;
      if (word != 0 && cell < sums_.size()) sums_[cell].in_flight = saturating_add(sums_[cell].in_flight, word & kBytesMask);
    }
    for (std::uint32_t i = 0; i < cells_.size(); ++i) {
      sums_[i].in_flight = saturating_add(sums_[i].in_flight, load(cells_[i].in_flight_shared));
    }
  }

  void slot(std::uint32_t index) {
    auto const& slot = mapped_.live_slots()[index];
    std::uint64_t state = 0;
    std::uint64_t bytes = 0;
    std::uint64_t tag_ledger = 0;
    std::uint64_t site = 0;
    auto const judge = [](std::uint64_t word) {
      if ((word & kSlotWriting) != 0) return GuardSays::writing;
      return slot_state(word) == SlotState::free ? GuardSays::unwanted : GuardSays::readable;
    };
    auto const copy = [&](std::uint64_t word) {
      state = word;
      bytes = load(slot.bytes);
      tag_ledger = load(slot.tag_ledger);
      site = load(slot.site_thread) >> 32;
    };
    if (read_guarded<StdAtomics>(slot.state, judge, copy) != GuardedRead::whole) return;
    ++findings_.result().live_allocations;

    auto const what = [index](std::string_view part) { return "live slot " + std::to_string(index) + ": " + std::string{part}; };
    findings_.expect_at_most(static_cast<std::uint64_t>(slot_state(state)), static_cast<std::uint64_t>(SlotState::failed),
                             &slot.state, what("the state"));
    findings_.expect(bytes != 0 && bytes <= kBytesMask, &slot.bytes, [&] {
      return what("the size") + " is " + std::to_string(bytes) + "; expected 1 to " + std::to_string(kBytesMask);
    });
    expect_name(tag_ledger & 0xFFFFU, &slot.tag_ledger, what("the tag"));
    expect_name(site, &slot.site_thread, what("the site"));
    auto const cell = (tag_ledger >> 16) & 0xFFFU;
    // Of the living, the block may have been freed meanwhile, and its manager have gone: the slot, cleared before, then says so.
    auto const is_known =
        cell >= cells_.size() || load(cells_[static_cast<std::uint32_t>(cell)].state) != 0 || load(slot.state) != state;
    findings_.expect(is_known, &slot.tag_ledger, [&] {
      return what("the ledger") + " is " + std::to_string(cell) + ", which is free; expected one that is open or closed";
    });
    // A ledger without a cell has a number beyond the table.
    if (cell < sums_.size()) sums_[cell].live = saturating_add(sums_[cell].live, bytes);
  }

  void expect_name(std::uint64_t id, Word const* at, std::string const& what) {
    if (id >= names_) names_ = names_in_use(mapped_);  // of the living, more may have been made since
    findings_.expect(id < names_, at, [&] {
      return what + " is name " + std::to_string(id) + "; expected one below " + std::to_string(names_) + ", or 0";
    });
  }

  void ledger(std::uint32_t index) {
    auto const& cell = cells_[index];
    auto const state = load(cell.state);
    auto const what = [index](std::string_view part) { return "ledger " + std::to_string(index) + ": " + std::string{part}; };
    findings_.expect_at_most(state, static_cast<std::uint64_t>(LedgerState::closed), &cell.state, what("the state"));
    if (state == static_cast<std::uint64_t>(LedgerState::free)) return;
    ++findings_.result().ledgers;
    expect_name(load(cell.directory_id), &cell.directory_id, what("its own name"));
    expect_name(load(cell.device_id), &cell.device_id, what("the device"));
    findings_.expect_at_most(load(cell.kind), 1, &cell.kind, what("the kind"));
    findings_.expect_at_most(load(cell.parent_cell), cells_.size(), &cell.parent_cell, what("the account above it"));
    findings_.expect_at_most(load(cell.pressure) & 0xFFU, static_cast<std::uint64_t>(PressureLevel::critical), &cell.pressure,
                             what("the pressure level"));
    findings_.expect_at_most(load(cell.limit) >> 46, 0, &cell.limit, what("bits 46 to 63 of the limit"));
    if (findings_.result().quiet) balance(index);
  }

  /// Of a dead process: the words as they lie there, not as a view mends them.
  void balance(std::uint32_t index) {
    auto const& cell = cells_[index];
    auto const claimed = load(cell.claim) & kBytesMask;
    auto const allocated = load(cell.alloc) & kBytesMask;
    auto const peak = load(cell.peak) & kBytesMask;
    auto const unspent = load(cell.unspent);
    auto const in_flight = sums_[index].in_flight;
    auto const live = saturating_add(sums_[index].live, load(cell.live_untracked_bytes));
    auto const of = "ledger " + std::to_string(index) + ": ";
    findings_.expect(allocated <= claimed, &cell.claim, [&] {
      return of + "claimed " + format_count(claimed) + " bytes; expected at least the " + format_count(allocated) + " allocated";
    });
    // Killed between an allocation and the peak that it makes: its bytes are in flight.
    findings_.expect(allocated <= saturating_add(peak, in_flight), &cell.peak, [&] {
      return of + "a peak of " + format_count(peak) + " bytes; expected at least the " + format_count(allocated) + " allocated";
    });
    if (load(cell.kind) != 0) return;  // an account's bytes are in its managers' slots, and pending
    findings_.expect(live <= allocated, &cell.alloc, [&] {
      return of + "allocated " + format_count(allocated) + " bytes; expected at least the " + format_count(live) +
             " of its live allocations";
    });
    auto const owed = saturating_add(live, unspent);
    auto const good = owed <= claimed && claimed - owed <= in_flight;
    findings_.expect(good, &cell.claim, [&] {
      return of + "claimed " + format_count(claimed) + " bytes; expected " + format_count(owed) + " (" + format_count(live) +
             " live, " + format_count(unspent) + " reserved) and at most " + format_count(in_flight) + " in flight beside";
    });
  }

  MappedFlight const& mapped_;
  CheckFindings& findings_;
  Table<LedgerCell> cells_;
  std::vector<Sums> sums_;
  std::uint64_t names_;
};

}  // namespace

void check_books(MappedFlight const& mapped, CheckFindings& findings) { Books{mapped, findings}.run(); }

}  // namespace headroom::flight
