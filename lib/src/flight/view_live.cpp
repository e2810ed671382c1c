// FlightView: what is live, what is happening, what failed first.
#include <array>
#include <cstring>

#include <headroom/flight_reader.hpp>

#include "base/utf8.hpp"
#include "flight/book_readers.hpp"
#include "flight/failure_key.hpp"
#include "flight/mapping.hpp"
#include "flight/raw_reads.hpp"

namespace headroom::flight {
namespace {

std::uint64_t load(Word const& word) noexcept { return StdAtomics::load_relaxed(word); }
std::uint64_t load_acquire(Word const& word) noexcept { return StdAtomics::load_acquire(word); }

std::string thread_name(MappedFlight const& mapped, std::uint32_t lane) {
  auto const name = read_thread_name(mapped, lane);
  return valid_utf8({name.data(), name.size()});
}

/// 1 + id in an owned lane; a shared one only says that it is busy.
std::uint64_t thread_of(std::uint32_t lane, std::uint64_t owner) noexcept {
  return lane < kOwnedLanes && owner != 0 ? owner - 1 : 0;
}

GuardSays judge_slot(std::uint64_t state) noexcept {
  if ((state & kSlotWriting) != 0) return GuardSays::writing;
  switch (slot_state(state)) {
    case SlotState::live:
    case SlotState::freeing:
    case SlotState::failed: return GuardSays::readable;
    case SlotState::free: break;
  }
  return GuardSays::unwanted;
}

void copy_slot(LiveSlot const& slot, std::uint64_t state, LiveAllocation& into) noexcept {
  // Each acquire: see read_guarded.
  into.state = slot_state(state);
  into.generation = slot_generation(state);
  into.address = load_acquire(slot.address);
  into.bytes = load_acquire(slot.bytes);
  auto const tag_ledger = load_acquire(slot.tag_ledger);
  into.tag = static_cast<std::uint32_t>(tag_ledger & 0xFFFFU);
  into.ledger = static_cast<std::uint32_t>((tag_ledger >> 16) & 0xFFFU);
  into.alignment = std::uint64_t{1} << ((tag_ledger >> 28) & 63U);
  auto const site_thread = load_acquire(slot.site_thread);
  into.site = static_cast<std::uint32_t>(site_thread >> 32);
  into.thread = static_cast<std::uint32_t>(site_thread);
  into.stream = load_acquire(slot.stream);
  into.ticks = load_acquire(slot.ticks);
  into.operation = load_acquire(slot.operation);
}

}  // namespace

std::optional<InFlightOperation> read_in_flight(MappedFlight const& mapped, std::uint32_t index) {
  auto const& lane = mapped.lanes()[index].header;
  std::uint64_t ticks = 0;
  std::uint64_t word = 0;
  auto const judge = [](std::uint64_t value) {
    auto const operation = value >> 60;
    auto const last = static_cast<std::uint64_t>(InFlight::dropping);
    return operation == 0 || operation > last ? GuardSays::unwanted : GuardSays::readable;
  };
  auto const copy = [&](std::uint64_t value) {
    word = value;
    ticks = load_acquire(lane.in_flight_ticks);
  };
  // Busy: operations follow each other faster than we look. The last one seen is as good as any.
  if (read_guarded<StdAtomics>(lane.in_flight, judge, copy) == GuardedRead::unwanted) return std::nullopt;
  InFlightOperation operation;
  operation.lane = index;
  operation.thread = thread_of(index, load_acquire(lane.owner));
  operation.operation = static_cast<InFlight>(word >> 60);
  operation.ledger = static_cast<std::uint32_t>((word >> 44) & 0xFFFU);
  operation.bytes = word & kBytesMask;
  operation.since_ticks = ticks;
  return operation;
}

GuardedRead read_slot(MappedFlight const& mapped, std::uint32_t index, LiveAllocation& allocation) noexcept {
  auto const& slot = mapped.live_slots()[index];
  allocation.slot = index;
  return read_guarded<StdAtomics>(slot.state, judge_slot, [&](std::uint64_t state) { copy_slot(slot, state, allocation); });
}

RawThreadName read_thread_name(MappedFlight const& mapped, std::uint32_t index) noexcept {
  auto const& lane = mapped.lanes()[index].header;
  std::array<std::uint64_t, 2> const words{load(lane.thread_name[0]), load(lane.thread_name[1])};
  RawThreadName name{};
  static_assert(sizeof words == sizeof name);
  std::memcpy(name.data(), words.data(), name.size());
  return name;
}

std::optional<LaneInfo> read_lane(MappedFlight const& mapped, std::uint32_t index) {
  auto const& lane = mapped.lanes()[index].header;
  auto const owner = load_acquire(lane.owner);
  LaneInfo info;
  info.lane = index;
  info.owned = index < kOwnedLanes && owner != 0;
  info.thread = thread_of(index, owner);
  info.main_head = load_acquire(lane.main.head);
  info.journal_head = load_acquire(lane.journal.head);
  if (owner == 0 && info.main_head == 0 && info.journal_head == 0) return std::nullopt;  // never used
  return info;
}

std::optional<FirstFailureInfo> read_first_failure(MappedFlight const& mapped, std::uint32_t index) noexcept {
  auto const& cell = mapped.first_failures()[index];
  // Acquire: pairs with the release store that says the figures are whole. They never change again, but for count and last.
  if (load_acquire(cell.ready) != 1) return std::nullopt;
  auto const key = load(cell.key);
  if (key == 0 || failure_kind(key) >= kErrorKindCount || failure_layer(key) >= kLayerCount) return std::nullopt;
  FirstFailureInfo failure;
  failure.kind = static_cast<ErrorKind>(failure_kind(key));
  failure.layer = static_cast<Layer>(failure_layer(key));
  failure.tag = failure_tag(key);
  failure.ledger = static_cast<std::uint32_t>(load(cell.ledger));
  failure.site = static_cast<std::uint32_t>(load(cell.site));
  failure.count = load(cell.count);
  failure.first_ticks = load(cell.first_ticks);
  failure.last_ticks = load(cell.last_ticks);
  failure.requested = load(cell.requested);
  failure.claimed = load(cell.claimed) & kBytesMask;
  failure.peak = load(cell.peak) & kBytesMask;
  failure.thread = load(cell.thread);
  auto const limit = load(cell.limit);
  if ((limit & kLimitNone) == 0) failure.limit = limit & kBytesMask;
  if (auto const device_free = load(cell.device_free); device_free != 0) failure.device_free = device_free - 1;
  return failure;
}

std::size_t FlightView::for_each_live(std::function<void(LiveAllocation const&)> const& visit) const {
  std::size_t skipped = 0;
  for (std::uint32_t i = 0; i < mapped_->live_slots().size(); ++i) {
    LiveAllocation allocation;
    auto const outcome = read_slot(*mapped_, i, allocation);
    if (outcome == GuardedRead::whole) visit(allocation);
    if (outcome == GuardedRead::busy) ++skipped;
  }
  return skipped;
}

std::vector<InFlightOperation> FlightView::in_flight() const {
  std::vector<InFlightOperation> operations;
  auto const used = mapped_->lanes_with_books();
  for (std::uint32_t i = 0; i < used; ++i) {
    auto operation = read_in_flight(*mapped_, i);
    if (!operation) continue;
    operation->thread_name = thread_name(*mapped_, i);
    operations.push_back(std::move(*operation));
  }
  return operations;
}

std::vector<LaneInfo> FlightView::lanes() const {
  std::vector<LaneInfo> found;
  for (std::uint32_t i = 0; i < mapped_->lanes().size(); ++i) {
    auto info = read_lane(*mapped_, i);
    if (!info) continue;
    info->thread_name = thread_name(*mapped_, i);
    found.push_back(std::move(*info));
  }
  return found;
}

std::vector<FirstFailureInfo> FlightView::first_failures() const {
  std::vector<FirstFailureInfo> failures;
  for (std::uint32_t i = 0; i < mapped_->first_failures().size(); ++i) {
    if (auto const failure = read_first_failure(*mapped_, i)) failures.push_back(*failure);
  }
  return failures;
}

}  // namespace headroom::flight
