#include "post_mortem.hpp"

#include <algorithm>
#include <bit>
#include <map>

#include <headroom/flight_check.hpp>
#include <headroom/flight_reader.hpp>

namespace headroom::kill {
namespace {

using flight::Event;
using flight::EventKind;
using flight::FlightView;
using flight::kBytesMask;
using flight::LaneBooks;
using flight::MappedFlight;

std::uint64_t load(flight::Word const& word) { return word.load(std::memory_order_acquire); }

class Examiner {
public:
  Examiner(FlightView view, MappedFlight const& mapped, Truths const& truths, PostMortem& found)
      : view_{std::move(view)}, mapped_{mapped}, truths_{truths}, found_{found} {}

  void run() {
    if (view_.liveness() != flight::Liveness::dead) problem("the file says that its process lives");
    where_everyone_stood();
    live_blocks();
    for (std::uint32_t cell = 0; cell < 2; ++cell) ledger(cell);
    records();
    nothing_finished_is_missing();
    it_is_sound();
  }

private:
  void problem(std::string text) { found_.problems.push_back(std::move(text)); }

  // What `headroom check` says to whoever looks at such a file first: nothing.
  void it_is_sound() {
    const auto check = flight::check_flight(view_, {});
    if (!check.quiet) problem("check took the file for a living process's");
    for (auto const& finding : check.findings) problem("check, at byte " + std::to_string(finding.offset) + ": " + finding.text);
  }

  void where_everyone_stood() {
    for (std::uint32_t i = 0; i < mapped_.lanes_with_books(); ++i) {
      auto const& header = mapped_.lanes()[i].header;
      if (load(header.owner) == 0) continue;
      const std::uint64_t word = load(header.in_flight);
      const std::uint64_t step = load(header.in_flight_step);
      const auto operation = static_cast<flight::InFlight>(word >> 60);
      if (step >= Standing::kSteps) return problem("lane " + std::to_string(i) + " says step " + std::to_string(step));
      if (operation == flight::InFlight::none) {
        ++found_.standing.idle;
      } else if (static_cast<std::size_t>(operation) < Standing::kOperations) {
        ++found_.standing.within[static_cast<std::size_t>(operation)][step];
      } else {
        problem("lane " + std::to_string(i) + " does something that victims never do");
      }
      if (word == 0) continue;
      ++found_.in_flight;
      const std::uint64_t cell = (word >> 44) & 0xFFFU;
      if (cell < in_flight_.size()) in_flight_[cell] += word & kBytesMask;
    }
    for (std::uint32_t cell = 0; cell < in_flight_.size(); ++cell) in_flight_[cell] += load(ledger_cell(cell).in_flight_shared);
  }

  void live_blocks() {
    found_.skipped_slots = view_.for_each_live([&](flight::LiveAllocation const& block) {
      ++found_.live_blocks;
      if (block.ledger >= live_.size()) return problem("a live block of ledger " + std::to_string(block.ledger));
      live_[block.ledger] += block.bytes;
      if (!address_fits(block.address, block.bytes) || block.alignment != alignment_of(block.bytes) ||
          block.stream != stream_of(block.bytes) || label(block.tag) != tag_name(block.bytes) || !is_victim(block.thread)) {
        problem("slot " + std::to_string(block.slot) + " mixes two blocks: " + std::to_string(block.bytes) + " bytes, address " +
                std::to_string(block.address) + ", " + label(block.tag));
      }
    });
  }

