// What is looked at, who it is about, and the request that failed.
#include "command/explanation.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <headroom/byte_size.hpp>

#include "command/output.hpp"

namespace headroom::command {
namespace {

using follow::FailureEnd;
using follow::FailureStory;

constexpr std::size_t kDay = 11;  // "2026-11-30 "

[[nodiscard]] bool failed_for_good(FailureStory const& story) noexcept {
  return story.end == FailureEnd::failed || story.end == FailureEnd::gave_up || story.end == FailureEnd::under_way;
}

/// The last request that failed for good and was not asked by a hook; else the last that was refused at all.
[[nodiscard]] std::optional<FailureStory> pick_story(std::vector<FailureStory> const& stories) {
  FailureStory const* best = nullptr;
  auto const rank = [](FailureStory const& story) { return (failed_for_good(story) ? 2 : 0) + (story.inside_hook ? 0 : 1); };
  for (auto const& story : stories) {
    if (best == nullptr || rank(story) >= rank(*best)) best = &story;
  }
  return best == nullptr ? std::nullopt : std::optional{*best};
}

[[nodiscard]] double fullness(flight::LedgerSnapshot const& ledger) noexcept {
  if (!ledger.limit || *ledger.limit == 0) return 0.0;
  return static_cast<double>(std::max(ledger.peak, ledger.claimed)) / static_cast<double>(*ledger.limit);
}

[[nodiscard]] std::string lifetime(Scene const& scene) {
  auto const& info = scene.process->info;
  if (scene.living()) return format_seconds(scene.process->age_seconds);
  // Ticks cannot be set back, as a wall clock can.
  auto const last = scene.model.last_ticks();
  auto const last_ns =
      last == 0 ? info.last_activity_realtime_ns : std::max(scene.model.realtime_ns(last), info.last_activity_realtime_ns);
  auto const ns = last_ns > info.start_realtime_ns ? last_ns - info.start_realtime_ns : 0;
  return format_seconds(static_cast<double>(ns) * 1e-9);
}

[[nodiscard]] std::string last_sign(Scene const& scene) {
  auto const last = scene.model.last_ticks();
  auto const ns = scene.living()
                      ? scene.model.realtime_ns(scene.model.source().now_ticks())
                      : std::max(last == 0 ? 0 : scene.model.realtime_ns(last), scene.process->info.last_activity_realtime_ns);
  return format_utc(ns);
}

/// "train.cpp:42" of "train.cpp:42 void step(...)".
[[nodiscard]] std::string place_of(std::string_view site) { return printable(site.substr(0, site.find(' '))); }

[[nodiscard]] std::string manager_in_prose(Scene const& scene, std::uint32_t cell) {
  auto const* const ledger = scene.model.ledger(cell);
  auto const name = ledger == nullptr || ledger->name.empty() ? std::string{} : " '" + printable(ledger->name) + "'";
  return "manager" + name;
}

/// "its budget of 8 GiB, of which 7.8 GiB were claimed: 312 MiB were missing".
[[nodiscard]] std::string who_said_no(Scene const& scene, FailureStory const& story) {
  if (!story.kind || !story.layer) return "which layer said no is not among the records that are left";
  auto const figures = [&](std::string const& whose) {
    if (!story.claimed || !story.limit) return whose + " said no";
    auto text = whose + " of " + format_bytes(*story.limit) + " said no";
    if (story.requested > *story.limit) return text + ": the request alone is larger than all of it";
    text += ": " + format_bytes(*story.claimed) + " were claimed";
    auto const required = *story.claimed + story.requested;
    if (required > *story.limit) text += ", so that " + format_bytes_exact(required - *story.limit) + " were missing";
    return text;
  };
  switch (*story.kind) {
    case ErrorKind::over_budget:
      if (*story.layer == Layer::device_account) return figures("the budget that all managers of the device share");
      return figures("the budget of its " + manager_in_prose(scene, story.ledger));
    case ErrorKind::device_out_of_memory: {
      if (!scene.process) return "the allocator that wrote this history said no, and did not say why";
      auto text = std::string{"the device itself said no"};
      if (!story.device_free) return text + ", and did not say how much it had left";
      text += ", with " + format_bytes(*story.device_free) + " free";
      if (*story.device_free >= story.requested) text += ": enough in all, but not in one piece";
      return text;
    }
    case ErrorKind::overflow: return "that is more than any size that can be kept in books";
    default: break;
  }
  auto text = "the " + std::string{to_string(*story.layer)} + " said no (" + std::string{to_string(*story.kind)};
  if (story.device_code != 0) text += ", code " + std::to_string(story.device_code);
  return text + ")";
}

void explain_first_failures(Scene const& scene, Prose& prose) {
  auto failures = scene.model.source().first_failures();
  if (failures.empty()) return;
  auto const& last = *std::ranges::max_element(failures, {}, &flight::FirstFailureInfo::last_ticks);
  auto const name = scene.model.source().name(last.tag);
  prose.say("At " + time_in_prose(scene, last.last_ticks) + " a request for " + tag_in_prose(name ? name->label : "") +
            " was refused (" + std::string{to_string(last.kind)} + " by the " + std::string{to_string(last.layer)} +
            "), but its story is no longer among the records");
  prose.say("The first of that kind asked for " + format_bytes_exact(last.requested) + " at " +
            time_in_prose(scene, last.first_ticks) + ", when " + format_bytes(last.claimed) + " were claimed; there were " +
            counted_in_words(last.count, "refusal") + " like it");
}

void explain_holders(Scene const& scene, FailureStory const& story, Prose& prose) {
  auto const then = scene.model.state_at(story.ledger, story.ticks);
  if (then.known != follow::Known::exact && !story.holders.empty()) {
    prose.say("At that moment " + holders_in_prose(story.holders, 0));
    return;
  }
  if (then.known == follow::Known::exact || then.known == follow::Known::partial) {
    if (then.allocated == 0) {
      prose.say("Nothing was live in it at that moment");
    } else if (then.tags.size() == 1 && then.unattributed_bytes == 0) {
      auto const& tag = then.tags.front();
      auto const whose = scene.process ? ", all of it " + tag_in_prose(tag.name) : std::string{};
      prose.say("At that moment " + format_bytes(then.allocated) + " were live in " +
                counted_in_words(tag.allocations, "allocation") + whose);
    } else if (auto const holders = holders_in_prose(then.tags, then.unattributed_bytes); !holders.empty()) {
      prose.say("At that moment " + holders);
    }
    return;
  }
  std::vector<follow::TagFigures> now;
  for (auto const& tag : scene.ledger->tags) {
    if (tag.bytes != 0) now.push_back({.name = tag.name, .bytes = tag.bytes, .allocations = 0});
  }
  auto const lead = std::string{"Who held what at that moment is not recorded any more"};
  prose.say(now.empty() ? lead : lead + "; " + scene.when() + ' ' + holders_in_prose(now, 0));
}

}  // namespace

Scene make_scene(follow::Model const& model, std::string path, std::optional<ProcessFigures> process) {
  Scene scene{.model = model,
              .path = std::move(path),
              .process = std::move(process),
              .ledger = nullptr,
              .stories = model.failures(),
              .story = {}};
  std::erase_if(scene.stories, [](FailureStory const& story) { return story.end == FailureEnd::observed; });
  scene.story = pick_story(scene.stories);
  if (scene.story) scene.ledger = model.ledger(scene.story->ledger);
  if (scene.ledger != nullptr) return scene;
  for (auto const& ledger : model.ledgers()) {
    if (ledger.is_device_account) continue;
    auto const is_better = scene.ledger == nullptr || fullness(ledger) > fullness(*scene.ledger) ||
                           (fullness(ledger) == fullness(*scene.ledger) && ledger.peak > scene.ledger->peak);
    if (is_better) scene.ledger = &ledger;
  }
  return scene;
}

std::string time_in_prose(Scene const& scene, std::uint64_t ticks) {
  if (!scene.process) return format_seconds(static_cast<double>(scene.model.monotonic_ns(ticks)) * 1e-9) + " into the history";
  // The day goes without saying where it is the day of the last sign of life.
  auto const text = format_utc(scene.model.realtime_ns(ticks));
  auto const last = last_sign(scene);
  return text.size() > kDay && text.substr(0, kDay) == last.substr(0, kDay) ? text.substr(kDay) : text;
}

std::string holders_in_prose(std::vector<follow::TagFigures> const& tags, std::uint64_t unattributed) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(tags.size(), kMost); ++i) {
    auto part = tag_in_prose(tags[i].name) + (i == 0 ? " held " : " ") + format_bytes(tags[i].bytes);
    if (tags[i].allocations != 0) {
      part += " in " + (i == 0 ? counted_in_words(tags[i].allocations, "allocation") : format_count(tags[i].allocations));
    }
    parts.push_back(std::move(part));
  }
  if (tags.size() > kMost) {
    std::uint64_t rest = 0;
    for (std::size_t i = kMost; i < tags.size(); ++i) rest += tags[i].bytes;
    parts.push_back(counted_in_words(tags.size() - kMost, "other tag") + ' ' + format_bytes(rest));
  }
  auto text = listed(parts);
  if (unattributed != 0) {
    text += text.empty() ? "" : "; ";
    text += "who held the other " + format_bytes(unattributed) + " is not recorded any more";
    if (parts.empty()) text = "who held these " + format_bytes(unattributed) + " is not recorded any more";
  }
  return text;
}

