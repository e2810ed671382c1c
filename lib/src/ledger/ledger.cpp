#include "ledger/ledger.hpp"

#include <algorithm>
#include <bitset>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "base/test_point.hpp"
#include "flight/book_readers.hpp"
#include "flight/recorder.hpp"
#include "flight/tag_names.hpp"
#include "ledger/cells.hpp"

namespace headroom::ledger {

using namespace flight;  // NOLINT(google-build-using-namespace): the ledger is written in the flight file's terms

struct Ledger::PrivateBooks {
  LedgerCell cell{};
  LedgerTallies tallies{};
  LedgerCounters counters{};
  LedgerCounters base{};
};

namespace {

constexpr int kClaimTriesBesideClaimsInFlight = 3;
constexpr std::uint64_t kPeakStepWithoutBudget = std::uint64_t{1} << 20;
constexpr std::uint64_t kPeakStepsOfBudget = 256;

std::uint64_t limit_word_of(MemoryBudget budget) noexcept {
  const std::uint64_t bytes = std::min(budget.limit_bytes().value_or(0), kBytesMask);
  return pack_limit(bytes, budget.enforces(), budget.is_unlimited());
}

std::mutex naming_mutex;  // whether ledgers have a namesake, from the look at the others until one is open

// A word of LedgerCounters by position: bases are taken and subtracted word by word.
constexpr std::size_t kCounterWords = sizeof(LedgerCounters) / sizeof(Word);
Word& word_at(LedgerCounters& counters, std::size_t index) noexcept { return reinterpret_cast<Word*>(&counters)[index]; }

}  // namespace

void Ledger::settle_in(std::uint32_t cell) {
  if (cell == kNoCell) {
    auto owned = std::make_unique<PrivateBooks>();
    add_private_cell(owned->cell);
    auto* books = owned.release();  // lives as long as the ledger: as long as the process
    cell_ = &books->cell;
    tallies_ = &books->tallies;
    shared_counters_ = &books->counters;
    base_ = &books->base;
  } else {
    cell_ = &recorder.ledgers[cell];
    tallies_ = &recorder.tallies[cell];
    shared_counters_ = &recorder.overflow->counters[cell];
    base_ = &recorder.ledger_bases[cell];
  }
  index_ = cell;
}

// The tallies begin at 0; what a manager before had counted in them stays in the file, as a sum over all cells. An account's does not:
// what its managers were refused is in theirs.
void Ledger::put_tallies_aside() noexcept {
  const bool is_kept = index_ != kNoCell && cell_->kind.load(std::memory_order_relaxed) != 1;
  // Nobody else writes the tallies of a ledger that is not open.
  auto* tally_words = reinterpret_cast<Word*>(tallies_);
  for (std::size_t i = 0; i < kTallyWords; ++i) {
    const std::uint64_t counted = tally_words[i].load(std::memory_order_relaxed);
    if (counted == 0) continue;
    tally_words[i].store(0, std::memory_order_relaxed);
    // Release: whoever reads the sum with acquire finds the word above at 0.
    if (is_kept) recorder.header->earlier_tallies[i].fetch_add(counted, std::memory_order_release);
  }
}

void Ledger::open(std::uint32_t cell, std::string_view name, std::uint32_t device_entry, MemoryBudget budget) {
  // Once only: whoever closed the manager before this one, or freed its last block, may be looking at its cell still.
  if (cell_ == nullptr) settle_in(cell);
  if (cell == kNoCell) recorder.header->ledgers_without_cell.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < kCounterWords; ++i) {
    std::uint64_t present = word_at(*shared_counters_, i).load(std::memory_order_acquire);
    for (std::uint32_t lane = 0; cell < kLaneLedgers && lane < kOwnedLanes; ++lane) {
      present += word_at(recorder.lane(lane).counters[cell], i).load(std::memory_order_acquire);
    }
    word_at(*base_, i).store(present, std::memory_order_release);
  }
  test_point(TestPoint::open_before_generation);
  put_tallies_aside();
  misuses_.store(0, std::memory_order_relaxed);