  // Invariant 6, with the words as they lie there, not as a view mends them.
  void ledger(std::uint32_t index) {
    auto const& cell = ledger_cell(index);
    const std::uint64_t claimed = load(cell.claim) & kBytesMask;
    const std::uint64_t allocated = load(cell.alloc) & kBytesMask;
    const std::uint64_t live = live_[index] + load(cell.live_untracked_bytes);
    const std::uint64_t unspent = load(cell.unspent);
    const std::string figures = "ledger " + std::to_string(index) + ": live " + std::to_string(live) + ", allocated " +
                                std::to_string(allocated) + ", claimed " + std::to_string(claimed) + ", unspent " +
                                std::to_string(unspent) + ", in flight " + std::to_string(in_flight_[index]);
    if (live > allocated || allocated > claimed) problem(figures + ": live <= allocated <= claimed is broken");
    if (claimed < live + unspent || claimed - live - unspent > in_flight_[index]) problem(figures + ": invariant 6 is broken");
    if (index == 0 && claimed > kLimit) problem(figures + ": claimed above the limit");
    std::uint64_t tagged = 0;
    for (auto const& snapshot : view_.ledgers()) {
      if (snapshot.cell != index) continue;
      for (auto const& tag : snapshot.tags) tagged += tag.bytes;
      if (snapshot.allocated > snapshot.peak || snapshot.allocated > snapshot.claimed)
        problem(figures + ": shown above peak or claim");
    }
    const std::uint64_t apart = tagged > allocated ? tagged - allocated : allocated - tagged;
    if (apart > in_flight_[index]) problem(figures + ": tags hold " + std::to_string(tagged));
  }

  void records() {
    flight::EventReader reader{view_};
    std::vector<Event> events;
    std::vector<flight::Gap> gaps;
    reader.poll(events, gaps, true);
    if (reader.lost() != 0) problem(std::to_string(reader.lost()) + " records of a quiet file could not be read");
    Event const* previous = nullptr;
    for (auto const& event : events) {
      ++found_.records;
      if (event.uncommitted) ++found_.uncommitted;
      check(event, previous);
      previous = &event;
    }
  }

  void check(Event const& event, Event const* previous) {
    const auto bad = [&](const char* what) {
      problem("lane " + std::to_string(event.lane) + ", record " + std::to_string(event.number) + " of kind " +
              std::to_string(static_cast<int>(event.kind)) + (event.uncommitted ? " (uncommitted)" : "") + ": " + what);
    };
    const bool tail = (event.flags() & flight::kFlagContinues) != 0;
    switch (event.kind) {
      case EventKind::allocate:
      case EventKind::free:
      case EventKind::write_off:
      case EventKind::peak:
      case EventKind::free_failed:
        if (!address_fits(event.words[2], event.bytes())) bad("address and size disagree");
        if ((event.words[3] >> 48 & 63) != static_cast<std::uint64_t>(std::countr_zero(alignment_of(event.bytes()))))
          bad("alignment");
        if (label(event.tag()) != tag_name(event.bytes())) bad("tag and size disagree");
        if (event.ledger() > 1 || !is_victim(event.thread())) bad("ledger or thread");
        if (event.kind == EventKind::allocate && event.allocated_after() < event.bytes())
          bad("less allocated than the block has");
        break;
      case EventKind::refusal:
      case EventKind::observed:
        if (!tail) {
          if (event.words[2] != event.bytes() || label(event.tag()) != tag_name(event.bytes()) || !is_victim(event.thread()))
            bad("refusal");
        } else if (previous != nullptr && previous->lane == event.lane && previous->ring == event.ring &&
                   previous->number + 1 == event.number) {
          // A refusal by budget is only spoken when the request did not fit at that instant.
          if (previous->error_kind() == ErrorKind::over_budget &&
              event.words[flight::RefusalTail::kClaimed] + previous->bytes() <=
                  (event.words[flight::RefusalTail::kLimit] & kBytesMask)) {
            bad("refused although it fitted");
          }
          if (previous->ticks != event.ticks) bad("the halves of a refusal disagree");
        }
        break;
      case EventKind::reserve:
        if (event.bytes() == 0) bad("a reservation of nothing");
        [[fallthrough]];
      case EventKind::reserve_drop:
        if (event.bytes() > kLargestReservation || event.ledger() > 1 || !is_victim(event.thread())) bad("a reservation");
        break;
      case EventKind::pressure:
      case EventKind::budget:
      case EventKind::thread_attach:
      case EventKind::thread_detach: break;
      default: bad("a kind that victims never write");
    }
  }

  // What a thread returned from is in its lane; what a lane's books count beyond it is at most the record of one operation.
  void nothing_finished_is_missing() {
    for (std::size_t index = 0; index < truths_.threads.size(); ++index) {
      Truth const& truth = truths_.threads[index];
      const std::uint64_t thread = load(truth.thread_id);
      for (std::uint32_t i = 0; thread != 0 && i < mapped_.lanes_with_books(); ++i) {
        if (load(mapped_.lanes()[i].header.owner) == thread + 1) lane(mapped_.lanes()[i], truth, is_tight(index), i);
      }
    }
  }