void explain_who(Scene const& scene, Prose& prose) {
  if (!scene.process) {
    auto const last = scene.model.last_ticks();
    auto const seconds = last == 0 ? 0.0 : static_cast<double>(scene.model.monotonic_ns(last)) * 1e-9;
    prose.say(printable(scene.path) + " is a recorded history of " + format_count(scene.model.losses().events_read) +
              " records over " + format_seconds(seconds) + "; no budget was in force");
    return;
  }
  auto const& info = scene.process->info;
  auto const program = printable(info.program) + " (process " + std::to_string(info.pid) + ")";
  if (scene.living()) {
    prose.say(program + " on " + printable(info.host) + " is alive, for " + lifetime(scene) + " now");
  } else if (scene.process->state == "living") {
    prose.say(program + " on " + printable(info.host) + " was alive when this was written, at " + last_sign(scene) + ", " +
              lifetime(scene) + " into its life");
  } else if (scene.process->state == "exited") {
    prose.say(program + " on " + printable(info.host) + " ended in good order after " + lifetime(scene) + ", at " +
              last_sign(scene));
  } else if (scene.process->state == "killed") {
    prose.say(program + " on " + printable(info.host) + " was killed, or crashed; nothing was heard of it after " +
              last_sign(scene) + ", " + lifetime(scene) + " into its life");
  } else {
    prose.say(program + " on " + printable(info.host) + ": nobody can tell from here whether it is still alive; it ran for " +
              lifetime(scene) + " that we know of");
  }
  if (scene.ledger == nullptr) prose.say("It has made no manager, so nothing was allocated through headroom");
  if (info.events_off) prose.say("Its events were switched off (HEADROOM_FLIGHT=off), so there are figures but no story");
}

void explain_failure(Scene const& scene, Prose& prose) {
  if (scene.ledger == nullptr) return;
  if (!scene.story) {
    if (scene.ledger->failures() != 0 || !scene.model.source().first_failures().empty()) {
      explain_first_failures(scene, prose);
      return;
    }
    prose.say(std::string{scene.living() ? "No request has been refused so far" : "No request was ever refused"});
    return;
  }
  auto const& story = *scene.story;
  auto request = "At " + time_in_prose(scene, story.ticks) + " ";
  request += story.inside_hook ? "a hook or callback, which runs when memory is short already, asked for " : "it asked for ";
  request += format_bytes_exact(story.requested);
  if (!story.tag.empty() && story.tag != "untagged") request += " for " + tag_in_prose(story.tag);
  if (!story.site.empty()) request += " (" + place_of(story.site) + ")";
  prose.say(request + ", and " + who_said_no(scene, story));

  explain_holders(scene, story, prose);
  if (story.unspent.value_or(0) != 0) {
    prose.say(format_bytes(*story.unspent) + " of what was claimed were reserved and not in use");
  }
}

}  // namespace headroom::command
