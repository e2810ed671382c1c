// The events of all rings as one timeline, and per lane what was listed and what is gone.
//
// Merged as they are read, by a heap of one record for each ring: nothing is collected. A ring is in order but for lines of a
// LoggingResource, whose time is when the memory changed hands.
#include <algorithm>

#include "dump/words.hpp"
#include "dump/writer.hpp"
#include "flight/raw_reads.hpp"

namespace headroom::dump {

using flight::EventKind;
using flight::Ring;

namespace {

constexpr Ring ring_kind(std::uint32_t ring) noexcept { return ring % 2 == 0 ? Ring::main : Ring::journal; }

/// Of an allocate or free record: all of words 3 and 5 is in columns.
constexpr std::uint64_t kSpareOfBytes = ~(flight::kRequestedMask | (std::uint64_t{63} << 48));
constexpr std::uint64_t kSpareOfSubject = ~(std::uint64_t{0xFFF'FFFF} | (std::uint64_t{15} << 52));

bool fits_columns(RecordWords const& words) noexcept {
  const EventKind kind = kind_of(words);
  return (kind == EventKind::allocate || kind == EventKind::free) && (words[3] & kSpareOfBytes) == 0 &&
         (words[5] & kSpareOfSubject) == 0 && words[6] <= 0xFFFF'FFFFU;
}

bool is_log_line(EventKind kind) noexcept {
  return kind == EventKind::resource_allocate || kind == EventKind::resource_free || kind == EventKind::resource_refusal ||
         kind == EventKind::resource_free_failed;
}

}  // namespace

// False: this ring has no more.
bool Writer::next_record(std::uint32_t ring) noexcept {
  RingState& state = work_.rings[ring];
  const auto reader = mapped_.ring(ring / 2, ring_kind(ring));
  // Every step moves the cursor, and the first one skips what is overwritten: at most N steps in all.
  while (state.cursor.next < state.end) {
    const auto outcome = is_quiet() ? reader.read_quiet(state.cursor, state.words) : reader.read(state.cursor, state.words);
    if (outcome == flight::RingRead::nothing) return false;  // head went back: damage
    if (outcome != flight::RingRead::accepted) continue;
    // A writer that laps the reader makes it skip, beyond what was to be read too.
    if (state.cursor.next > state.end) return false;
    state.number = state.cursor.next - 1;
    return true;
  }
  if (!is_quiet() || state.uncommitted || !reader.read_uncommitted(state.words)) return false;
  state.number = state.end;
  state.uncommitted = true;
  return true;
}

void Writer::write_events() noexcept {
  json_.begin_object("events");
  json_.begin_array("columns", Shape::flat);
  for (auto const* const column : {"ns", "ticks", "lane", "number", "kind", "flags", "ledger", "tag", "pressure", "thread",
                                   "duration_ns", "address", "bytes", "alignment", "allocated_after", "operation", "site"}) {
    json_.word(column);
  }
  json_.end_array();
  json_.member_word("other_kinds", "words 2 to 7 of the record in the place of the columns from address on");
  json_.begin_array("rows");

  std::size_t count = 0;
  const auto later = [](RingKey const& a, RingKey const& b) { return a.ticks != b.ticks ? a.ticks > b.ticks : a.ring > b.ring; };
  const auto heap = [&] { return work_.heap.first(count); };
  const auto rings = static_cast<std::uint32_t>(std::min(work_.rings.size(), std::size_t{2} * mapped_.lanes().size()));
  for (std::uint32_t ring = 0; ring < rings; ++ring) {
    const auto reader = mapped_.ring(ring / 2, ring_kind(ring));
    RingState& state = work_.rings[ring];
    state = RingState{};
    state.end = reader.written();
    state.cursor.next = is_quiet() ? reader.oldest_quiet() : reader.oldest();
    if (!next_record(ring)) continue;
    work_.heap[count++] = {.ticks = state.words[1], .ring = ring};
    std::ranges::push_heap(heap(), later);
  }
  while (count > 0 && json_.error() == 0) {
    std::ranges::pop_heap(heap(), later);
    RingKey& top = work_.heap[count - 1];
    RingState& state = work_.rings[top.ring];
    write_event(top.ring, state);
    if (state.listed++ == 0) state.first = state.number;
    state.last = state.number;
    ++events_listed_;
    if (next_record(top.ring)) {
      top.ticks = state.words[1];
      std::ranges::push_heap(heap(), later);
    } else {
      --count;
    }
  }
  json_.end_array();
  json_.end_object();
}

void Writer::write_event(std::uint32_t ring, RingState const& state) noexcept {
  RecordWords const& words = state.words;
  const EventKind kind = kind_of(words);
  // Since the start of the process: small numbers, that two runs have in common.
  const std::uint64_t start = clock_.syncs.front().monotonic_ns;
  const std::uint64_t ns = clock_.monotonic_ns(words[1]);
  JsonStream::Row row{json_};
  row.number(ns > start ? ns - start : std::uint64_t{0});
  row.number(words[1]);
  row.number(ring / 2);
  row.number(state.number);
  if (const std::string_view word = word_of(kEventKindWords, kind); word != "unknown") {
    row.word(word);
  } else {
    row.number(static_cast<std::uint8_t>(kind));
  }
  row.number(((words[0] >> 48) & 0xFFU) | (state.uncommitted ? 0x100U : 0U));
  if (is_log_line(kind)) {
    for (int i = 0; i < 3; ++i) row.null();  // about no ledger; its tag is the number of an AllocTag
  } else {
    row.number((words[5] >> 16) & 0xFFFU);
    row.number(words[5] & 0xFFFFU);
    row.number((words[5] >> 52) & 15U);
  }
  row.number(thread_of(words));
  row.number(words[7] >> 32);
  if (fits_columns(words)) {
    row.hex(words[2]);
    row.number(words[3] & flight::kRequestedMask);
    row.number(std::uint64_t{1} << ((words[3] >> 48) & 63U));
    row.number(words[4] & flight::kBytesMask);
    row.number(words[4] >> flight::kBytesBits);
    row.number(words[6]);
  } else {
    for (std::size_t word = 2; word < words.size(); ++word) row.hex(words[word]);
  }
}

void Writer::write_lanes() noexcept {
  json_.begin_array("lanes");
  const bool listed = wants_events();
  const auto lanes = static_cast<std::uint32_t>(std::min(work_.rings.size() / 2, std::size_t{mapped_.lanes().size()}));
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    auto const info = flight::read_lane(mapped_, lane);
    if (!info) continue;
    if (!listed) {
      for (const std::uint32_t ring : {2 * lane, 2 * lane + 1}) {
        work_.rings[ring] = RingState{};
        work_.rings[ring].end = ring % 2 == 0 ? info->main_head : info->journal_head;
      }
    }
    json_.begin_object(Shape::flat);
    json_.member("lane", lane);
    json_.member("owned", info->owned);
    json_.member("thread", info->thread);
    json_.member("thread_name", text_of(flight::read_thread_name(mapped_, lane)));
    write_ring(lane, Ring::main);
    write_ring(lane, Ring::journal);
    json_.end_object();
  }
  json_.end_array();
}

void Writer::write_ring(std::uint32_t lane, Ring ring) noexcept {
  RingState const& state = work_.rings[2 * lane + (ring == Ring::main ? 0 : 1)];
  events_recorded_ += state.end;
  json_.begin_object(ring == Ring::main ? "main" : "journal", Shape::flat);
  json_.member("recorded", state.end);
  if (state.listed != 0) {
    json_.member("first", state.first);
    json_.member("last", state.last);
  }
  json_.member("listed", state.listed);
  if (wants_events()) {
    // What was overwritten before anyone read it, or while this was written. An uncommitted record is one more than was recorded.
    const std::uint64_t counted = state.listed - (state.uncommitted ? 1 : 0);
    json_.member("lost", state.end > counted ? state.end - counted : std::uint64_t{0});
  }
  json_.end_object();
}

}  // namespace headroom::dump