  directory_id_ = add_entry(EntryKind::ledger, device_entry, cell, device_entry, name);
  for (auto& place : tag_places_) place.store(0, std::memory_order_relaxed);
  other_ = cell == kNoCell ? TagPlace{} : add_tag(directory_id_, kOtherTag);

  LedgerCell& words = *cell_;
  // Until this one is open and seen by whoever opens another: of two at a time, one has the bare name.
  const std::scoped_lock naming{naming_mutex};
  words.is_namesake.store(has_namesake(device_entry) ? 1 : 0, std::memory_order_relaxed);
  // alloc's operation number goes on, so that a tag cell's old peak_seen never equals a new peak.
  words.peak.store(words.alloc.load(std::memory_order_relaxed), std::memory_order_relaxed);
  words.limit.store(limit_word_of(budget), std::memory_order_seq_cst);
  notice_base_.store(notice_number(), std::memory_order_relaxed);
  words.pressure.store(0, std::memory_order_relaxed);
  words.pressure_margin.store(0, std::memory_order_relaxed);
  words.journal_peak.store(0, std::memory_order_relaxed);
  words.typed_requests_base.store(0, std::memory_order_relaxed);
  words.failed_free_bytes.store(0, std::memory_order_relaxed);
  words.failed_frees.store(0, std::memory_order_relaxed);
  words.sentinel_bytes.store(0, std::memory_order_relaxed);
  words.generation.fetch_add(1, std::memory_order_relaxed);
  words.device_id.store(device_entry, std::memory_order_relaxed);
  for (Word* figure : {&words.device_total, &words.device_free, &words.device_outside, &words.physical_device})
    figure->store(0, std::memory_order_relaxed);
  words.created_ticks.store(ticks_now(), std::memory_order_relaxed);
  words.directory_id.store(directory_id_, std::memory_order_relaxed);
  set_scales(budget);
  words.state.store(static_cast<std::uint64_t>(LedgerState::open), std::memory_order_release);
}

// Another ledger that is not over has the bare name on this device. A word of its own in the cell, since who is asked later cannot know:
// the other may be gone by then.
bool Ledger::has_namesake(std::uint32_t device_entry) const noexcept {
  if (directory_id_ == 0) return false;
  DirectoryEntry const& own = recorder.directory[directory_id_];
  const auto is_alike = [&](DirectoryEntry const& other) {
    for (std::size_t i = 0; i < kLabelBytes / sizeof(Word); ++i) {
      if (own.label[i].load(std::memory_order_relaxed) != other.label[i].load(std::memory_order_relaxed)) return false;
    }
    return true;
  };
  for (std::uint32_t index = 0; index < kLedgerCount; ++index) {
    LedgerCell const& cell = recorder.ledgers[index];
    if (&cell == cell_) continue;
    // Acquire: pairs with the release of the state as it opened, before which the words below were stored.
    const auto state = cell.state.load(std::memory_order_acquire);
    const bool is_over = state == static_cast<std::uint64_t>(LedgerState::closed) &&
                         (cell.claim.load(std::memory_order_seq_cst) & kBytesMask) == 0;
    if (state == static_cast<std::uint64_t>(LedgerState::free) || is_over) continue;
    if (cell.is_namesake.load(std::memory_order_relaxed) != 0 || cell.device_id.load(std::memory_order_relaxed) != device_entry)
      continue;
    const auto id = static_cast<std::uint32_t>(cell.directory_id.load(std::memory_order_relaxed));
    if (id != 0 && is_alike(recorder.directory[id])) return true;
  }
  return false;
}

void Ledger::close() noexcept {
  device_terms_.forget();
  cell_->state.store(static_cast<std::uint64_t>(LedgerState::closed), std::memory_order_seq_cst);  // see is_closed
}

