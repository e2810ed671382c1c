#include "command/explain_hooks.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <headroom/byte_size.hpp>

#include "command/output.hpp"

namespace headroom::command {
namespace {

using follow::FailureEnd;
using follow::FailureStory;
using follow::HookResult;

/// "freed 50 MiB", "said that it freed 200 MiB, and really freed 50 MiB".
[[nodiscard]] std::string freed_text(HookSum const& hook) {
  auto const fell = hook.fell > 0 ? static_cast<std::uint64_t>(hook.fell) : 0;
  auto const fall = "what its manager had claimed fell by " + format_bytes(fell) + " meanwhile";
  if (hook.freed == 0 && hook.reported == 0)
    return fell == 0 ? "ran and freed nothing" : "freed nothing on its own thread, but " + fall;
  auto text = hook.reported == hook.freed ? "freed " + format_bytes_exact(hook.freed)
                                          : "said that it freed " + format_bytes(hook.reported);
  if (hook.others_freed())
    return text + "; its own thread freed " + (hook.freed == 0 ? "nothing" : format_bytes(hook.freed)) + ", but " + fall;
  if (hook.reported != hook.freed)
    text += hook.freed == 0 ? ", but freed nothing" : ", and really freed " + format_bytes(hook.freed);
  if (hook.runs == 1 && hook.estimate > std::max(hook.freed, hook.reported))
    text += " of the " + format_bytes(hook.estimate) + " that it had expected";
  if (hook.freed != 0 && hook.fall_is_known && hook.fell <= 0) text += ", but its manager had claimed no less afterwards";
  return text;
}

[[nodiscard]] std::string running_text(Scene const& scene, HookSum const& hook) {
  auto const is_seen_alive = scene.living() || scene.is_record_of_living();
  auto const text = scene.living()                ? std::string{"is still running"}
                    : scene.is_record_of_living() ? std::string{"was still running when this was written"}
                                                  : std::string{"was still running when the records end"};
  auto const now = scene.model.source().now_ticks();
  auto const since = is_seen_alive && hook.since_ticks != 0 && now > hook.since_ticks
                         ? scene.model.duration_ns(now - hook.since_ticks)
                         : hook.ns;
  return text + time_taken(since, hook.overran);
}

[[nodiscard]] std::string hook_text(Scene const& scene, HookSum const& hook) {
  auto text = "'" + printable(hook.name) + "' ";
  if (hook.running != 0) return text + running_text(scene, hook);
  if (hook.runs == 0 && hook.elsewhere != 0) {
    text += "ran on another thread meanwhile, and that run was waited for" + time_taken(hook.ns);
    return text;
  }
  if (hook.runs == 0 && hook.large != 0)
    return text + "was passed over, since it needs " + format_bytes(hook.overhead) + " to run, and that was not there";
  if (hook.runs == 0) return text + "was running on another thread, and was not waited for any longer" + time_taken(hook.ns);
  if (hook.runs > 1) text += "ran " + number_in_words(hook.runs) + " times and ";
  text += freed_text(hook) + time_taken(hook.ns, hook.overran);
  if (hook.throws != 0) text += ", and ended with an exception";
  return text;
}

[[nodiscard]] std::string with_hooks(Scene const& scene, std::vector<HookSum> const& sums) {
  constexpr std::size_t kMost = 4;
  auto text = counted_in_words(sums.size(), "hook") + (sums.size() == 1 ? " was asked: " : " were asked: ");
  for (std::size_t i = 0; i < std::min(sums.size(), kMost); ++i) text += (i == 0 ? "" : "; ") + hook_text(scene, sums[i]);
  if (sums.size() <= kMost) return text;
  std::uint64_t freed = 0;
  for (auto i = kMost; i < sums.size(); ++i) freed += sums[i].freed;
  return text + "; " + number_in_words(sums.size() - kMost) + " more freed " + format_bytes(freed);
}

/// Hooks of its manager that worked on other threads while the request was dealt with.
[[nodiscard]] std::vector<std::string> hooks_meanwhile(Scene const& scene, FailureStory const& story) {
  std::set<std::string> names;
  auto const end = story.end == FailureEnd::under_way ? scene.model.last_ticks() : story.end_ticks;
  scene.model.for_each_journal_event(story.ticks, std::max(end, story.ticks), [&](flight::Event const& event) {
    auto const is_hook = event.kind == flight::EventKind::hook_begin || event.kind == flight::EventKind::hook_end;
    if (!is_hook || event.ledger() != story.ledger || event.thread() == story.thread) return;
    if (auto const name = scene.model.source().name(event.hook())) names.insert('\'' + printable(name->label) + '\'');
  });
  return {names.begin(), names.end()};
}

[[nodiscard]] bool has_hooks(Scene const& scene, FailureStory const& story) {
  auto const* const ledger = scene.model.ledger(story.ledger);
  return std::ranges::any_of(scene.model.source().hooks(), [&](flight::HookSnapshot const& hook) {
    return hook.ledger_id == 0 || (ledger != nullptr && hook.ledger_id == ledger->directory_id);
  });
}

/// Why none ran cannot be told: which way a request came is not recorded, and hooks come and go.
[[nodiscard]] std::string without_hooks(Scene const& scene, FailureStory const& story) {
  auto const was_shortage = story.kind == ErrorKind::over_budget || story.kind == ErrorKind::device_out_of_memory;
  if (story.inside_hook || story.incomplete || !scene.process || !was_shortage) return "";
  if (auto const others = hooks_meanwhile(scene, story); !others.empty())
    return "no hook ran for it on its own thread, but " + listed(others) + " ran on another one meanwhile";
  if (story.end == FailureEnd::under_way) return "";
  // Whoever ends in good order takes its hooks along.
  auto const has_none = scene.process->state != "exited" && !has_hooks(scene, story);
  return has_none ? "no hook ran for it, for its manager has none" : "no hook ran for it";
}

}  // namespace

std::vector<HookSum> sum_up(FailureStory const& story) {
  std::vector<HookSum> sums;
  for (auto const& turn : story.hooks) {
    auto found = std::ranges::find(sums, turn.name, &HookSum::name);
    if (found == sums.end()) {
      sums.push_back({});
      found = std::prev(sums.end());
      found->name = turn.name;
    }
    auto const has_run = turn.result == HookResult::ran || turn.result == HookResult::threw;
    found->runs += has_run ? 1 : 0;
    switch (turn.result) {
      case HookResult::ran: break;
      case HookResult::threw: ++found->throws; break;
      case HookResult::skipped_large: ++found->large; break;
      case HookResult::skipped_busy: ++found->busy; break;
      case HookResult::elsewhere: ++found->elsewhere; break;
      case HookResult::running:
        ++found->running;
        found->since_ticks = turn.begin_ticks;
        break;
    }
    found->estimate += turn.estimate;
    found->reported += turn.reported;
    found->freed += turn.freed;
    found->ns += turn.duration_ns;
    found->fell += turn.ledger_fell;
    // The record that tells the fall tells the limit too, and no hook is without one.
    found->fall_is_known = found->fall_is_known && (!has_run || turn.limit_ns != 0);
    found->overhead = std::max(found->overhead, turn.overhead);
    found->overran = found->overran || turn.overran;
  }
  return sums;
}

std::string hooks_in_prose(Scene const& scene, FailureStory const& story) {
  auto const sums = sum_up(story);
  return sums.empty() ? without_hooks(scene, story) : with_hooks(scene, sums);
}

}  // namespace headroom::command
