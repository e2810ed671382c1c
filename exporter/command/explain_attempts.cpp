// What was done about the request: hooks with what they promised and what they did, the policy's steps, and what came of it.
#include <algorithm>
#include <utility>

#include <headroom/byte_size.hpp>

#include "command/explanation.hpp"
#include "command/output.hpp"

namespace headroom::command {
namespace {

using flight::PolicyStep;
using follow::FailureEnd;
using follow::FailureStory;
using follow::HookResult;

[[nodiscard]] std::string duration_text(std::uint64_t ns) {
  if (ns < 1'000'000) return "less than a millisecond";
  return format_seconds(static_cast<double>(ns) * 1e-9);
}

/// All turns of one hook for one request.
struct HookSum {
  std::string name;
  std::uint64_t runs = 0, throws = 0, large = 0, busy = 0, running = 0;
  std::uint64_t estimate = 0, reported = 0, freed = 0, ns = 0, overhead = 0;
  std::int64_t fell = 0;
  bool overran = false;
};

[[nodiscard]] std::vector<HookSum> sum_up(FailureStory const& story) {
  std::vector<HookSum> sums;
  for (auto const& turn : story.hooks) {
    auto found = std::ranges::find(sums, turn.name, &HookSum::name);
    if (found == sums.end()) {
      sums.push_back({});
      found = std::prev(sums.end());
      found->name = turn.name;
    }
    switch (turn.result) {
      case HookResult::ran: ++found->runs; break;
      case HookResult::threw:
        ++found->runs;
        ++found->throws;
        break;
      case HookResult::skipped_large: ++found->large; break;
      case HookResult::skipped_busy: ++found->busy; break;
      case HookResult::running: ++found->running; break;
    }
    found->estimate += turn.estimate;
    found->reported += turn.reported;
    found->freed += turn.freed;
    found->ns += turn.duration_ns;
    found->fell += turn.ledger_fell;
    found->overhead = std::max(found->overhead, turn.overhead);
    found->overran = found->overran || turn.overran;
  }
  return sums;
}

[[nodiscard]] std::string hook_text(Scene const& scene, HookSum const& hook) {
  auto const name = "'" + printable(hook.name) + "'";
  if (hook.running != 0) {
    return name + (scene.living() ? " is still running" : " was still running when the records end");
  }
  if (hook.runs == 0) {
    if (hook.large != 0)
      return name + " was passed over, since it needs " + format_bytes(hook.overhead) + " to run, and that was not there";
    return name + " was busy on another thread for longer than its limit, and was passed over";
  }
  std::string text;
  if (hook.freed == 0 && hook.reported == 0) {
    text = name + " ran and freed nothing";
  } else if (hook.reported == hook.freed) {
    text = name + " freed " + format_bytes_exact(hook.freed);
  } else if (hook.freed == 0) {
    text = name + " said it freed " + format_bytes(hook.reported) + ", but freed nothing";
  } else {
    text = name + " said it freed " + format_bytes(hook.reported) + ", and really freed " + format_bytes(hook.freed);
  }
  if (hook.estimate != 0 && hook.estimate != hook.freed)
    text += " of the " + format_bytes(hook.estimate) + " it had thought it could";
  text += " (" + duration_text(hook.ns) + (hook.overran ? ", longer than its limit" : "") + ")";
  if (hook.throws != 0) text += ", and ended with an exception";
  return text;
}

[[nodiscard]] std::size_t hooks_of(Scene const& scene, FailureStory const& story) {
  auto const* const ledger = scene.model.ledger(story.ledger);
  auto const hooks = scene.model.source().hooks();
  return static_cast<std::size_t>(std::ranges::count_if(hooks, [&](flight::HookSnapshot const& hook) {
    return hook.ledger_id == 0 || (ledger != nullptr && hook.ledger_id == ledger->directory_id);
  }));
}

void explain_hooks(Scene const& scene, FailureStory const& story, Prose& prose) {
  auto const sums = sum_up(story);
  if (sums.empty()) {
    if (story.inside_hook || !scene.process) return;
    auto const there = hooks_of(scene, story);
    auto const was_shortage = story.kind == ErrorKind::over_budget || story.kind == ErrorKind::device_out_of_memory;
    if (!was_shortage) return;
    if (there == 0 && scene.process->state == "exited") {
      prose.say("No hook was asked");  // whoever ends in good order takes its hooks along
    } else if (there == 0) {
      prose.say("Nothing could have made room: this manager has no hooks");
    } else {
      prose.say("Its " + counted_in_words(there, "hook") + (there == 1 ? " was" : " were") +
                " not asked: the request came through a door that asks none (safe_alloc_with_hooks does)");
    }
    return;
  }
  std::vector<std::string> parts;
  parts.reserve(sums.size());
  for (auto const& hook : sums) parts.push_back(hook_text(scene, hook));
  if (parts.size() == 1) {
    prose.say("One hook was asked: " + parts.front());
    return;
  }
  auto lead = counted_in_words(parts.size(), "hook") + " were asked";
  lead.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(lead.front())));
  std::string text = lead + ": ";
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : "; ") + parts[i];
  prose.say(text);
}

[[nodiscard]] std::string step_text(follow::PolicyStory const& step) {
  auto const time = duration_text(step.duration_ns);
  switch (step.step) {
    case PolicyStep::retried:
      return step.bytes == 0 ? "it looked for pending frees and caches, of which nothing came back, and tried once more"
                             : "it got " + format_bytes(step.bytes) + " back from pending frees and caches, and tried once more";
    case PolicyStep::waited: return "it waited " + time + " for room";
    case PolicyStep::reservation_given: return "the guard gave up its reservation of " + format_bytes(step.bytes);
    case PolicyStep::checkpoint: return "the checkpoint callback ran (" + time + ")";
    case PolicyStep::checkpoint_shared: return "a run of the checkpoint callback for another thread's failure stood for this one";
    case PolicyStep::checkpoint_failed: return "the checkpoint callback threw an exception";
    case PolicyStep::none:
    case PolicyStep::recovered:
    case PolicyStep::gave_up: break;
  }
  return {};
}

}  // namespace

void explain_attempts(Scene const& scene, Prose& prose) {
  if (!scene.story) return;
  auto const& story = *scene.story;
  explain_hooks(scene, story, prose);
  std::vector<std::string> steps;
  for (auto const& step : story.policy) {
    if (auto text = step_text(step); !text.empty()) steps.push_back(std::move(text));
  }
  if (!steps.empty()) prose.say((story.hooks.empty() ? "Then " : "After that ") + listed(steps));
  auto const took = scene.model.duration_ns(story.end_ticks - story.ticks);
  switch (story.end) {
    case FailureEnd::recovered:
      prose.say("In the end the request was granted, " + duration_text(took) + " after it was refused");
      break;
    case FailureEnd::gave_up: prose.say("It did not help: the request failed for good, " + duration_text(took) + " later"); break;
    case FailureEnd::under_way:
      prose.say(
          scene.living()
              ? "It is still being dealt with, or what became of it was not recorded"
              : "What became of the request is not recorded: the process ended in the middle of it, or the record was lost");
      break;
    case FailureEnd::failed:
      if (scene.process) prose.say("Nothing else was tried, and the request failed at once");
      break;
    case FailureEnd::observed: break;
  }
}

}  // namespace headroom::command
