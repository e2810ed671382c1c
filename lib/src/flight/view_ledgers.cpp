// FlightView: the ledgers, whole.
#include <algorithm>
#include <bitset>
#include <numeric>
#include <utility>

#include <headroom/flight_reader.hpp>

#include "base/checked.hpp"
#include "base/pci_address.hpp"
#include "base/test_point.hpp"
#include "flight/book_readers.hpp"
#include "flight/book_sums.hpp"
#include "flight/mapping.hpp"
#include "flight/raw_reads.hpp"

namespace headroom::flight {
namespace {

/// Relaxed: figures that stand for themselves.
std::uint64_t load(Word const& word) noexcept { return StdAtomics::load_relaxed(word); }

/// Stored as value + 1, 0 = unknown.
std::optional<std::uint64_t> optional_figure(Word const& word) noexcept {
  auto const stored = load(word);
  return stored == 0 ? std::nullopt : std::optional{stored - 1};
}

/// Directory ids are 32 bits; a word above that names nothing.
std::uint32_t id_in(Word const& word) noexcept {
  auto const id = load(word);
  return id <= 0xFFFF'FFFFU ? static_cast<std::uint32_t>(id) : 0U;
}

std::vector<TagName> all_tags(FlightView const& view, MappedFlight const& mapped) {
  std::vector<TagName> tags;
  // Acquire: entries below it were begun before; each has a guard of its own.
  auto const used = std::min<std::uint64_t>(StdAtomics::load_acquire(mapped.header().directory_used), mapped.directory().size());
  // As many as all ledgers together can have; what a broken file has beyond that belongs to none.
  constexpr std::size_t kMost = std::size_t{kLedgerCount} * kTagCells;
  for (std::uint32_t id = 1; id < used && tags.size() < kMost; ++id) {
    auto name = view.name(id);
    if (!name || name->kind != EntryKind::tag || name->number >= kTagCells) continue;
    tags.push_back(
        {id, static_cast<std::uint32_t>(name->number), name->parent, name->state == EntryState::open, std::move(name->label)});
  }
  return tags;
}

/// Open tags always; closed ones only while their ledger is closed too: the id of a reopened ledger is the parent of old tags as
/// well. One for each tag cell at most, whatever a broken file says.
std::vector<TagName const*> tags_of(std::vector<TagName> const& tags, LedgerSnapshot const& ledger) {
  std::vector<TagName const*> found;
  if (ledger.directory_id == 0) return found;
  std::bitset<kTagCells> taken;
  for (const bool open : {true, false}) {
    if (!open && ledger.state != LedgerState::closed) break;
    for (auto const& tag : tags) {
      if (tag.ledger_id != ledger.directory_id || tag.open != open || taken[tag.cell]) continue;
      taken.set(tag.cell);
      found.push_back(&tag);
    }
  }
  std::ranges::sort(found, {}, &TagName::id);
  return found;
}

void take_tallies(LedgerTallies const& tallies, LedgerSnapshot& ledger) {
  for (std::size_t kind = 0; kind < kErrorKindCount; ++kind) {
    for (std::size_t layer = 0; layer < kLayerCount; ++layer) ledger.refusals[kind][layer] = load(tallies.refusals[kind][layer]);
    ledger.free_failures[kind] = load(tallies.free_failures[kind]);
  }
  for (std::size_t from = 0; from < 5; ++from) {
    for (std::size_t to = 0; to < 5; ++to) ledger.transitions[from][to] = load(tallies.transitions[from][to]);
  }
  ledger.observed = load(tallies.observed);
  ledger.write_offs = load(tallies.write_offs);
  for (std::size_t policy = 0; policy < kOomPolicyCount; ++policy) {
    ledger.guard.policy_runs[policy] = load(tallies.policy_runs[policy]);
    ledger.guard.recoveries[policy] = load(tallies.recoveries[policy]);
  }
  ledger.guard.gave_up = load(tallies.gave_up);
  ledger.guard.hook_runs = load(tallies.hook_runs);
  ledger.guard.hook_freed_bytes = load(tallies.hook_freed_bytes);
  ledger.guard.policy_waits = load(tallies.policy_waits);
  ledger.guard.policy_wait_ns = load(tallies.policy_wait_ns);
  ledger.guard.checkpoints = load(tallies.checkpoints);
  ledger.retries = load(tallies.retries);
}

void take_figures(LedgerCell const& cell, LedgerSnapshot& ledger) {
  auto const limit = StdAtomics::load_acquire(cell.limit);
  if ((limit & kLimitNone) == 0) ledger.limit = limit & kBytesMask;
  ledger.enforcing = !ledger.limit || (limit & kLimitEnforcing) != 0;
  ledger.unspent = load(cell.unspent);
  ledger.unspent_reservations = load(cell.unspent_reservations);
  ledger.live_untracked = load(cell.live_untracked);
  ledger.live_untracked_bytes = load(cell.live_untracked_bytes);
  ledger.failed_frees = load(cell.failed_frees);
  ledger.failed_free_bytes = load(cell.failed_free_bytes);
  ledger.sentinel_bytes = load(cell.sentinel_bytes);
  ledger.waiters = load(cell.waiters);
  ledger.device_total = optional_figure(cell.device_total);
  ledger.device_free = optional_figure(cell.device_free);
  ledger.device_outside = optional_figure(cell.device_outside);
  ledger.is_device_account = load(cell.kind) == 1;
  auto const parent = load(cell.parent_cell);
  if (parent != 0 && parent <= kLedgerCount) ledger.parent_cell = static_cast<std::uint32_t>(parent - 1);
  auto const pressure = load(cell.pressure);
  ledger.pressure = static_cast<PressureLevel>(std::min<std::uint64_t>(pressure & 0xFFU, 4));
  ledger.pressure_sequence = pressure >> 8;
}

void take_names(FlightView const& view, LedgerCell const& cell, LedgerSnapshot& ledger) {
  ledger.name = view.label(ledger.directory_id);
  auto const device = view.name(id_in(cell.device_id));
  if (!device || device->kind != EntryKind::device) return;
  // A device's label is its name and, after a tab, its UUID.
  auto const tab = device->label.find('\t');
  ledger.device_name = device->label.substr(0, tab);
  if (tab != std::string::npos) ledger.device_uuid = device->label.substr(tab + 1);
  if (DevicePayload::knows_pci(device->payload)) {
    ledger.device_pci_address = to_string(PciAddress::from_code(DevicePayload::pci(device->payload)));
  }
  if (device->number <= 0x7FFF'FFFFU) ledger.device_ordinal = static_cast<std::int64_t>(device->number);
}

struct Sources {
  FlightView const& view;
  MappedFlight const& mapped;
  std::vector<TagName> const& tags;
  std::vector<InFlightOperation> const& operations;
};

std::optional<LedgerSnapshot> read_ledger(Sources const& from, std::uint32_t index) {
  auto const cells = from.mapped.ledgers();
  auto const& cell = cells[index];
  LedgerSnapshot ledger;
  if (!read_books(from.mapped, index, ledger)) return std::nullopt;
  take_names(from.view, cell, ledger);
  ledger.in_flight_bytes = in_flight_bytes(from.operations, cells, index);
  ledger.tags = sum_tags(from.mapped, tags_of(from.tags, ledger), cell.peak);
  read_words(from.mapped, index, ledger);
  return ledger;
}

/// Reading a ledger while its cell is handed to a new owner would mix the two.
constexpr int kGenerationTries = 4;

}  // namespace

bool read_books(MappedFlight const& mapped, std::uint32_t index, LedgerSnapshot& ledger) {
  auto const& cell = mapped.ledgers()[index];
  ledger.cell = index;
  // Acquire: pairs with the release store of the state, so that the cell is that ledger's.
  auto const state = StdAtomics::load_acquire(cell.state);
  if (state != static_cast<std::uint64_t>(LedgerState::open) && state != static_cast<std::uint64_t>(LedgerState::closed))
    return false;
  ledger.state = static_cast<LedgerState>(state);
  ledger.generation = load(cell.generation);
  ledger.created_ticks = load(cell.created_ticks);
  ledger.directory_id = id_in(cell.directory_id);
  ledger.is_namesake = load(cell.is_namesake) != 0;
  ledger.counters = sum_counters(mapped, index);
  test_point(TestPoint::read_before_earlier);
  ledger.earlier = earlier_sums(mapped, index);
  ledger.live_allocations = checked_sub(ledger.counters.allocations, ledger.counters.frees).value_or(0);
  take_tallies(mapped.tallies()[index], ledger);
  take_figures(cell, ledger);
  return true;
}

bool is_same_ledger(LedgerCell const& cell, LedgerSnapshot const& ledger) noexcept {
  if (StdAtomics::load_acquire(cell.state) != static_cast<std::uint64_t>(ledger.state)) return false;
  return load(cell.generation) == ledger.generation;
}

void read_words(MappedFlight const& mapped, std::uint32_t index, LedgerSnapshot& ledger) noexcept {
  auto const& cell = mapped.ledgers()[index];
  auto const bytes = read_ledger_bytes<StdAtomics>(cell.claim, cell.alloc, cell.peak);
  ledger.claimed = bytes.claimed;
  ledger.allocated = bytes.allocated;
  ledger.peak = bytes.peak;
  ledger.operation_number = bytes.operation_number;
  // A returned block leaves the pending word before it leaves `allocated`: what is above it is an older or a broken figure.
  if (ledger.is_device_account) ledger.pending_free_bytes = std::min(load(cell.pending_free_bytes), ledger.allocated);
}

std::uint64_t in_flight_bytes(std::span<InFlightOperation const> operations, Table<LedgerCell> const& cells,
                              std::uint32_t cell) noexcept {
  // An operation of a manager may count in the device account above it as well: that one sums those of its children too.
  auto const counts_here = [&](std::uint32_t other) {
    auto const* const found = cells.find(other);
    return other == cell || (found != nullptr && load(found->parent_cell) == std::uint64_t{cell} + 1);
  };
  std::uint64_t bytes = 0;
  for (auto const& operation : operations) {
    if (counts_here(operation.ledger)) bytes += operation.bytes;
  }
  for (std::uint32_t other = 0; other < cells.size(); ++other) {
    if (counts_here(other)) bytes += load(cells[other].in_flight_shared);
  }
  return bytes;
}

std::vector<LedgerSnapshot> FlightView::ledgers() const {
  auto ledgers = all_ledgers();
  std::erase_if(ledgers, [](auto const& ledger) { return ledger.state == LedgerState::closed && ledger.claimed == 0; });
  return ledgers;
}

std::vector<LedgerSnapshot> FlightView::all_ledgers() const {
  auto const tags = all_tags(*this, *mapped_);
  auto const operations = in_flight();
  auto const cells = mapped_->ledgers();
  std::vector<LedgerSnapshot> ledgers;
  for (std::uint32_t index = 0; index < cells.size(); ++index) {
    for (int i = 0; i < kGenerationTries; ++i) {
      auto ledger = read_ledger({*this, *mapped_, tags, operations}, index);
      if (ledger && !is_same_ledger(cells[index], *ledger)) continue;
      if (ledger) ledgers.push_back(std::move(*ledger));
      break;
    }
  }
  return ledgers;
}

LedgerSnapshot FlightView::earlier_tallies() const {
  LedgerTallies sums{};
  auto* const words = reinterpret_cast<Word*>(&sums);
  // Acquire: pairs with the release of whoever adds, so that a ledger that is read later no longer has it.
  for (std::size_t i = 0; i < kTallyWords; ++i) {
    words[i].store(StdAtomics::load_acquire(header().earlier_tallies[i]), std::memory_order_relaxed);
  }
  LedgerSnapshot ledger;
  take_tallies(sums, ledger);
  return ledger;
}

FlightView::Words FlightView::words(std::uint32_t cell) const noexcept {
  auto const* const found = mapped_->ledgers().find(cell);
  if (found == nullptr) return {0, 0, 0};
  auto const bytes = read_ledger_bytes<StdAtomics>(found->claim, found->alloc, found->peak);
  return {bytes.claimed, bytes.allocated, bytes.peak};
}

std::uint64_t LedgerSnapshot::failures() const noexcept {
  std::uint64_t sum = 0;
  for (auto const& layers : refusals) sum = std::accumulate(layers.begin(), layers.end(), sum);
  return sum;
}

std::optional<std::uint64_t> LedgerSnapshot::remaining() const noexcept {
  if (!limit) return std::nullopt;
  return *limit > claimed ? *limit - claimed : 0;
}

std::uint64_t LedgerSnapshot::over_budget() const noexcept { return limit && claimed > *limit ? claimed - *limit : 0; }

}  // namespace headroom::flight
