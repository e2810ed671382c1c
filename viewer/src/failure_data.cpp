#include "failure_data.hpp"

#include <algorithm>
#include <utility>

namespace headroom::viewer {
namespace {

using follow::FailureStory;
using follow::HookResult;

std::string result_of(follow::HookTurnStory const& turn) {
  std::string text;
  switch (turn.result) {
    case HookResult::ran: text = "ran"; break;
    case HookResult::threw: text = "threw an exception"; break;
    case HookResult::skipped_large: text = "passed over: needs too much itself"; break;
    case HookResult::skipped_busy: text = "passed over: busy on another thread"; break;
    case HookResult::running: text = "no end recorded"; break;
    case HookResult::elsewhere: text = "ran on another thread"; break;
  }
  return turn.overran ? text + ", longer than its limit" : text;
}

FailureAct act_of(follow::HookTurnStory const& turn) {
  auto const has_run = turn.result == HookResult::ran || turn.result == HookResult::threw;
  FailureAct act{.name = turn.name, .result = result_of(turn), .is_hook = true};
  act.is_bad = turn.overran || turn.result == HookResult::threw || (has_run && turn.freed < turn.reported);
  act.duration_ns = turn.duration_ns;
  act.limit_ns = turn.limit_ns;
  if (!has_run) return act;
  act.estimate = turn.estimate;
  act.reported = turn.reported;
  act.freed = turn.freed;
  if (turn.limit_ns != 0) act.ledger_fell = turn.ledger_fell;  // the record that tells the fall tells the limit too
  return act;
}

/// What the layer that said no would have needed more.
std::optional<std::uint64_t> missing_of(FailureStory const& story) {
  if (story.kind == ErrorKind::device_out_of_memory && story.device_free) {
    return story.requested - std::min(story.requested, *story.device_free);
  }
  if (!story.claimed || !story.limit) return std::nullopt;
  auto const required = *story.claimed + story.requested;
  return required - std::min(required, *story.limit);
}

}  // namespace

FailureDetails failure_details(follow::Model const& model, FailureStory const& story) {
  FailureDetails details;
  details.story = story;
  details.words = follow::failure_in_words(story, [&model](std::uint64_t ticks) { return model.duration_ns(ticks); });
  std::vector<std::pair<std::uint64_t, FailureAct>> acts;
  acts.reserve(story.hooks.size() + story.policy.size());
  for (auto const& turn : story.hooks) acts.emplace_back(turn.begin_ticks, act_of(turn));
  for (auto const& step : story.policy) {
    auto sentence = follow::step_in_words(step);
    if (sentence.empty()) continue;
    FailureAct act{.name = std::move(sentence)};
    act.is_bad = step.step == flight::PolicyStep::checkpoint_failed;
    act.duration_ns = step.duration_ns;
    if (step.step == flight::PolicyStep::retried || step.step == flight::PolicyStep::reservation_given) act.freed = step.bytes;
    acts.emplace_back(step.ticks, std::move(act));
  }
  std::ranges::stable_sort(acts, {}, [](auto const& act) { return act.first; });
  for (auto& [ticks, act] : acts) {
    act.after_ns = model.duration_ns(ticks - std::min(ticks, story.ticks));
    details.acts.push_back(std::move(act));
  }
  details.thread = model.source().thread_id(story.thread);
  details.missing = missing_of(story);
  details.held = follow::held_at(model, story);
  details.took_ns = model.duration_ns(std::max(story.end_ticks, story.ticks) - story.ticks);
  return details;
}

std::optional<std::size_t> inspected(std::span<FailureStory const> stories, ViewState const& state) {
  if (stories.empty()) return std::nullopt;
  if (state.failure) {
    auto const found = std::ranges::find(stories, *state.failure, &FailureStory::number);
    auto const is_looked_at = found != stories.end() && (!state.cursor || *state.cursor == found->ticks);
    if (is_looked_at) return static_cast<std::size_t>(found - stories.begin());
  }
  if (!state.cursor && !state.is_paused) return stories.size() - 1;
  auto const after = std::ranges::upper_bound(stories, state.instant(), {}, &FailureStory::ticks);
  if (after == stories.begin()) return std::nullopt;
  return static_cast<std::size_t>(after - stories.begin()) - 1;
}

}  // namespace headroom::viewer