bool Ledger::holds_nothing() const noexcept {
  return (cell_->claim.load(std::memory_order_seq_cst) & kBytesMask) == 0 &&
         cell_->unspent.load(std::memory_order_acquire) == 0 && (cell_->alloc.load(std::memory_order_seq_cst) & kBytesMask) == 0;
}

// A thread that has given its claim back may still be writing its record.
bool Ledger::is_quiet() const noexcept { return holds_nothing() && !is_in_flight(); }

bool Ledger::is_in_flight() const noexcept {
  if (cell_->in_flight_shared_count.load(std::memory_order_acquire) != 0) return true;
  for (std::uint32_t lane = 0; lane < kOwnedLanes; ++lane) {
    const std::uint64_t word = recorder.lane(lane).header.in_flight.load(std::memory_order_acquire);
    if (word != 0 && ((word >> 44) & 0xFFFU) == record_id()) return true;
  }
  return false;
}

void Ledger::abandon() noexcept {
  cell_->unspent.store(0, std::memory_order_release);
  cell_->unspent_reservations.store(0, std::memory_order_relaxed);
  static_cast<void>(Steps::retire(cell_->alloc, cell_->alloc.load(std::memory_order_seq_cst) & kBytesMask));
  Steps::give_back(cell_->claim, cell_->claim.load(std::memory_order_seq_cst) & kBytesMask);
}

void Ledger::retire_names() noexcept {
  close_tags_of(directory_id_);
  close_entry(directory_id_);
  cell_->state.store(static_cast<std::uint64_t>(LedgerState::free), std::memory_order_release);
}

// A claim in flight elsewhere may still come back: what it makes an attempt refuse is tried again.
template <class Attempt>
ClaimResult Ledger::beside_claims_in_flight(Attempt&& attempt) const noexcept {
  ClaimResult result = attempt();
  for (int i = 0; i < kClaimTriesBesideClaimsInFlight && result.outcome == ClaimOutcome::refused; ++i) {
    const std::uint64_t settled =
        (cell_->alloc.load(std::memory_order_seq_cst) & kBytesMask) + cell_->unspent.load(std::memory_order_acquire);
    if (result.claimed_before == settled) break;
    test_point(TestPoint::claim_before_retry);
    std::this_thread::yield();
    result = attempt();
  }
  return result;
}

ClaimResult Ledger::claim(std::uint64_t bytes) noexcept {
  return beside_claims_in_flight([&] { return Steps::claim(cell_->claim, cell_->limit, bytes); });
}

ClaimResult Ledger::look(std::uint64_t bytes) const noexcept {
  return beside_claims_in_flight([&] { return Steps::look(cell_->claim, cell_->limit, bytes); });
}

void Ledger::set_budget(MemoryBudget budget) noexcept {
  const LaneSection section{this_thread()};
  const std::uint64_t before = limit_word();
  const std::uint64_t after = limit_word_of(budget);
  Steps::set_limit(cell_->limit, cell_->claim, after);
  test_point(TestPoint::budget_before_wake);
  set_scales(budget);
  book_budget_change(section, before, after);
  wake_waiters();
  judge_pressure(section);
}

MemoryBudget Ledger::budget() const noexcept {
  const std::uint64_t word = limit_word();
  if ((word & kLimitNone) != 0) return MemoryBudget::unlimited();
  const std::uint64_t bytes = word & kBytesMask;
  return (word & kLimitEnforcing) != 0 ? MemoryBudget::with_limit(bytes) : MemoryBudget::observe(bytes);
}

// The journal starts anew with the peak: from the old height it would not hear of the new ones until they pass it.
void Ledger::reset_peak() noexcept {
  Steps::reset_peak(cell_->peak, cell_->alloc);
  cell_->journal_peak.store(cell_->peak.load(std::memory_order_seq_cst) & kBytesMask, std::memory_order_relaxed);
}

