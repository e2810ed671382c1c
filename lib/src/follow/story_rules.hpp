// headroom: what a record says about the request that it may belong to. Shared by stories.cpp and stories_records.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <headroom/flight_reader.hpp>
#include <headroom/follow_answers.hpp>

namespace headroom::follow {

[[nodiscard]] inline bool is_second_half(flight::Event const& event) noexcept {
  return (event.flags() & flight::kFlagContinues) != 0;
}

[[nodiscard]] inline bool names_its_request(flight::PolicyStep step) noexcept {
  return step != flight::PolicyStep::retried && step != flight::PolicyStep::reservation_given && step != flight::PolicyStep::none;
}

[[nodiscard]] inline bool is_shortage(std::optional<ErrorKind> kind) noexcept {
  return kind == ErrorKind::over_budget || kind == ErrorKind::device_out_of_memory;
}

[[nodiscard]] inline HookTurnStory* running(FailureStory& story) noexcept {
  auto const found = std::ranges::find(story.hooks, HookResult::running, &HookTurnStory::result);
  return found == story.hooks.end() ? nullptr : &*found;
}

/// What the thread does now is the program's own code, in a hook or a callback.
[[nodiscard]] inline bool is_in_callback(FailureStory const& story) noexcept {
  return story.doing == flight::PolicyStep::checkpoint ||
         std::ranges::find(story.hooks, HookResult::running, &HookTurnStory::result) != story.hooks.end();
}

[[nodiscard]] inline bool is_dealt_with(FailureStory const& story) noexcept { return story.end != FailureEnd::failed; }

inline void deal_with(FailureStory& story, std::uint64_t ticks) noexcept {
  story.end_ticks = std::max(story.end_ticks, ticks);
  if (!is_dealt_with(story)) story.end = FailureEnd::under_way;
  story.doing.reset();
  story.doing_since = 0;
}

[[nodiscard]] inline bool ends_checkpoint(flight::Event const& event) noexcept {
  if (event.kind != flight::EventKind::policy) return false;
  auto const step = event.policy_step();
  return step == flight::PolicyStep::checkpoint || step == flight::PolicyStep::checkpoint_failed ||
         step == flight::PolicyStep::checkpoint_shared;
}

/// Only a shortage is dealt with.
[[nodiscard]] inline bool may_be_dealt_with(FailureStory const& story) noexcept { return !story.kind || is_shortage(story.kind); }

/// `later` has no records but its refusal.
[[nodiscard]] inline bool is_later_try_of(FailureStory const& first, FailureStory const& later) noexcept {
  return !is_dealt_with(later) && !later.inside_hook && is_shortage(first.kind) && later.kind && !is_shortage(later.kind) &&
         first.ledger == later.ledger && first.requested == later.requested && first.tag == later.tag && first.site == later.site;
}

/// A thread writes these while a request of it is dealt with as well.
[[nodiscard]] inline bool tells_nothing_of_its_thread(flight::EventKind kind) noexcept {
  return kind == flight::EventKind::peak || kind == flight::EventKind::pressure || kind == flight::EventKind::trim ||
         kind == flight::EventKind::reserve || kind == flight::EventKind::reserve_drop || kind == flight::EventKind::hook_overrun;
}

}  // namespace headroom::follow
