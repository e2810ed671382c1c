// What the journals tell of one failed request: the refusal, the hooks that were asked for it, the policy's steps.
//
// A thread writes its story into one ring, in order. Records of other threads between them (in a shared lane) are passed over by the
// thread's number, and whatever happens inside a hook belongs to the hook.
//
// Thread safety: reads shared words with the rings' protocol. Cost: two passes over the journals, 2 ms at most; nothing is allocated.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include <headroom/error.hpp>
#include <headroom/flight_reader.hpp>

#include "flight/mapping.hpp"

namespace headroom::dump {

using RecordWords = flight::LaneRingReader::Words;

struct StoryWanted {
  std::optional<std::uint32_t> thread;     ///< of that one; else the newest of all
  std::optional<std::uint64_t> requested;  ///< of that many bytes
  bool quiet = false;                      ///< nobody writes any more
};

struct Story {
  std::uint32_t lane = 0;
  std::uint64_t first = 0;  ///< number of the refusal
  std::uint64_t end = 0;    ///< one past the last record of the story
  std::uint32_t thread = 0;
  RecordWords refusal{};
  std::optional<RecordWords> tail;  ///< its second half
};

[[nodiscard]] std::optional<Story> find_story(flight::MappedFlight const& mapped, StoryWanted const& wanted) noexcept;

[[nodiscard]] constexpr flight::EventKind kind_of(RecordWords const& words) noexcept {
  return static_cast<flight::EventKind>(words[0] >> 56);
}
[[nodiscard]] constexpr bool continues(RecordWords const& words) noexcept { return (words[0] & flight::kFlagContinues) != 0; }
[[nodiscard]] constexpr std::uint32_t thread_of(RecordWords const& words) noexcept {
  return static_cast<std::uint32_t>(words[7]);
}

/// Calls visit(number, words) for the readable records [first, end) of a ring; it returns false to stop. `quiet`: nobody writes.
template <class Visit>
void for_each_record(flight::LaneRingReader const& ring, std::uint64_t first, std::uint64_t end, bool quiet,
                     Visit const& visit) noexcept {
  flight::RingCursor cursor{.next = first, .lost = 0};
  RecordWords words{};
  while (cursor.next < end) {
    const flight::RingRead outcome = quiet ? ring.read_quiet(cursor, words) : ring.read(cursor, words);
    if (outcome == flight::RingRead::nothing) return;
    // A damaged record and an overtaken reader moved the cursor: every turn does.
    if (outcome == flight::RingRead::accepted && !visit(cursor.next - 1, words)) return;
  }
}

}  // namespace headroom::dump
