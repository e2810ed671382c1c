// Model: what the live table tells where records do not: what was live when a segment began, and what a dead process did last.
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "follow/model_impl.hpp"

namespace headroom::follow {
namespace {

using flight::EventKind;

constexpr std::uint32_t kMostLooks = 16;

/// No more can have been live than the books say. A slot whose block is on its way back may be of one that had gone already, so these go
/// first; then the newest. Returns the bytes of the others.
std::uint64_t keep_within(std::vector<flight::LiveAllocation>& blocks, std::uint64_t most) {
  std::uint64_t sum = 0;
  for (auto const& block : blocks) sum += block.bytes;
  if (sum <= most) return sum;
  std::ranges::sort(blocks, {}, [](flight::LiveAllocation const& block) {
    return std::pair{block.state == flight::SlotState::freeing, block.ticks};
  });
  while (sum > most) {
    sum -= blocks.back().bytes;
    blocks.pop_back();
  }
  return sum;
}

std::uint64_t allocated_before(std::uint64_t alloc_word, Step const& step) noexcept {
  auto const after = alloc_word & flight::kBytesMask;
  if (!step.adds()) return after + step.bytes;
  return after > step.bytes ? after - step.bytes : 0;
}

}  // namespace

Block Model::Impl::to_block(flight::LiveAllocation const& live) {
  return {.address = live.address,
          .bytes = live.bytes,
          .ticks = live.ticks,
          .site = site_number(live.site),
          .thread = live.thread,
          .tag = tag_number(live.tag),
          .untracked = false};
}

Model::Impl::Slots const& Model::Impl::slots() {
  if (!slots_) {
    slots_.emplace();
    source->for_each_live([this](flight::LiveAllocation const& live) { (*slots_)[live.ledger].push_back(live); });
  }
  return *slots_;
}

void Model::Impl::begin(std::uint32_t cell, Track& track, std::uint64_t alloc_word, Step const& first, std::uint64_t missing,
                        bool whole) {
  auto const number = OpSequence::number_of(alloc_word);
  auto const allocated = allocated_before(alloc_word, first);
  auto const is_first = missing == 0;
  if (is_first && track.past.has_segment() && track.past.sums().allocated == allocated &&
      number == ((track.number_then + 1) & (OpSequence::kNumbers - 1))) {
    return;  // the ledger was quiet when it was first looked at, and this is its next operation
  }
  if (!is_first || track.past.has_segment()) {
    ++track.gaps;
    track.missing += missing;
  }
  LedgerPast::Start start{.ticks = first.ticks,
                          .allocated = allocated,
                          .missing = missing,
                          .looked_ticks = 0,
                          .is_whole = whole || allocated == 0,
                          .live = {}};
  auto const* const book = book_of(cell);
  start.from_birth = !track.past.has_segment() && number == 1 && allocated == 0 && never_wrapped(book);
  // With another gap behind it, blocks that were freed in that one are not known, and the look at the table is left to the last.
  if (allocated != 0 && whole) {
    start.looked_ticks = std::max(source->now_ticks(), last_ticks);
    std::vector<flight::LiveAllocation> older;
    if (auto const found = slots().find(cell); found != slots().end()) {
      std::ranges::copy_if(found->second, std::back_inserter(older),
                           [&](flight::LiveAllocation const& live) { return is_older(live, alloc_word, first); });
    }
    static_cast<void>(keep_within(older, allocated));
    for (auto const& live : older) start.live.push_back(to_block(live));
  }
  track.past.begin_segment(std::move(start));
  if (book != nullptr && first.ticks >= book->created_ticks) track.owner_since = book->created_ticks;
}

/// Whether a ledger's first number can only be its first.
bool Model::Impl::never_wrapped(flight::LedgerSnapshot const* book) const {
  if (book == nullptr) return true;
  // The books count the operations of the cell's owner; numbers go on over all its owners.
  auto const operations =
      book->generation > 1 ? source->process().events_recorded : book->counters.allocations + book->counters.frees;
  return operations < OpSequence::kNumbers;
}

/// Whether a block of the live table was allocated before `first`.
bool Model::Impl::is_older(flight::LiveAllocation const& live, std::uint64_t alloc_word, Step const& first) const {
  // Far apart, time decides: numbers wrap. Close together, the numbers do: they are the order.
  auto const near = second_ / 20;
  if (live.ticks + near < first.ticks) return true;
  if (first.ticks + near < live.ticks) return false;
  return OpSequence::ahead(OpSequence::number_of(live.operation), OpSequence::number_of(alloc_word)) < 0;
}

/// Whether a block came after the operation at which the book was read: the table is read later, and its program runs on.
bool Model::Impl::is_newer(flight::LiveAllocation const& live, flight::LedgerSnapshot const& book, std::uint64_t now) const {
  if (book.operation_number == 0 || live.ticks + second_ < now) return false;  // far back, it only seems to be ahead
  return OpSequence::ahead(OpSequence::number_of(live.operation), book.operation_number) > 0;
}

/// Ledgers without an operation that could be read: what is live now was so all along.
void Model::Impl::begin_quiet_ledgers(bool give_up) {
  for (auto const& book : books) {
    if (book.is_device_account) continue;
    auto& of_ledger = track(book.cell);
    if (of_ledger.past.has_segment() || of_ledger.sequence.waiting() != 0) continue;
    auto const operations = book.counters.allocations + book.counters.frees;
    of_ledger.number_then = book.operation_number != 0 ? book.operation_number : operations;
    of_ledger.owner_since = book.created_ticks;
    LedgerPast::Start start;
    start.ticks = start.looked_ticks = std::max(source->now_ticks(), last_ticks);
    auto const is_unused = operations == 0 && book.allocated == 0;
    start.from_birth = is_unused && owner_since(&book) == 0;
    if (is_unused && !start.from_birth) start.ticks = std::min(start.ticks, book.created_ticks);
    std::vector<flight::LiveAllocation> then;
    if (auto const found = slots().find(book.cell); !start.from_birth && found != slots().end()) {
      std::ranges::copy_if(found->second, std::back_inserter(then),
                           [&](flight::LiveAllocation const& live) { return !is_newer(live, book, start.ticks); });
    }
    start.allocated = book.allocated;
    auto const in_slots = keep_within(then, book.allocated);
    // A block that is missing may be one whose thread has not written its slot yet, or that went since: looked at again.
    auto const is_whole = in_slots + book.live_untracked_bytes == book.allocated;
    if (!is_whole && !give_up && of_ledger.looks++ < kMostLooks) continue;
    for (auto const& live : then) start.live.push_back(to_block(live));
    of_ledger.past.begin_segment(std::move(start));
  }
}

/// A dead process may have left operations without a record: the live table has those that came far enough.
void Model::Impl::reconcile_with_table() {
  for (auto& [cell, track] : tracks) {
    if (!track.sequence.started()) continue;
    auto const found = slots().find(cell);
    static std::vector<flight::LiveAllocation> const none;
    auto const& table = found == slots().end() ? none : found->second;
    bool added = false;
    for (auto const& live : table) {
      if (OpSequence::ahead(OpSequence::number_of(live.operation), track.sequence.expected_number()) < 0) continue;
      if (live.ticks + second_ < track.past.last_ticks()) continue;  // far back, and only seems to be ahead
      Step step;
      step.ticks = live.ticks;
      step.address = live.address;
      step.bytes = live.bytes;
      step.allocated = live.operation & flight::kBytesMask;
      step.site = site_number(live.site);
      step.thread = live.thread;
      step.tag = tag_number(live.tag);
      step.kind = EventKind::allocate;
      step.bits = Step::kRecovered;
      track.sequence.add(live.operation, step);
      added = true;
    }
    if (added) drain(cell, track, true);
    auto const* const book = book_of(cell);
    if (book == nullptr) continue;
    std::unordered_map<std::uint64_t, std::uint64_t> bytes_at;
    for (auto const& live : table) bytes_at[live.address] = live.bytes;
    for (auto const& block : track.past.live()) {
      auto const slot = bytes_at.find(block.address);
      if (block.untracked || (slot != bytes_at.end() && slot->second == block.bytes)) continue;
      Step step;
      step.ticks = track.past.last_ticks();
      step.address = block.address;
      step.bytes = block.bytes;
      step.allocated = book->allocated;
      step.site = block.site;
      step.thread = block.thread;
      step.tag = block.tag;
      step.kind = EventKind::free;
      step.bits = Step::kRecovered;
      track.past.apply(step);
    }
  }
}

}  // namespace headroom::follow
