// A failure and what was done about it, in words.
#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include <headroom/byte_size.hpp>
#include <headroom/follow_words.hpp>

namespace headroom::follow {
namespace {

using flight::PolicyStep;

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kSecond = 1'000 * kMillisecond;
/// Less is told of nothing.
constexpr std::uint64_t kWorthTelling = 5 * kMillisecond;

std::string in_apostrophes(std::string_view name) { return "'" + std::string{name} + "'"; }

std::string time_taken(std::uint64_t nanoseconds) {
  return nanoseconds < kWorthTelling ? std::string{} : " (" + duration_in_words(nanoseconds) + ")";
}

/// "5 min 10 s": two units.
std::string two_units(std::uint64_t seconds, std::uint64_t unit, const char* large, std::uint64_t part, const char* small) {
  return std::to_string(seconds / unit) + " " + large + " " + std::to_string(seconds % unit / part) + " " + small;
}

std::string who_said_no(FailureStory const& story) {
  if (!story.kind || !story.layer) return "was refused";
  if (story.kind == ErrorKind::over_budget) {
    const std::string whose = story.layer == Layer::device_account ? "the budget of the device"
                              : story.ledger_name.empty()          ? "its budget"
                                                                   : "the budget of " + in_apostrophes(story.ledger_name);
    auto text = (story.end == FailureEnd::observed ? "went over " : "would have gone over ") + whose;
    if (story.claimed && story.limit) {
      text += ", of whose " + format_bytes(*story.limit) + " there were " + format_bytes(*story.claimed) + " claimed";
    }
    return text;
  }
  if (story.kind == ErrorKind::device_out_of_memory) {
    return "was more than the device had" +
           (story.device_free ? ", with " + format_bytes(*story.device_free) + " free" : std::string{});
  }
  return "was refused by the " + std::string{to_string(*story.layer)} + ": " + std::string{to_string(*story.kind)} +
         (story.device_code != 0 ? " (code " + std::to_string(story.device_code) + ")" : "");
}

/// "freed 50 MiB", "said that it freed 200 MiB, and really freed 50 MiB".
std::string freed_text(HookTurnStory const& turn) {
  if (turn.freed == 0 && turn.reported == 0) {
    return turn.ledger_fell > 0 ? "freed nothing on its own thread, but " +
                                      format_bytes(static_cast<std::uint64_t>(turn.ledger_fell)) + " came back meanwhile"
                                : "ran and freed nothing";
  }
  std::string text = "freed " + format_bytes(turn.freed);
  if (turn.reported != turn.freed) {
    text = "said that it freed " + format_bytes(turn.reported) +
           (turn.freed == 0 ? ", but freed nothing" : ", and really freed " + format_bytes(turn.freed));
  }
  if (turn.estimate > std::max(turn.freed, turn.reported)) text += " of the " + format_bytes(turn.estimate) + " it had expected";
  return text;
}

std::string turn_text(HookTurnStory const& turn) {
  const auto hook = "hook " + in_apostrophes(turn.name) + " ";
  const auto overran = turn.overran ? std::string{", longer than its limit"} : std::string{};
  switch (turn.result) {
    case HookResult::ran: return hook + freed_text(turn) + time_taken(turn.duration_ns) + overran;
    case HookResult::threw:
      return hook + freed_text(turn) + time_taken(turn.duration_ns) + overran + ", and ended with an exception";
    case HookResult::skipped_large:
      return hook + "was passed over: it needs " + format_bytes(turn.overhead) + " to run, which was not there";
    case HookResult::skipped_busy:
      return hook + "was busy on another thread, and was not waited for any longer" + time_taken(turn.duration_ns);
    case HookResult::elsewhere: return hook + "ran on another thread, and that run was waited for" + time_taken(turn.duration_ns);
    case HookResult::running: return hook + "began to run, and its end is not recorded" + time_taken(turn.duration_ns) + overran;
  }
  return hook + "was asked";
}

/// Hooks and steps in the order of time; at one instant hooks first, as a guard has it.
std::vector<std::string> what_was_done(FailureStory const& story) {
  std::vector<std::pair<std::uint64_t, std::string>> acts;
  acts.reserve(story.hooks.size() + story.policy.size());
  for (auto const& turn : story.hooks) acts.emplace_back(turn.begin_ticks, turn_text(turn));
  for (auto const& step : story.policy) {
    if (auto text = step_in_words(step); !text.empty()) acts.emplace_back(step.ticks, std::move(text));
  }
  std::ranges::stable_sort(acts, {}, [](auto const& act) { return act.first; });
  std::vector<std::string> texts;
  texts.reserve(acts.size());
  for (auto& [ticks, text] : acts) texts.push_back(std::move(text));
  return texts;
}

std::string doing_text(PolicyStep step) {
  switch (step) {
    case PolicyStep::waited: return "waiting for room in the budget";
    case PolicyStep::checkpoint: return "the checkpoint callback is running";
    default: return "waiting for another thread's run of a hook";
  }
}

std::string outcome_text(FailureStory const& story, std::uint64_t took) {
  const auto after = took < kWorthTelling ? std::string{} : " after " + duration_in_words(took);
  if (story.incomplete && story.end == FailureEnd::under_way) {
    return "what became of it is not known: records of its thread are missing";
  }
  switch (story.end) {
    case FailureEnd::failed: return "failed at once: nothing was tried";
    case FailureEnd::recovered: return "granted in the end" + after;
    case FailureEnd::gave_up: return "failed for good" + after;
    case FailureEnd::under_way: return story.doing ? doing_text(*story.doing) : "still being dealt with";
    case FailureEnd::observed: return "let pass: the budget only observes";
  }
  return {};
}

}  // namespace

std::string duration_in_words(std::uint64_t nanoseconds) {
  constexpr std::uint64_t kMinute = 60;
  constexpr std::uint64_t kHour = 60 * kMinute;
  constexpr std::uint64_t kDay = 24 * kHour;
  if (nanoseconds < kMillisecond) return std::to_string(nanoseconds / 1'000) + " µs";
  if (nanoseconds < kSecond) return std::to_string(nanoseconds / kMillisecond) + " ms";
  const auto seconds = nanoseconds / kSecond;
  if (seconds < kMinute) {
    std::array<char, 32> text{};
    // Tenths, cut off: what took 59.97 s took less than a minute.
    (void)std::snprintf(text.data(), text.size(), "%llu.%llu s", static_cast<unsigned long long>(seconds),
                        static_cast<unsigned long long>(nanoseconds % kSecond / (100 * kMillisecond)));
    return text.data();
  }
  if (seconds < kHour) return two_units(seconds, kMinute, "min", 1, "s");
  return seconds < kDay ? two_units(seconds, kHour, "h", kMinute, "min") : two_units(seconds, kDay, "d", kHour, "h");
}

std::string step_in_words(PolicyStory const& step) {
  switch (step.step) {
    case PolicyStep::retried:
      return step.bytes == 0 ? "pending frees and caches were looked for, of which nothing came back, and it was tried again"
                             : format_bytes(step.bytes) + " came back from pending frees and caches, and it was tried again";
    case PolicyStep::waited: return "it waited for room" + time_taken(step.duration_ns);
    case PolicyStep::reservation_given: return "the guard gave up its reservation of " + format_bytes(step.bytes);
    case PolicyStep::checkpoint: return "the checkpoint callback ran" + time_taken(step.duration_ns);
    case PolicyStep::checkpoint_shared: return "the checkpoint callback ran once for this and another thread's failure";
    case PolicyStep::checkpoint_failed: return "the checkpoint callback threw an exception" + time_taken(step.duration_ns);
    case PolicyStep::none:
    case PolicyStep::recovered:
    case PolicyStep::gave_up:
    case PolicyStep::begun: break;
  }
  return {};
}

FailureWords failure_in_words(FailureStory const& story, std::function<std::uint64_t(std::uint64_t)> const& duration_ns) {
  FailureWords words;
  words.what = format_bytes(story.requested);
  if (!story.tag.empty()) words.what += " for " + in_apostrophes(story.tag);
  if (story.inside_hook) words.what += ", asked by a hook or callback,";
  words.what += " " + who_said_no(story);
  words.done = what_was_done(story);
  if (story.later_kind) {
    words.done.push_back("a later try met something else: " + std::string{to_string(*story.later_kind)} +
                         (story.later_code != 0 ? " (code " + std::to_string(story.later_code) + ")" : ""));
  }
  words.outcome = outcome_text(story, story.end_ticks > story.ticks ? duration_ns(story.end_ticks - story.ticks) : 0);
  return words;
}

}  // namespace headroom::follow
