// What the journals tell of one failed request: the refusal, the hooks that were asked for it, the policy's steps.
//
// A thread writes its story into one ring, in order. Records of other threads between them (in a shared lane) are passed over by the
// thread's number, and those of other requests by what roads.hpp knows.
//
// Thread safety: reads shared words with the rings' protocol. Cost: four passes over the journals, 4 ms at most, and more
// over one of them where requests lie within each other; nothing is allocated.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include <headroom/error.hpp>
#include <headroom/flight_reader.hpp>

#include "dump/roads.hpp"
#include "flight/mapping.hpp"

namespace headroom::dump {

struct StoryWanted {
  std::optional<std::uint32_t> thread;    ///< of that one; else of the one whose refusal is the newest of all
  std::optional<RefusedRequest> request;  ///< that one; else the newest that no other request led to
  bool quiet = false;                     ///< nobody writes any more
};

struct Story {
  std::uint32_t lane = 0;
  std::uint64_t first = 0;  ///< number of the refusal
  std::uint64_t end = 0;    ///< one past the last record of the story
  std::uint32_t thread = 0;
  RecordWords refusal{};
  std::optional<RecordWords> tail;  ///< its second half
  SetAside aside;                   ///< see roads.hpp
};

[[nodiscard]] std::optional<Story> find_story(flight::MappedFlight const& mapped, StoryWanted const& wanted) noexcept;

/// Calls visit(number, words) for the readable records [first, end) of a ring; it returns false to stop. `quiet`: nobody writes.
template <class Visit>
void for_each_record(flight::LaneRingReader const& ring, std::uint64_t first, std::uint64_t end, bool quiet,
                     Visit const& visit) noexcept {
  flight::RingCursor cursor{.next = first, .lost = 0};
  RecordWords words{};
  while (cursor.next < end) {
    const flight::RingRead outcome = quiet ? ring.read_quiet(cursor, words) : ring.read(cursor, words);
    if (outcome == flight::RingRead::nothing) return;
    // A damaged record and an overtaken reader moved the cursor: every turn does, and a writer that laps us moves it beyond the end.
    if (cursor.next > end) return;
    if (outcome == flight::RingRead::accepted && !visit(cursor.next - 1, words)) return;
  }
}

/// Calls visit(number, words, ended) for the records of a story behind its refusal.
template <class Visit>
void for_each_of_story(flight::MappedFlight const& mapped, Story const& story, bool quiet, Visit const& visit) noexcept {
  Roads roads{mapped.header().ticks_per_second, story.aside};
  const auto ring = mapped.ring(story.lane, flight::Ring::journal);
  for_each_record(ring, story.first, story.end, quiet, [&](std::uint64_t number, RecordWords const& words) {
    if (thread_of(words) != story.thread) return true;
    const auto about = roads.take(number, words);
    if (about != story.first) return true;
    if (number != story.first) visit(number, words, roads.has_ended());
    return !roads.has_ended();
  });
}

}  // namespace headroom::dump
