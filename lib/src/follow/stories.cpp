#include "follow/stories.hpp"

#include <algorithm>

#include "follow/story_rules.hpp"

namespace headroom::follow {
namespace {

using flight::Event;
using flight::EventKind;
using flight::PolicyStep;

// A hostile file cannot ask for more.
constexpr std::size_t kMostNested = 8;
constexpr std::size_t kMostThreads = 4096;
constexpr std::size_t kMostParts = std::size_t{1} << 16U;              // turns and steps of all stories
constexpr std::uint64_t kClockSlackNs = 1000;                          // durations and ticks come from two clocks: this, and
constexpr std::uint64_t kClockSlackDivisor = std::uint64_t{1} << 10U;  // … this part of the duration

}  // namespace

std::string_view to_string(FailureEnd end) noexcept {
  switch (end) {
    case FailureEnd::failed: return "failed";
    case FailureEnd::recovered: return "recovered";
    case FailureEnd::gave_up: return "gave_up";
    case FailureEnd::under_way: return "under_way";
    case FailureEnd::observed: return "observed";
  }
  return "unknown";
}

std::string_view to_string(HookResult result) noexcept {
  switch (result) {
    case HookResult::ran: return "ran";
    case HookResult::threw: return "threw";
    case HookResult::skipped_large: return "skipped_large";
    case HookResult::skipped_busy: return "skipped_busy";
    case HookResult::running: return "running";
    case HookResult::elsewhere: return "elsewhere";
  }
  return "unknown";
}

void Stories::add(Event const& event) {
  switch (event.kind) {
    case EventKind::refusal:
    case EventKind::observed: is_second_half(event) ? refusal_figures(event) : refused(event); break;
    case EventKind::hook_begin: hook_began(event); break;
    case EventKind::hook_end: is_second_half(event) ? hook_figures(event) : hook_ended(event); break;
    case EventKind::hook_skip: hook_skipped(event); break;
    case EventKind::hook_overrun: hook_overran(event); break;
    case EventKind::policy: policy_acted(event); break;
    case EventKind::thread_detach: threads_.erase(event.thread()); break;
    default: break;
  }
  if (auto* const thread = known_thread(event.thread()); thread != nullptr) {
    thread->lane = event.lane;
    if (!tells_nothing_of_its_thread(event.kind)) thread->last_ticks = std::max(thread->last_ticks, event.ticks);
  }
  while (stories_.size() > 1 && (stories_.size() > most_ || parts_ > kMostParts)) forget_oldest();
}

std::vector<FailureStory> Stories::last(std::size_t most) const {
  std::vector<FailureStory> stories;
  for (auto told = stories_.rbegin(); told != stories_.rend() && stories.size() < most; ++told) {
    if (!told->is_later_try) stories.push_back(told->story);
  }
  std::ranges::reverse(stories);
  return stories;
}

// ── stories and threads ──

Stories::Told* Stories::told(std::uint64_t number) noexcept {
  if (stories_.empty() || number < stories_.front().story.number || number > stories_.back().story.number) return nullptr;
  return &stories_[number - stories_.front().story.number];
}

FailureStory* Stories::find(std::uint64_t number) noexcept {
  auto* const found = told(number);
  return found == nullptr ? nullptr : &found->story;
}

void Stories::forget_oldest() {
  auto const& oldest = stories_.front();
  parts_ -= oldest.story.hooks.size() + oldest.story.policy.size();
  if (!oldest.is_later_try) ++forgotten_;
  stories_.pop_front();
}

Stories::Thread* Stories::known_thread(std::uint32_t id) noexcept {
  auto const found = threads_.find(id);
  return found == threads_.end() ? nullptr : &found->second;
}

Stories::Thread& Stories::thread_of(Event const& event) {
  if (auto* const known = known_thread(event.thread()); known != nullptr) return *known;
  if (threads_.size() >= kMostThreads) {
    // Whose requests are all told is not needed any more. What that leaves must be far fewer, or each new thread would look at all.
    std::erase_if(threads_, [&](auto const& entry) {
      return std::ranges::none_of(entry.second.open, [&](std::uint64_t number) {
        auto const* const story = find(number);
        return story != nullptr && story->end == FailureEnd::under_way;
      });
    });
    if (threads_.size() > kMostThreads / 2) {
      for (auto const& [id, thread] : threads_) cut(thread);
      threads_.clear();
    }
  }
  return threads_[event.thread()];
}

void Stories::cut(Thread const& thread) {
  for (auto const number : thread.open) {
    auto* const story = find(number);
    if (story == nullptr) continue;
    auto const has_gone_on = !is_dealt_with(*story) && thread.last_ticks > story->end_ticks;
    if (has_gone_on || (is_dealt_with(*story) && story->end != FailureEnd::under_way)) continue;
    story->end = FailureEnd::under_way;
    story->incomplete = true;
  }
}

void Stories::note_loss(std::uint32_t lane) {
  std::erase_if(threads_, [&](auto const& entry) {
    auto const& thread = entry.second;
    if (thread.lane != lane && thread.lane < flight::kOwnedLanes) return false;
    cut(thread);
    return true;
  });
}

FailureStory& Stories::begin(Thread& thread, Event const& event) {
  Told next;
  auto& story = next.story;
  story.number = ++told_;
  story.ticks = story.end_ticks = event.ticks;
  story.ledger = event.ledger();
  story.thread = event.thread();
  story.inside_hook = std::ranges::any_of(thread.open, [&](std::uint64_t number) {
    auto const* const outer = find(number);
    return outer != nullptr && is_in_callback(*outer);
  });
  if (thread.open.size() == kMostNested) {
    // What nothing was recorded about is over, most likely; the request around a callback that asks often is not.
    auto const over = std::ranges::find_if(thread.open, [&](std::uint64_t number) {
      auto const* const open = find(number);
      return open == nullptr || !is_dealt_with(*open);
    });
    thread.open.erase(over == thread.open.end() ? thread.open.begin() : over);
  }
  thread.open.push_back(told_);
  stories_.push_back(std::move(next));
  return stories_.back().story;
}

/// What lies further in was over before.
void Stories::end_inner(Thread& thread, std::size_t outer) {
  auto* const story = find(thread.open[outer]);
  for (auto inner = outer + 1; inner < thread.open.size(); ++inner) {
    auto* const over = told(thread.open[inner]);
    if (over == nullptr) continue;
    if (story != nullptr && is_later_try_of(*story, over->story)) {
      story->later_kind = over->story.kind;
      story->later_layer = over->story.layer;
      story->later_code = over->story.device_code;
      over->is_later_try = true;
    } else {
      over->story.inside_hook = true;
    }
  }
  thread.open.resize(outer + 1);
}

/// What is asked for in a hook or a callback has neither hooks nor a policy. What has is in none: the record of its end is missing.
void Stories::end_callbacks_around(Thread& thread, FailureStory& story) {
  if (!story.inside_hook) return;
  story.inside_hook = false;
  std::erase_if(thread.open, [&](std::uint64_t number) {
    auto* const around = find(number);
    if (around == nullptr || around == &story || !is_in_callback(*around)) return false;
    around->incomplete = true;
    return true;
  });
}

FailureStory* Stories::innermost(Thread& thread, MayTake const& may_take) {
  for (auto i = thread.open.size(); i-- > 0;) {
    auto* const story = find(thread.open[i]);
    if (story == nullptr || !may_take(*story)) continue;
    end_inner(thread, i);
    return story;
  }
  return nullptr;
}

/// The story of the request that a hook's turn or a step of policy is about. `requested` 0: of any size.
FailureStory* Stories::dealing(Thread& thread, Event const& event, std::uint64_t requested) {
  auto const is_about = [&](FailureStory const& story) {
    return may_be_dealt_with(story) && story.ledger == event.ledger() && (requested == 0 || story.requested == requested) &&
           took(story, event);
  };
  if (ends_checkpoint(event)) {
    auto* const in_it =
        innermost(thread, [&](FailureStory const& story) { return story.doing == PolicyStep::checkpoint && is_about(story); });
    if (in_it != nullptr) return in_it;
  }
  // While a callback is in the way nothing is done about the request. But the record of its end may be missing.
  auto* const free_to_act =
      innermost(thread, [&](FailureStory const& story) { return is_about(story) && !is_in_callback(story); });
  return free_to_act != nullptr ? free_to_act : innermost(thread, is_about);
}

/// A step's duration counts from after the refusal, and its result names the refusal.
bool Stories::took(FailureStory const& story, Event const& event) const {
  if (event.kind != EventKind::policy) return true;
  if (auto const kind = event.error_kind(); kind && story.kind && (kind != story.kind || event.error_layer() != story.layer)) {
    return false;
  }
  auto const ns = event.words[3];
  auto const passed = event.ticks > story.ticks ? duration_of_(event.ticks - story.ticks) : 0;
  return passed >= ns || ns - passed <= kClockSlackNs + ns / kClockSlackDivisor;
}

}  // namespace headroom::follow
