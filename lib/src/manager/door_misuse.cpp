// What a raw door says to frees that make no sense: which kind of misuse it was, who did it, and who freed or owns the block.
//
// Nothing here is on the path of a program that frees rightly, so it may look at every block of the process to find an answer.
#include <bit>
#include <charconv>
#include <string>
#include <utility>

#include <headroom/flight_reader.hpp>

#include "base/clock.hpp"
#include "base/quoted.hpp"
#include "flight/live_table.hpp"
#include "flight/recorder.hpp"
#include "manager/core.hpp"
#include "manager/door_core.hpp"
#include "manager/misuse_reports.hpp"

namespace headroom::manager {
namespace {

std::string hexadecimal(void const* address) {
  std::array<char, 16> digits{};
  auto* const end = std::to_chars(digits.begin(), digits.end(), std::bit_cast<std::uint64_t>(address), 16).ptr;
  return "0x" + std::string(digits.begin(), end);
}

std::string whom(std::uint32_t thread, std::uint32_t site) {
  const std::string at = site_text(site);
  return "thread " + std::to_string(thread) + (at.empty() ? "" : " at " + at);
}

std::string bytes_text(std::uint64_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

std::string allocated_by(MapEntry const& block) { return "allocated by " + whom(block.thread, block.allocation.site); }

std::string freed_first(RecentFree const& free) {
  return bytes_text(free.bytes) + ", allocated by " + whom(free.allocated_by.thread, free.allocated_by.site) +
         ", freed first by " + whom(free.by.thread, free.by.site);
}

std::string inside_of(void const* address, MapEntry const& block) {
  const auto offset = std::bit_cast<std::uint64_t>(address) - std::bit_cast<std::uint64_t>(block.allocation.pointer);
  return hexadecimal(address) + " lies " + bytes_text(offset) + " into the block of " + bytes_text(block.allocation.bytes) +
         " at " + hexadecimal(block.allocation.pointer) + ", " + allocated_by(block);
}

// The manager of a live allocation that begins here and came through no door: a buffer's.
std::optional<std::string> owner_without_door(void const* pointer) {
  const std::uint32_t slots = flight::recorder.geometry[flight::Region::live_slots].count;
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    std::uint64_t word = 0;
    flight::LiveEntry entry;
    if (flight::slot_state(flight::slot_word(slot)) != flight::SlotState::live || !flight::read_slot(slot, word, entry)) continue;
    if (flight::slot_state(word) != flight::SlotState::live || entry.address != std::bit_cast<std::uint64_t>(pointer)) continue;
    if (const auto view = flight::FlightView::of_this_process()) {
      for (auto const& ledger : view->ledgers()) {
        if (ledger.cell == entry.ledger) return ledger.name;
      }
    }
    return std::string{};
  }
  return std::nullopt;
}

ErrorKind kind_of(PointerMap::Taken outcome) noexcept {
  switch (outcome) {
    case PointerMap::Taken::wrong_size: return ErrorKind::wrong_size;
    case PointerMap::Taken::stale: return ErrorKind::use_after_free;
    default: return ErrorKind::unknown_pointer;
  }
}

}  // namespace

DoorCore::Misuse DoorCore::examine(Wanted const& wanted, PointerMap::Taken outcome, MapEntry const& entry) {
  Misuse misuse{.kind = kind_of(outcome), .block = entry};
  const std::string at = hexadecimal(wanted.pointer);
  if (outcome == PointerMap::Taken::wrong_size) {
    misuse.sentence = "the block at " + at + " has " + bytes_text(entry.allocation.bytes) + ", not " +
                      std::to_string(wanted.bytes.value_or(0)) + "; " + allocated_by(entry);
  } else {
    misuse.sentence = "generation " + std::to_string(wanted.generation) + " of " + at + " is over: generation " +
                      std::to_string(entry.generation) + " lives there, " + bytes_text(entry.allocation.bytes) + " " +
                      allocated_by(entry);
  }
  return misuse;
}

// No block of this door begins here. What this door itself remembers comes first: an address that was freed here and lives elsewhere
// by now was freed here twice.
DoorCore::Misuse DoorCore::examine_absent(Wanted const& wanted) {
  const std::string at = hexadecimal(wanted.pointer);
  if (auto free = map_.find_recent(wanted.pointer, wanted.generation)) {
    return {.kind = ErrorKind::double_free, .sentence = at + " is no longer allocated: " + freed_first(*free), .first = free};
  }
  const auto doors = all();
  for (DoorCore* door : doors) {
    auto block = door == this ? std::nullopt : door->map_.find(wanted.pointer);
    if (!block) continue;
    std::string sentence = at + " belongs to another door, of manager " + in_quotes(door->manager_name()) + ": " +
                           bytes_text(block->allocation.bytes) + " " + allocated_by(*block) + "; free it there";
    return {.kind = ErrorKind::wrong_owner, .sentence = std::move(sentence), .block = block};
  }
  if (auto block = map_.find_around(wanted.pointer)) {
    return {.kind = ErrorKind::unknown_pointer,
            .sentence = inside_of(wanted.pointer, *block) + "; free its first byte",
            .block = block};
  }
  if (const auto owner = owner_without_door(wanted.pointer)) {
    return {.kind = ErrorKind::wrong_owner,
            .sentence = at + " belongs to a buffer of manager " + in_quotes(*owner) + ", which frees it itself"};
  }
  for (DoorCore* door : doors) {
    if (door == this) continue;
    if (auto free = door->map_.find_recent(wanted.pointer, 0)) {
      std::string sentence = at + " is no longer allocated: " + freed_first(*free) + ", through another door, of manager " +
                             in_quotes(door->manager_name());
      return {.kind = ErrorKind::double_free, .sentence = std::move(sentence), .first = free};
    }
    if (auto block = door->map_.find_around(wanted.pointer)) {
      return {.kind = ErrorKind::unknown_pointer,
              .sentence = inside_of(wanted.pointer, *block) + ", of another door, of manager " + in_quotes(door->manager_name()),
              .block = block};
    }
  }
  return {.kind = ErrorKind::unknown_pointer,
          .sentence = at + " is no live block of this door: it never was, or it was freed long ago"};
}

// Counted and booked whatever happens; words need memory, and without it the kind must do.
template <class Examine>
Error DoorCore::refuse_as(Wanted const& wanted, ErrorKind kind, Freeing const& by, Examine&& examine) noexcept {
  misuses_.fetch_add(1, std::memory_order_relaxed);
  Misuse misuse{.kind = kind};
  try {
    misuse = examine();
  } catch (...) {
    misuse.sentence.clear();
  }
  book(wanted, misuse, by);
  try {
    report(wanted, misuse, by);
  } catch (...) {
    misuse.sentence.clear();
  }
  return make_error(misuse.kind, Layer::manager, std::move(misuse.sentence));
}

Error DoorCore::refuse(Wanted const& wanted, PointerMap::Taken outcome, MapEntry const& entry, Freeing const& by) noexcept {
  return refuse_as(wanted, kind_of(outcome), by, [&] {
    return outcome == PointerMap::Taken::absent ? examine_absent(wanted) : examine(wanted, outcome, entry);
  });
}

Error DoorCore::refuse_settled(Wanted const& wanted, MapEntry const& entry, Freeing const& by) noexcept {
  return refuse_as(wanted, ErrorKind::double_free, by, [&] {
    return Misuse{.kind = ErrorKind::double_free,
                  .sentence = hexadecimal(wanted.pointer) +
                              " is no longer allocated: its free failed, and the manager has settled "
                              "that since, by a retry or a write-off; " +
                              allocated_by(entry),
                  .block = entry};
  });
}

// One event and one count in the ledger of this door's manager; its words and tables stay as they are.
void DoorCore::book(Wanted const& wanted, Misuse const& misuse, Freeing const& by) noexcept {
  flight::ThreadState& thread = flight::this_thread();
  ledger::Ledger& ledger = route_->ledger();
  // The tag of a block that is another ledger's has no place in this one: then it is the caller's.
  const bool ours = misuse.block && &misuse.block->allocation.route->ledger() == &ledger;
  const std::uint64_t now = ticks_now();
  const ledger::Booking booking{
      .bytes = wanted.bytes   ? *wanted.bytes
               : misuse.block ? misuse.block->allocation.bytes
                              : 0,
      .address = std::bit_cast<std::uint64_t>(wanted.pointer),
      .start_ticks = now,
      .end_ticks = now,
      .tag = ours ? flight::TagPlace{misuse.block->allocation.tag_entry, misuse.block->allocation.tag_cell}
                  : ledger.tag_place(thread.scoped_tag),
      .site = by.site,
      .slot = 0};  // none is touched; "no slot" would say that the live table was full
  const flight::LaneSection section{thread};
  ledger.book_misuse(section, booking, misuse.kind);
}

void DoorCore::report(Wanted const& wanted, Misuse const& misuse, Freeing const& by) {
  if (!count_misuse()) return;
  MisuseReport report{.kind = misuse.kind,
                      .pointer = wanted.pointer,
                      .bytes_given = wanted.bytes,
                      .manager = manager_->name(),
                      .thread = by.thread,
                      .site = site_text(by.site),
                      .sentence = misuse.sentence + "; asked for by " + whom(by.thread, by.site)};
  if (misuse.block) {
    report.bytes_recorded = misuse.block->allocation.bytes;
    report.allocation_thread = misuse.block->thread;
    report.allocation_site = site_text(misuse.block->allocation.site);
  } else if (misuse.first) {
    report.bytes_recorded = misuse.first->bytes;
    report.allocation_thread = misuse.first->allocated_by.thread;
    report.allocation_site = site_text(misuse.first->allocated_by.site);
    report.first_free_thread = misuse.first->by.thread;
    report.first_free_site = site_text(misuse.first->by.site);
  }
  keep_report(std::move(report));
}

// The resource's mistake, not the caller's: the allocation goes on, since only its owner can tell which of the two blocks is real.
void DoorCore::report_twice(MapEntry const& entry, MapEntry const& other) noexcept {
  twice_.fetch_add(1, std::memory_order_relaxed);
  if (!count_misuse()) return;
  try {
    keep_report({.kind = ErrorKind::driver,
                 .pointer = entry.allocation.pointer,
                 .bytes_given = entry.allocation.bytes,
                 .bytes_recorded = other.allocation.bytes,
                 .manager = manager_->name(),
                 .thread = entry.thread,
                 .site = site_text(entry.allocation.site),
                 .allocation_thread = other.thread,
                 .allocation_site = site_text(other.allocation.site),
                 .sentence = "the resource handed out " + hexadecimal(entry.allocation.pointer) + " for " +
                             bytes_text(entry.allocation.bytes) + " while a block of " + bytes_text(other.allocation.bytes) +
                             " lives there, " + allocated_by(other) + "; both stay in the books"});
  } catch (...) {
    return;  // counted all the same
  }
}

}  // namespace headroom::manager
