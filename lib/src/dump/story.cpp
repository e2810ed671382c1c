#include "dump/story.hpp"

#include <algorithm>

namespace headroom::dump {
namespace {

using flight::EventKind;

/// How deep each thread is in hooks. A lane has one thread, or a few that share it: those beyond the table count as outside.
class HookDepths {
public:
  [[nodiscard]] bool is_inside(std::uint32_t thread) const noexcept {
    return std::ranges::any_of(depths_, [&](Depth const& one) { return one.depth != 0 && one.thread == thread; });
  }
  void begin(std::uint32_t thread) noexcept {
    Depth* free = nullptr;
    for (Depth& one : depths_) {
      if (one.depth == 0) {
        free = &one;
      } else if (one.thread == thread) {
        ++one.depth;
        return;
      }
    }
    if (free != nullptr) *free = {.thread = thread, .depth = 1};
  }
  /// One that was begun before the ring's oldest record changes nothing.
  void end(std::uint32_t thread) noexcept {
    for (Depth& one : depths_) {
      if (one.depth != 0 && one.thread == thread) --one.depth;
    }
  }

private:
  struct Depth {
    std::uint32_t thread = 0;
    std::uint32_t depth = 0;
  };
  std::array<Depth, 16> depths_{};
};

/// The newest refusal of one ring that was met outside of hooks.
struct Newest {
  std::optional<Story> story;
  std::uint64_t ticks = 0;

  void take(std::uint32_t lane, std::uint64_t number, RecordWords const& words) noexcept {
    story = Story{.lane = lane, .first = number, .end = number + 1, .thread = thread_of(words), .refusal = words, .tail = {}};
    ticks = words[1];
  }
};

bool is_wanted(StoryWanted const& wanted, RecordWords const& words) noexcept {
  return (!wanted.thread || *wanted.thread == thread_of(words)) && (!wanted.requested || *wanted.requested == words[2]);
}

Newest newest_in(flight::LaneRingReader const& ring, std::uint32_t lane, StoryWanted const& wanted) noexcept {
  Newest newest;
  HookDepths hooks;
  const std::uint64_t begin = wanted.quiet ? ring.oldest_quiet() : ring.oldest();
  for_each_record(ring, begin, ring.written(), wanted.quiet, [&](std::uint64_t number, RecordWords const& words) {
    if (wanted.thread && thread_of(words) != *wanted.thread) return true;
    switch (kind_of(words)) {
      case EventKind::hook_begin: hooks.begin(thread_of(words)); break;
      case EventKind::hook_end:
        if (!continues(words)) hooks.end(thread_of(words));
        break;
      case EventKind::refusal:
        // What a hook asked for in vain is the hook's affair.
        if (!continues(words) && !hooks.is_inside(thread_of(words)) && is_wanted(wanted, words)) newest.take(lane, number, words);
        break;
      default: break;
    }
    return true;
  });
  return newest;
}

/// Up to the record that says what became of it, or the thread's next refusal.
void find_end(flight::LaneRingReader const& ring, bool quiet, Story& story) noexcept {
  std::uint64_t hook_depth = 0;
  for_each_record(ring, story.first + 1, ring.written(), quiet, [&](std::uint64_t number, RecordWords const& words) {
    const EventKind kind = kind_of(words);
    if (kind == EventKind::refusal && continues(words) && number == story.first + 1) {
      story.tail = words;
      story.end = number + 1;
      return true;
    }
    if (thread_of(words) != story.thread) return true;
    if (kind == EventKind::refusal && !continues(words) && hook_depth == 0) return false;
    if (kind == EventKind::hook_begin) ++hook_depth;
    if (kind == EventKind::hook_end && !continues(words) && hook_depth > 0) --hook_depth;
    story.end = number + 1;
    if (kind != EventKind::policy || hook_depth > 0) return true;
    const auto step = static_cast<flight::PolicyStep>(words[2] & 0xFFU);
    return step != flight::PolicyStep::gave_up && step != flight::PolicyStep::recovered;
  });
}

}  // namespace

std::optional<Story> find_story(flight::MappedFlight const& mapped, StoryWanted const& wanted) noexcept {
  Newest newest;
  for (std::uint32_t lane = 0; lane < mapped.lanes().size(); ++lane) {
    const Newest here = newest_in(mapped.ring(lane, flight::Ring::journal), lane, wanted);
    if (here.story && (!newest.story || here.ticks > newest.ticks)) newest = here;
  }
  if (newest.story) find_end(mapped.ring(newest.story->lane, flight::Ring::journal), wanted.quiet, *newest.story);
  return newest.story;
}

}  // namespace headroom::dump
