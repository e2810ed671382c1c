#include "dump/story.hpp"

#include <algorithm>

namespace headroom::dump {
namespace {

using flight::EventKind;

/// One request in one ring.
struct Found {
  std::uint32_t lane = 0;
  std::uint32_t thread = 0;
  std::uint64_t number = 0;
  std::uint64_t ticks = 0;
};

bool is_refusal(RecordWords const& words) noexcept { return kind_of(words) == EventKind::refusal && !continues(words); }

std::uint64_t begin_of(flight::LaneRingReader const& ring, bool quiet) noexcept {
  return quiet ? ring.oldest_quiet() : ring.oldest();
}

/// The newest refusal of all, whatever led to it.
std::optional<Found> newest_refusal(flight::MappedFlight const& mapped, bool quiet) noexcept {
  std::optional<Found> newest;
  for (std::uint32_t lane = 0; lane < mapped.lanes().size(); ++lane) {
    const auto ring = mapped.ring(lane, flight::Ring::journal);
    for_each_record(ring, begin_of(ring, quiet), ring.written(), quiet, [&](std::uint64_t number, RecordWords const& words) {
      if (is_refusal(words) && (!newest || words[1] >= newest->ticks)) newest = {lane, thread_of(words), number, words[1]};
      return true;
    });
  }
  return newest;
}

/// `aside`: those that were set aside on the way.
std::optional<std::uint64_t> request_of_thread(flight::MappedFlight const& mapped, std::uint32_t lane, std::uint32_t thread,
                                               StoryWanted const& wanted, SetAside& aside) noexcept {
  const auto ring = mapped.ring(lane, flight::Ring::journal);
  const std::uint64_t end = ring.written();
  for (;;) {
    Roads roads{mapped.header().ticks_per_second, aside, wanted.request};
    for_each_record(ring, begin_of(ring, wanted.quiet), end, wanted.quiet, [&](std::uint64_t number, RecordWords const& words) {
      if (thread_of(words) == thread) static_cast<void>(roads.take(number, words));
      return true;
    });
    // Ends: there is room for so many.
    if (roads.aside().count() == aside.count()) return roads.newest();
    aside = roads.aside();
  }
}

/// Reads the refusal again: it may be overwritten by now.
std::optional<Story> begin_story(flight::MappedFlight const& mapped, std::uint32_t lane, std::uint32_t thread,
                                 std::uint64_t number, bool quiet) noexcept {
  std::optional<Story> story;
  for_each_record(
      mapped.ring(lane, flight::Ring::journal), number, number + 2, quiet, [&](std::uint64_t found, RecordWords const& words) {
        if (found == number) {
          story = Story{
              .lane = lane, .first = number, .end = number + 1, .thread = thread, .refusal = words, .tail = {}, .aside = {}};
        } else if (story && kind_of(words) == EventKind::refusal && continues(words)) {
          story->tail = words;
          story->end = found + 1;
        }
        return true;
      });
  return story;
}

}  // namespace

std::optional<Story> find_story(flight::MappedFlight const& mapped, StoryWanted const& wanted) noexcept {
  std::optional<Story> story;
  const auto look_at = [&](std::uint32_t lane, std::uint32_t thread) {
    SetAside aside;
    const auto number = request_of_thread(mapped, lane, thread, wanted, aside);
    if (!number) return;
    auto here = begin_story(mapped, lane, thread, *number, wanted.quiet);
    if (here) here->aside = aside;
    if (here && (!story || here->refusal[1] > story->refusal[1])) story = here;
  };
  if (wanted.thread) {
    for (std::uint32_t lane = 0; lane < mapped.lanes().size(); ++lane) look_at(lane, *wanted.thread);
  } else if (const auto newest = newest_refusal(mapped, wanted.quiet)) {
    look_at(newest->lane, newest->thread);
  }
  if (!story) return story;
  std::uint64_t end = story->end;
  story->end = mapped.ring(story->lane, flight::Ring::journal).written();
  for_each_of_story(mapped, *story, wanted.quiet,
                    [&](std::uint64_t number, RecordWords const& /*words*/, bool /*ended*/) { end = std::max(end, number + 1); });
  story->end = end;
  return story;
}

}  // namespace headroom::dump
