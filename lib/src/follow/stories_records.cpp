// Stories: what each record adds.
#include <algorithm>
#include <utility>

#include "follow/stories.hpp"
#include "follow/story_rules.hpp"

namespace headroom::follow {
namespace {

using flight::Event;
using flight::EventKind;
using flight::HookEnd;
using flight::HookEndTail;
using flight::HookSkip;
using flight::PolicyStep;
using flight::RefusalTail;

constexpr std::size_t kMostTurns = 256;  // of hooks or policy in one story: a hostile file cannot ask for more

}  // namespace

// ── refusals ──

/// Another refusal of a request that is being dealt with: a later try met what no memory can mend.
FailureStory* Stories::tried_again(Thread& thread, Event const& event) {
  auto const kind = event.error_kind();
  if (event.kind != EventKind::refusal || thread.open.empty() || !kind || is_shortage(kind)) return nullptr;
  auto* const story = find(thread.open.back());
  auto const is_same = story != nullptr && is_dealt_with(*story) && !is_in_callback(*story) && is_shortage(story->kind) &&
                       story->ledger == event.ledger() && story->requested == event.words[2] &&
                       story->tag == name_of_(event.tag()) && story->site == name_of_(static_cast<std::uint32_t>(event.words[6]));
  return is_same ? story : nullptr;
}

void Stories::refused(Event const& event) {
  auto& thread = thread_of(event);
  if (auto* const first = tried_again(thread, event); first != nullptr) {
    first->later_kind = event.error_kind();
    first->later_layer = event.error_layer();
    first->end_ticks = std::max(first->end_ticks, event.ticks);
    thread.last_head = first->number;
    thread.last_head_is_later = true;
    return;
  }
  auto& story = begin(thread, event);
  story.tag = name_of_(event.tag());
  story.site = name_of_(static_cast<std::uint32_t>(event.words[6]));
  story.requested = event.words[2];
  story.kind = event.error_kind();
  story.layer = event.error_layer();
  story.allocated = event.allocated_after();
  thread.last_head = story.number;
  thread.last_head_is_later = false;
  if (event.kind == EventKind::observed) {
    story.end = FailureEnd::observed;
    thread.open.pop_back();
  }
}

void Stories::refusal_figures(Event const& event) {
  auto* const thread = known_thread(event.thread());
  auto* const story = thread == nullptr ? nullptr : find(std::exchange(thread->last_head, 0));
  if (story == nullptr) return;  // of a first half that was lost: it names nobody
  auto const code = static_cast<std::int32_t>(event.words[RefusalTail::kCode] >> 32U);
  if (thread->last_head_is_later) {
    story->later_code = code;
    return;
  }
  story->claimed = event.words[RefusalTail::kClaimed] & flight::kBytesMask;
  auto const limit = event.words[RefusalTail::kLimit];
  if ((limit & flight::kLimitNone) == 0) story->limit = limit & flight::kBytesMask;
  story->enforcing = (limit & flight::kLimitEnforcing) != 0;
  story->peak = event.words[RefusalTail::kPeak] & flight::kBytesMask;
  story->unspent = event.words[RefusalTail::kUnspent];
  if (auto const device_free = event.words[RefusalTail::kDeviceFree]; device_free != 0) story->device_free = device_free - 1;
  story->device_code = code;
}

// ── hooks ──

void Stories::add_turn(FailureStory& story, HookTurnStory turn) {
  if (story.hooks.size() >= kMostTurns) return;
  story.hooks.push_back(std::move(turn));
  ++parts_;
}

void Stories::hook_began(Event const& event) {
  auto& thread = thread_of(event);
  auto* story = dealing(thread, event, event.words[6]);
  if (story == nullptr) {  // its refusal was lost
    story = &begin(thread, event);
    story->requested = event.words[6];
    story->incomplete = true;
  }
  end_callbacks_around(thread, *story);
  deal_with(*story, event.ticks);
  add_turn(*story, {.name = name_of_(event.hook()),
                    .result = HookResult::running,
                    .begin_ticks = event.ticks,
                    .shortfall = event.words[2],
                    .estimate = event.words[3]});
}

void Stories::hook_ended(Event const& event) {
  auto* const thread = known_thread(event.thread());
  if (thread == nullptr) return;
  for (auto i = thread->open.size(); i-- > 0;) {
    auto* const story = find(thread->open[i]);
    auto* const turn = story == nullptr ? nullptr : running(*story);
    if (turn == nullptr) continue;
    // Hooks do not nest on a thread: the one that runs is the one that ended.
    turn->result = event.hook_threw() ? HookResult::threw : HookResult::ran;
    turn->overran = event.hook_overran();
    turn->reported = event.words[HookEnd::kReported];
    turn->duration_ns = event.words[HookEnd::kNs];
    turn->freed = event.words[HookEnd::kFreed];
    deal_with(*story, event.ticks);
    thread->last_hook_story = story->number;
    thread->last_hook_turn = static_cast<std::size_t>(turn - story->hooks.data());
    end_inner(*thread, i);
    return;
  }
}

void Stories::hook_figures(Event const& event) {
  auto* const thread = known_thread(event.thread());
  auto* const story = thread == nullptr ? nullptr : find(std::exchange(thread->last_hook_story, 0));
  if (story == nullptr) return;
  auto& turn = story->hooks[thread->last_hook_turn];
  turn.ledger_fell = static_cast<std::int64_t>(event.words[HookEndTail::kLedgerFell]);
  turn.estimate = event.words[HookEndTail::kEstimate];
  turn.shortfall = event.words[HookEndTail::kShortfall];
  turn.limit_ns = event.words[HookEndTail::kLimitNs];
}

void Stories::hook_skipped(Event const& event) {
  auto* const thread = known_thread(event.thread());
  auto* const story = thread == nullptr ? nullptr : dealing(*thread, event, 0);
  if (story == nullptr) return;
  end_callbacks_around(*thread, *story);
  auto const waited_since = story->doing == PolicyStep::none ? story->doing_since : event.ticks;
  deal_with(*story, event.ticks);
  auto const why = static_cast<HookSkip>(event.words[6]);
  add_turn(*story, {.name = name_of_(event.hook()),
                    .result = why == HookSkip::elsewhere ? HookResult::elsewhere
                              : why == HookSkip::busy    ? HookResult::skipped_busy
                                                         : HookResult::skipped_large,
                    .begin_ticks = waited_since,
                    .shortfall = event.words[2],
                    .duration_ns = event.duration_ns(),
                    .overhead = event.words[3]});
}

/// Noticed by whichever thread: it names the one that runs the hook, and when that began.
void Stories::hook_overran(Event const& event) {
  auto* const thread = known_thread(static_cast<std::uint32_t>(event.words[6]));
  if (thread == nullptr) return;
  for (auto const number : thread->open) {
    auto* const story = find(number);
    auto* const turn = story == nullptr ? nullptr : running(*story);
    if (turn == nullptr || turn->begin_ticks != event.words[4]) continue;
    turn->overran = true;
    turn->limit_ns = event.words[2];
    turn->duration_ns = event.words[3];
    return;
  }
}

// ── policy ──

void Stories::policy_acted(Event const& event) {
  auto const step = event.policy_step();
  auto* thread = known_thread(event.thread());
  auto* story = thread == nullptr ? nullptr : dealing(*thread, event, names_its_request(step) ? event.words[4] : 0);
  if (story == nullptr) {
    if (!names_its_request(step)) return;
    thread = &thread_of(event);
    story = &begin(*thread, event);
    story->requested = event.words[4];
    story->tag = name_of_(event.tag());
    story->incomplete = true;
  }
  if (step != PolicyStep::recovered) end_callbacks_around(*thread, *story);
  deal_with(*story, event.ticks);
  // Its first record was lost, but what it was refused for stands here too.
  if (!story->kind) {
    story->kind = event.error_kind();
    story->layer = event.error_layer();
  }
  if (step == PolicyStep::begun) {
    story->doing = event.policy_begins();
    story->doing_since = event.ticks;
    return;
  }
  if (story->policy.size() < kMostTurns) {
    story->policy.push_back({.step = step,
                             .policy = event.policy_kind(),
                             .ticks = event.ticks,
                             .duration_ns = event.words[3],
                             .bytes = event.words[4]});
    ++parts_;
  }
  if (step != PolicyStep::recovered && step != PolicyStep::gave_up) return;
  story->end = step == PolicyStep::recovered ? FailureEnd::recovered : FailureEnd::gave_up;
  std::erase(thread->open, story->number);
}

}  // namespace headroom::follow