  void lane(LaneBooks const& lane, Truth const& truth, bool tight, std::uint32_t index) {
    const std::uint64_t main = load(lane.header.main.head);
    const std::uint64_t journal = load(lane.header.journal.head);
    const std::uint64_t finished = load(truth.allocations) + load(truth.frees);
    auto const& counters = lane.counters[tight ? 0 : 1];
    const std::uint64_t counted = load(counters.allocations) + load(counters.frees);
    const std::string where = "lane " + std::to_string(index) + ": " + std::to_string(main) + " records, " +
                              std::to_string(finished) + " operations returned, " + std::to_string(counted) + " in the books: ";
    if (main < finished || main > counted) problem(where + "a finished operation has no record");
    const std::uint64_t told = 2 * load(truth.refusals) + load(truth.failed_frees) + load(truth.reservations) + load(truth.drops);
    // The thread's own arrival is in the journal too; the process may have died before that.
    const bool arrived = finished + told != 0;
    if (journal < told + (arrived ? 1 : 0)) problem(where + "a failure or reservation that was returned has no record");
    // Written-off blocks count as freed and are recorded in the journal: only the other ledger's threads do that.
    if (!tight || counted <= main) return;
    found_.missing_records += counted - main;
    if (counted - main > 1 || load(lane.header.in_flight) == 0) problem(where + "more than one operation's record is missing");
  }

  [[nodiscard]] flight::LedgerCell const& ledger_cell(std::uint32_t index) const { return mapped_.ledgers()[index]; }
  [[nodiscard]] bool is_victim(std::uint32_t thread) const {
    return std::ranges::any_of(truths_.threads, [&](Truth const& truth) { return load(truth.thread_id) == thread; });
  }
  std::string const& label(std::uint32_t id) {
    auto& known = labels_[id];
    if (known.empty()) known = view_.label(id);
    return known;
  }

  FlightView view_;
  MappedFlight const& mapped_;
  Truths const& truths_;
  PostMortem& found_;
  std::array<std::uint64_t, 2> in_flight_{};
  std::array<std::uint64_t, 2> live_{};
  std::map<std::uint32_t, std::string> labels_;
};

}  // namespace

PostMortem examine(std::string const& path, Truths const& truths) {
  PostMortem found;
  auto view = FlightView::open(path);
  const auto mapped = MappedFlight::open(path);
  if (!view || !mapped) {
    found.problems.push_back(view ? mapped.error().message : view.error().message);
    return found;
  }
  Examiner{std::move(*view), **mapped, truths, found}.run();
  return found;
}

const char* step_name(std::size_t step) {
  static constexpr auto kNames = std::to_array({"begun",
                                                "before claim",
                                                "claimed",
                                                "driver delivered",
                                                "slot taken",
                                                "admitted",
                                                "before publish",
                                                "before record",
                                                "before driver",
                                                "driver accepted",
                                                "slot cleared",
                                                "retired",
                                                "unclaimed",
                                                "refused, try again",
                                                "refused",
                                                "refusal: record",
                                                "free failed",
                                                "free failed: record",
                                                "recorded",
                                                "counted, peak open",
                                                "bytes back",
                                                "waiters woken",
                                                "new limit",
                                                "pressure moved",
                                                "announced",
                                                "before sleep",
                                                "thread ends",
                                                "before claim",
                                                "claimed",
                                                "named unspent",
                                                "taken of the rest",
                                                "spent",
                                                "before drop",
                                                "unspent less",
                                                "drop: bytes back",
                                                "account: unpended",
                                                "account: retired",
                                                "room: looked",
                                                "room: refused",
                                                "found to fit",
                                                "flush asked",
                                                "notice: before",
                                                "notice: all told",
                                                "notice: given up",
                                                "ledger: base stored",
                                                "ledger: half read",
                                                "hook: before wait",
                                                "removal: before wait",
                                                "listeners: locked"});
  static_assert(kNames.size() == Standing::kSteps);
  return step < kNames.size() ? kNames[step] : "?";
}

}  // namespace headroom::kill
