#include "follow/stories.hpp"

#include <algorithm>
#include <utility>

namespace headroom::follow {
namespace {

using flight::Event;
using flight::EventKind;
using flight::HookEnd;
using flight::HookEndTail;
using flight::PolicyStep;
using flight::RefusalTail;

constexpr std::size_t kMostNested = 8;
constexpr std::size_t kMostThreads = 4096;  // whose end was not told
constexpr std::size_t kMostTurns = 256;     // of hooks or policy in one story: a hostile file cannot ask for more

bool is_second_half(Event const& event) noexcept { return (event.flags() & flight::kFlagContinues) != 0; }

bool names_its_request(PolicyStep step) noexcept {
  return step != PolicyStep::retried && step != PolicyStep::reservation_given && step != PolicyStep::none;
}

HookTurnStory* running(FailureStory& story) noexcept {
  auto const found = std::ranges::find(story.hooks, HookResult::running, &HookTurnStory::result);
  return found == story.hooks.end() ? nullptr : &*found;
}

void dealt_with(FailureStory& story, std::uint64_t ticks) noexcept {
  story.end_ticks = std::max(story.end_ticks, ticks);
  if (story.end == FailureEnd::failed) story.end = FailureEnd::under_way;
}

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

void Stories::add(Event const& event) {
  switch (event.kind) {
    case EventKind::refusal:
    case EventKind::observed: return refused(event);
    case EventKind::hook_begin: return hook_began(event);
    case EventKind::hook_end: return hook_ended(event);
    case EventKind::hook_skip: return hook_skipped(event);
    case EventKind::policy: return policy_acted(event);
    case EventKind::thread_detach: threads_.erase(event.thread()); return;
    default: return;
  }
}

void Stories::add(FailureStory story) {
  story.number = ++told_;
  stories_.push_back(std::move(story));
  if (stories_.size() <= most_) return;
  stories_.pop_front();
  ++forgotten_;
}

FailureStory* Stories::find(std::uint64_t number) noexcept {
  if (stories_.empty() || number < stories_.front().number || number > stories_.back().number) return nullptr;
  return &stories_[number - stories_.front().number];
}

FailureStory& Stories::begin(Thread& thread, Event const& event) {
  FailureStory story;
  story.ticks = story.end_ticks = event.ticks;
  story.ledger = event.ledger();
  story.thread = event.thread();
  for (auto const number : thread.open) {
    auto* const outer = find(number);
    if (outer != nullptr && running(*outer) != nullptr) story.inside_hook = true;
  }
  add(std::move(story));
  if (thread.open.size() == kMostNested) thread.open.erase(thread.open.begin());
  thread.open.push_back(told_);
  return stories_.back();
}

/// The innermost story of that size. 0: of any. What lies further in was over before.
FailureStory* Stories::innermost(Thread& thread, std::uint64_t requested) {
  for (auto i = thread.open.size(); i-- > 0;) {
    auto* const story = find(thread.open[i]);
    if (story == nullptr || (requested != 0 && story->requested != requested)) continue;
    for (auto inner = i + 1; inner < thread.open.size(); ++inner) {
      if (auto* const over = find(thread.open[inner]); over != nullptr) over->inside_hook = true;
    }
    thread.open.resize(i + 1);
    return story;
  }
  return nullptr;
}

void Stories::end(Thread& thread, std::uint64_t number) { std::erase(thread.open, number); }

void Stories::refused(Event const& event) {
  if (threads_.size() >= kMostThreads) threads_.clear();
  auto& thread = threads_[event.thread()];
  if (is_second_half(event)) {
    auto* const story = find(std::exchange(thread.last_head, 0));
    if (story == nullptr) return;  // of a first half that was lost: it names nobody
    story->claimed = event.words[RefusalTail::kClaimed] & flight::kBytesMask;
    auto const limit = event.words[RefusalTail::kLimit];
    if ((limit & flight::kLimitNone) == 0) story->limit = limit & flight::kBytesMask;
    story->enforcing = (limit & flight::kLimitEnforcing) != 0;
    story->peak = event.words[RefusalTail::kPeak] & flight::kBytesMask;
    story->unspent = event.words[RefusalTail::kUnspent];
    if (auto const device_free = event.words[RefusalTail::kDeviceFree]; device_free != 0) story->device_free = device_free - 1;
    story->device_code = static_cast<std::int32_t>(event.words[RefusalTail::kCode] >> 32U);
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
  if (event.kind == EventKind::observed) {
    story.end = FailureEnd::observed;
    end(thread, story.number);
  }
}

void Stories::hook_began(Event const& event) {
  auto& thread = threads_[event.thread()];
  auto* story = innermost(thread, event.words[6]);
  if (story == nullptr) {  // its refusal was lost
    story = &begin(thread, event);
    story->requested = event.words[6];
  }
  dealt_with(*story, event.ticks);
  if (story->hooks.size() >= kMostTurns) return;
  story->hooks.push_back({.name = name_of_(event.hook()),
                          .result = HookResult::running,
                          .begin_ticks = event.ticks,
                          .shortfall = event.words[2],
                          .estimate = event.words[3]});
}

void Stories::hook_ended(Event const& event) {
  auto& thread = threads_[event.thread()];
  if (is_second_half(event)) {
    auto* const story = find(std::exchange(thread.last_hook_story, 0));
    if (story == nullptr) return;
    auto& turn = story->hooks[thread.last_hook_turn];
    turn.ledger_fell = static_cast<std::int64_t>(event.words[HookEndTail::kLedgerFell]);
    turn.estimate = event.words[HookEndTail::kEstimate];
    turn.shortfall = event.words[HookEndTail::kShortfall];
    return;
  }
  for (auto i = thread.open.size(); i-- > 0;) {
    auto* const story = find(thread.open[i]);
    auto* const turn = story == nullptr ? nullptr : running(*story);
    if (turn == nullptr) continue;
    // Hooks do not nest on a thread: the one that runs is the one that ended.
    turn->result = event.hook_threw() ? HookResult::threw : HookResult::ran;
    turn->overran = event.hook_overran();
    turn->reported = event.words[HookEnd::kReported];
    turn->duration_ns = event.words[HookEnd::kNs];
    turn->freed = event.words[HookEnd::kFreed];
    dealt_with(*story, event.ticks);
    thread.last_hook_story = story->number;
    thread.last_hook_turn = static_cast<std::size_t>(turn - story->hooks.data());
    for (auto inner = i + 1; inner < thread.open.size(); ++inner) {
      if (auto* const over = find(thread.open[inner]); over != nullptr) over->inside_hook = true;
    }
    thread.open.resize(i + 1);
    return;
  }
}

void Stories::hook_skipped(Event const& event) {
  auto& thread = threads_[event.thread()];
  auto* const story = innermost(thread, 0);
  if (story == nullptr || story->hooks.size() >= kMostTurns) return;
  dealt_with(*story, event.ticks);
  auto const is_busy = event.words[6] == static_cast<std::uint64_t>(flight::HookSkip::busy);
  story->hooks.push_back({.name = name_of_(event.hook()),
                          .result = is_busy ? HookResult::skipped_busy : HookResult::skipped_large,
                          .begin_ticks = event.ticks,
                          .shortfall = event.words[2],
                          .overhead = event.words[3]});
}

void Stories::policy_acted(Event const& event) {
  auto& thread = threads_[event.thread()];
  auto const step = event.policy_step();
  auto* story = innermost(thread, names_its_request(step) ? event.words[4] : 0);
  if (story == nullptr) {
    if (!names_its_request(step)) return;
    story = &begin(thread, event);
    story->requested = event.words[4];
    story->tag = name_of_(event.tag());
  }
  dealt_with(*story, event.ticks);
  if (story->policy.size() < kMostTurns) {
    story->policy.push_back({.step = step,
                             .policy = event.policy_kind(),
                             .ticks = event.ticks,
                             .duration_ns = event.words[3],
                             .bytes = event.words[4]});
  }
  if (step != PolicyStep::recovered && step != PolicyStep::gave_up) return;
  story->end = step == PolicyStep::recovered ? FailureEnd::recovered : FailureEnd::gave_up;
  // Its first record was lost, but what it was refused for stands here too.
  if (!story->kind) {
    story->kind = event.error_kind();
    story->layer = event.error_layer();
  }
  end(thread, story->number);
}

}  // namespace headroom::follow
