// EventReader: private cursors over every ring of a file. The protocol is ring_reader.hpp; here are only bookkeeping and order.
#include <algorithm>
#include <tuple>
#include <utility>

#include <headroom/flight_reader.hpp>

#include "flight/mapping.hpp"

namespace headroom::flight {
namespace {

constexpr std::size_t index_of(Ring ring) noexcept { return ring == Ring::main ? 0 : 1; }

Event event_from(std::array<std::uint64_t, kRecordWords> const& words, std::uint32_t lane, Ring ring,
                 std::uint64_t number) noexcept {
  Event event;
  event.kind = static_cast<EventKind>(words[0] >> 56);
  event.ring = ring;
  event.lane = lane;
  event.number = number;
  event.ticks = words[1];
  event.words = words;
  return event;
}

/// Extends the gap before it where there is no record between the two.
void add_gap(std::vector<Gap>& gaps, Gap const& gap) {
  if (!gaps.empty()) {
    auto& last = gaps.back();
    if (last.lane == gap.lane && last.ring == gap.ring && last.last_missing + 1 == gap.first_missing) {
      last.last_missing = gap.last_missing;
      return;
    }
  }
  gaps.push_back(gap);
}

// result field: 0 = good, else (kind + 1) · 64 + layer.
constexpr std::uint32_t kLayersInResult = 64;

}  // namespace

EventReader::EventReader(FlightView view, Start start) : view_{std::move(view)} {
  auto const& mapped = *view_.mapped_;
  follows_.resize(mapped.lanes().size());
  if (start == Start::zero) return;
  for (std::uint32_t lane = 0; lane < follows_.size(); ++lane) {
    for (auto const ring : {Ring::main, Ring::journal}) {
      auto const reader = mapped.ring(lane, ring);
      auto& follow = follows_[lane][index_of(ring)];
      follow.next_if_quiet = reader.oldest_quiet();
      follow.next = reader.oldest();
    }
  }
}

void EventReader::poll(std::vector<Event>& events, std::vector<Gap>& gaps, bool dead) {
  if (!polled_ && dead) {
    // Nobody asked before, so that what a living ring must give up need not be given up.
    for (auto& rings : follows_) {
      for (auto& follow : rings) follow.next = follow.next_if_quiet;
    }
  }
  polled_ = true;
  reserve_for_pending(events);
  for (std::uint32_t lane = 0; lane < follows_.size(); ++lane) {
    for (auto const ring : {Ring::main, Ring::journal}) poll_ring(lane, ring, dead, events, gaps);
  }
}

// Growing step by step would copy everything twice.
void EventReader::reserve_for_pending(std::vector<Event>& events) const {
  std::uint64_t pending = 0;
  for (std::uint32_t lane = 0; lane < follows_.size(); ++lane) {
    for (auto const ring : {Ring::main, Ring::journal}) {
      auto const reader = view_.mapped_->ring(lane, ring);
      auto const written = reader.written();
      auto const next = std::max(follows_[lane][index_of(ring)].next, reader.oldest());
      pending += written > next ? written - next : 0;
    }
  }
  // A hostile head cannot ask for more than the rings hold: oldest() follows it.
  if (pending > events.capacity() - events.size()) events.reserve(events.size() + pending);
}

void EventReader::poll_ring(std::uint32_t lane, Ring ring, bool dead, std::vector<Event>& events, std::vector<Gap>& gaps) {
  auto const reader = view_.mapped_->ring(lane, ring);
  auto& follow = follows_[lane][index_of(ring)];
  LaneRingReader::Words words{};
  RingCursor cursor{.next = follow.next, .lost = 0};
  // What is published now and no more: a writer that is faster than we are would keep us here for ever. Every step moves the
  // cursor and the first one skips what is overwritten, so that there are at most N of them.
  auto const end = reader.written();
  while (cursor.next < end) {
    auto const before = cursor;
    auto const outcome = dead ? reader.read_quiet(cursor, words) : reader.read(cursor, words);
    if (auto const lost = cursor.lost - before.lost; lost != 0) add_gap(gaps, {ring, lane, before.next, before.next + lost - 1});
    if (outcome == RingRead::accepted) {
      events.push_back(event_from(words, lane, ring, cursor.next - 1));
      ++accepted_;
    } else if (outcome == RingRead::nothing) {
      break;  // head went back: damage
    }
  }
  follow.next = cursor.next;
  lost_ += cursor.lost;
  if (!dead || follow.shown_uncommitted == end + 1 || !reader.read_uncommitted(words)) return;
  events.push_back(event_from(words, lane, ring, end));
  events.back().uncommitted = true;
  follow.shown_uncommitted = end + 1;
}

std::optional<ErrorKind> Event::error_kind() const noexcept {
  auto const stored = result() / kLayersInResult;
  if (stored == 0 || stored > kErrorKindCount) return std::nullopt;
  return static_cast<ErrorKind>(stored - 1);
}

std::optional<Layer> Event::error_layer() const noexcept {
  auto const layer = result() % kLayersInResult;
  if (!error_kind() || layer >= kLayerCount) return std::nullopt;
  return static_cast<Layer>(layer);
}

void sort_timeline(std::vector<Event>& events) {
  // Rings come in order one after the other: a few long runs. Merging keys of 16 bytes and moving each event once takes a tenth of
  // what sorting the events themselves would.
  struct Key {
    std::uint64_t ticks;
    std::uint64_t index;
  };
  auto const before = [&](Key const& a, Key const& b) {
    if (a.ticks != b.ticks) return a.ticks < b.ticks;
    auto const rest = [&](Key const& key) {
      Event const& event = events[key.index];
      return std::tuple{event.lane, event.ring, event.number};
    };
    return rest(a) < rest(b);
  };
  std::vector<Key> keys(events.size());
  std::vector<std::size_t> runs;  // where each run begins
  for (std::size_t i = 0; i < events.size(); ++i) {
    keys[i] = {events[i].ticks, i};
    if (i == 0 || before(keys[i], keys[i - 1])) runs.push_back(i);
  }
  if (runs.size() < 2) return;
  std::vector<Key> merged(keys.size());
  while (runs.size() > 1) {
    std::vector<std::size_t> longer;
    for (std::size_t run = 0; run < runs.size(); run += 2) {
      auto const at = [&](std::size_t next) {
        return static_cast<std::ptrdiff_t>(next < runs.size() ? runs[next] : keys.size());
      };
      std::merge(keys.begin() + at(run), keys.begin() + at(run + 1), keys.begin() + at(run + 1), keys.begin() + at(run + 2),
                 merged.begin() + at(run), before);
      longer.push_back(runs[run]);
    }
    keys.swap(merged);
    runs.swap(longer);
  }
  // In place, cycle by cycle: fresh memory for a second copy would cost more than the moves.
  for (std::size_t start = 0; start < keys.size(); ++start) {
    if (keys[start].index == start) continue;
    Event const first = events[start];
    auto at = start;
    for (auto from = keys[at].index; from != start; from = keys[at].index) {
      events[at] = events[from];
      keys[at].index = at;
      at = from;
    }
    events[at] = first;
    keys[at].index = at;
  }
}

}  // namespace headroom::flight