void Ledger::set_scales(MemoryBudget budget) noexcept {
  const auto limit = budget.limit_bytes();
  const bool has_use = limit.has_value() && *limit != 0;
  use_scale_.store(has_use ? static_cast<double>(kUseBuckets) / static_cast<double>(*limit) : 0.0, std::memory_order_relaxed);
  peak_step_.store(has_use ? std::max<std::uint64_t>(*limit / kPeakStepsOfBudget, 1) : kPeakStepWithoutBudget,
                   std::memory_order_relaxed);
}

Ledger::Words Ledger::words() const noexcept {
  const LedgerBytes bytes = read_ledger_bytes<StdAtomics>(cell_->claim, cell_->alloc, cell_->peak);
  return {bytes.claimed, bytes.allocated, bytes.peak};
}

TagPlace Ledger::find_tag_place(std::uint16_t tag) noexcept {
  TagPlace place{};
  if (index_ != kNoCell) {
    place = add_tag(directory_id_, tag_name(tag));
    if (place.cell == kNoTagCell) {
      recorder.header->tags_folded.fetch_add(1, std::memory_order_relaxed);
      place = other_;
    }
  }
  tag_places_[tag].store(pack(place), std::memory_order_release);
  return place;
}

std::uint64_t Ledger::tag_bytes(TagPlace place) const noexcept {
  if (place.cell == kNoTagCell) return 0;
  std::uint64_t bytes = recorder.overflow->tags[place.cell].bytes.load(std::memory_order_acquire) -
                        recorder.tag_bases[place.cell].bytes.load(std::memory_order_relaxed);
  const auto lanes = std::min<std::uint64_t>(recorder.header->lanes_used.load(std::memory_order_relaxed), kOwnedLanes);
  for (std::uint32_t lane = 0; lane < lanes; ++lane)
    bytes += recorder.lane(lane).tags[place.cell].bytes.load(std::memory_order_acquire);
  return bytes;
}

std::uint64_t Ledger::sum(Word LedgerCounters::* counter) const noexcept {
  std::uint64_t total =
      (shared_counters_->*counter).load(std::memory_order_acquire) - (base_->*counter).load(std::memory_order_relaxed);
  for (std::uint32_t lane = 0; index_ < kLaneLedgers && lane < kOwnedLanes; ++lane) {
    total += (recorder.lane(lane).counters[index_].*counter).load(std::memory_order_acquire);
  }
  return total;
}

// Each tag place once: names that were folded share `other`, and a tag that somebody calls "untagged" that of what has none.
template <class Visit>
void Ledger::for_each_tag(Visit&& visit) const noexcept {
  if (!counts_all_tags()) return;
  std::bitset<kTagCells> seen;
  seen.set(other_.cell);
  visit("other", tag_bytes(other_));
  for (std::uint16_t tag = 0; tag < tag_names_used(); ++tag) {
    const std::uint32_t packed = tag_places_[tag].load(std::memory_order_acquire);
    if (packed == 0) continue;
    const TagPlace place = unpack(packed);
    if (place.cell == kNoTagCell || seen[place.cell]) continue;
    seen.set(place.cell);
    visit(tag_name(tag), tag_bytes(place));
  }
}

std::uint64_t Ledger::all_tag_bytes() const noexcept {
  std::uint64_t total = 0;
  for_each_tag([&](const char*, std::uint64_t bytes) { total += bytes; });
  return total;
}

std::array<Holder, 3> Ledger::largest_holders() const noexcept {
  std::array<Holder, 3> largest{};
  for_each_tag([&](const char* name, std::uint64_t bytes) {
    // A sum over lanes may be seen between a free and its allocation elsewhere: never as a huge number.
    if (static_cast<std::int64_t>(bytes) <= 0) return;
    Holder candidate{name, bytes};
    for (auto& holder : largest) {
      if (candidate.bytes > holder.bytes) std::swap(candidate, holder);
    }
  });
  return largest;
}

}  // namespace headroom::ledger
