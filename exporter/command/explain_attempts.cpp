// What was done about the request: hooks, the policy's steps, and what came of it.
#include <utility>

#include <headroom/byte_size.hpp>

#include "command/explain_hooks.hpp"
#include "command/explanation.hpp"
#include "command/output.hpp"

namespace headroom::command {
namespace {

using flight::PolicyStep;
using follow::FailureEnd;
using follow::FailureStory;

[[nodiscard]] std::string step_text(follow::PolicyStory const& step) {
  switch (step.step) {
    case PolicyStep::retried:
      return step.bytes == 0 ? "it looked for pending frees and caches, of which nothing came back, and tried once more"
                             : "it got " + format_bytes(step.bytes) + " back from pending frees and caches, and tried once more";
    case PolicyStep::waited: return "it waited for room" + time_taken(step.duration_ns);
    case PolicyStep::reservation_given: return "the guard gave up its reservation of " + format_bytes(step.bytes);
    case PolicyStep::checkpoint: return "the checkpoint callback ran" + time_taken(step.duration_ns);
    case PolicyStep::checkpoint_shared: return "a run of the checkpoint callback for another thread's failure stood for this one";
    case PolicyStep::checkpoint_failed: return "the checkpoint callback threw an exception" + time_taken(step.duration_ns);
    case PolicyStep::none:
    case PolicyStep::recovered:
    case PolicyStep::gave_up:
    case PolicyStep::begun: break;
  }
  return {};
}

/// The steps of its policy, and what a later try met.
[[nodiscard]] std::string steps_text(FailureStory const& story) {
  constexpr std::size_t kMost = 4;
  std::vector<std::string> steps;
  for (auto const& step : story.policy) {
    if (auto text = step_text(step); !text.empty()) steps.push_back(std::move(text));
  }
  if (steps.size() > kMost) {
    auto const more = steps.size() - kMost;
    steps.resize(kMost);
    steps.push_back(counted_in_words(more, "step") + " more followed");
  }
  if (story.later_kind) {
    auto by = story.later_layer ? " by the " + std::string{to_string(*story.later_layer)} : std::string{};
    if (story.later_code != 0) by += ", code " + std::to_string(story.later_code);
    steps.push_back("a later try failed for another reason (" + std::string{to_string(*story.later_kind)} + by + ')');
  }
  return listed(steps);
}

/// "it has been waiting for room in the budget": what has begun and not ended.
[[nodiscard]] std::string doing_text(PolicyStep step, std::string const& is) {
  switch (step) {
    case PolicyStep::waited: return "it " + is + " waiting for room in the budget";
    case PolicyStep::checkpoint: return "the checkpoint callback " + is + " running, for it or for another thread's failure,";
    default: return "it " + is + " waiting for another thread's run of a hook";
  }
}

[[nodiscard]] std::string unknown_end(Scene const& scene, FailureStory const& story) {
  if (story.incomplete) return "what became of the request is not known, for records of its thread are missing";
  auto const when = scene.living()                ? std::string{}
                    : scene.is_record_of_living() ? std::string{"when this was written "}
                                                  : std::string{"when the program ended "};
  if (story.doing) {
    auto const is = scene.living() ? std::string{"has been"} : std::string{"had been"};
    auto const since = story.doing_since == 0 ? story.ticks : story.doing_since;
    return when + doing_text(*story.doing, is) + " since " + time_in_prose(scene, since);
  }
  if (scene.living() || scene.is_record_of_living())
    return when + "the request " + (scene.living() ? "is" : "was") + " still being dealt with";
  return "what became of the request is not recorded, for the program ended in the middle of it";
}

/// ", 3.2 s after it was refused": of what took long enough to be told.
[[nodiscard]] std::string how_long_after(Scene const& scene, FailureStory const& story) {
  auto const took = story.end_ticks > story.ticks ? scene.model.duration_ns(story.end_ticks - story.ticks) : 0;
  return took < kWorthTellingNs ? "" : ", " + format_seconds(static_cast<double>(took) * 1e-9) + " after it was refused";
}

[[nodiscard]] std::string end_text(Scene const& scene, FailureStory const& story, std::string const& hooks) {
  auto const steps = steps_text(story);
  auto const then = steps.empty() ? std::string{} : (hooks.empty() ? "after that " : "then ") + steps;
  auto const after = how_long_after(scene, story);
  switch (story.end) {
    case FailureEnd::recovered:
      return then.empty() ? "in the end the request was granted" + after : then + ", and the request was granted" + after;
    case FailureEnd::gave_up:
      if (!then.empty()) return then + ", but the request failed for good" + after;
      return (story.hooks.empty() ? "the request failed for good" : "that was not enough: the request failed for good") + after;
    case FailureEnd::under_way: return then.empty() ? unknown_end(scene, story) : then + "; " + unknown_end(scene, story);
    case FailureEnd::failed:
      if (!scene.process) return "";
      return "nothing else was tried: the request failed at once";
    case FailureEnd::observed: break;
  }
  return "";
}

}  // namespace

void explain_attempts(Scene const& scene, Prose& prose) {
  if (!scene.story) return;
  auto const& story = *scene.story;
  auto const hooks = hooks_in_prose(scene, story);
  auto const end = end_text(scene, story, hooks);
  if (story.hooks.empty() && !hooks.empty() && !end.empty()) {
    prose.say(capitalised(hooks) + (story.end == FailureEnd::failed ? ", and " : "; ") + end);
    return;
  }
  prose.say(capitalised(hooks));
  prose.say(capitalised(end));
}

}  // namespace headroom::command
