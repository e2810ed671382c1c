// What else is known: other failures, the peak, what has been alive for long, and what the records cannot tell.
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <headroom/byte_size.hpp>

#include "command/explanation.hpp"
#include "command/output.hpp"

namespace headroom::command {
namespace {

constexpr std::uint64_t kShortRunNs = 10'000'000'000;  // of which "for half of its life" would mean nothing

/// "it" where there is but one manager.
[[nodiscard]] std::string subject(Scene const& scene) {
  auto const managers = std::ranges::count_if(
      scene.model.ledgers(), [](flight::LedgerSnapshot const& ledger) { return !ledger.is_device_account && ledger.peak != 0; });
  return managers > 1 ? manager_in_prose(scene.ledger->name) : "it";
}

/// "; the first, at 03:12:45 UTC, was of 100 MiB"; or that it was the one that is told already.
[[nodiscard]] std::string first_refusal_text(Scene const& scene) {
  auto const failures = scene.model.source().first_failures();
  std::optional<std::uint64_t> ticks;
  std::uint64_t requested = 0;
  if (!failures.empty()) {
    auto const& first = *std::ranges::min_element(failures, {}, &flight::FirstFailureInfo::first_ticks);
    ticks = first.first_ticks;
    requested = first.requested;
  } else if (!scene.stories.empty() && scene.model.losses().forgotten_failures == 0 && !scene.process) {
    ticks = scene.stories.front().ticks;
    requested = scene.stories.front().requested;
  }
  if (!ticks) return "";
  if (scene.story && *ticks == scene.story->ticks && requested == scene.story->requested) return "; this was the first";
  return "; the first, " + moment_in_prose(scene, *ticks) + ", was of " + format_bytes_exact(requested);
}

void explain_other_failures(Scene const& scene, Prose& prose) {
  if (!scene.story) return;
  auto const count = refusals(scene);
  if (count < 2) return;
  std::uint64_t recovered = 0;
  for (auto const& ledger : scene.model.ledgers()) {
    recovered = std::accumulate(ledger.guard.recoveries.begin(), ledger.guard.recoveries.end(), recovered);
  }
  auto const often = count == 2 ? std::string{"twice"} : number_in_words(count) + " times";
  auto text = scene.process ? "It was refused " + often + " in all"
                            : "The history has " + counted_in_words(count, "failed request") + " in all";
  text += first_refusal_text(scene);
  if (recovered >= count) {
    text += "; every one of these requests went through after all";
  } else if (recovered != 0) {
    text += "; " + number_in_words(recovered) + " of these requests went through after all";
  }
  prose.say(std::move(text));
}

/// ", 99 % of its budget of 5 GiB": of the budget of that moment, which need not be the present one.
[[nodiscard]] std::string share_of_budget(Scene const& scene, follow::PeakAnswer const& peak) {
  auto const& now = scene.ledger->limit;
  auto limit = now;
  if (peak.ticks && scene.model.losses().events_read != 0) {
    auto const then = scene.model.state_at(scene.ledger->cell, *peak.ticks);
    if (!then.limit_known) return "";
    limit = then.limit;
  }
  if (!limit || *limit == 0) return "";
  auto const is_as_now = limit == now && peak.ticks.has_value();
  auto const* const whose = is_as_now    ? " of its budget of "
                            : peak.ticks ? " of its budget of then, "
                                         : " of the budget that it had last, ";
  return ", " + percent(peak.bytes, *limit) + whose + format_bytes(*limit);
}

[[nodiscard]] bool is_same(std::vector<follow::TagFigures> const& a, std::vector<follow::TagFigures> const& b) {
  return std::ranges::equal(a, b, [](follow::TagFigures const& one, follow::TagFigures const& other) {
    return one.name == other.name && one.bytes == other.bytes;
  });
}

void explain_peak(Scene const& scene, Prose& prose) {
  auto const peak = scene.model.peak(scene.ledger->cell);
  if (peak.bytes == 0) {
    if (!scene.story) prose.say("Nothing was allocated");
    return;
  }
  auto const was_set_back = std::ranges::any_of(scene.stories, [&](follow::FailureStory const& story) {
    return story.ledger == scene.ledger->cell && allocated_at_failure(story) > peak.bytes;
  });
  auto text = "The most that " + subject(scene) + " held" + (was_set_back ? " since its peak was last set back" : "") + " was " +
              format_bytes(peak.bytes) + share_of_budget(scene, peak);
  auto const is_of_story = scene.story && scene.story->ledger == scene.ledger->cell;
  if (peak.ticks) {
    auto const time = moment_in_prose(scene, *peak.ticks);
    text += is_of_story && scene.process && time == moment_in_prose(scene, scene.story->ticks) ? ", in that same second"
                                                                                               : ", " + time;
  }
  auto const told = is_of_story ? held_at_failure(scene) : std::nullopt;
  if (told && is_same(told->tags, peak.tags) && told->unattributed_bytes == peak.unattributed_bytes) {
    if (scene.process) text += " and by the same tags";
  } else if (is_of_story && !told && allocated_at_failure(*scene.story) == peak.bytes) {
    // Said already, in place of what is not recorded.
  } else if (auto const holders = holders_in_prose(peak.tags, peak.unattributed_bytes); !holders.empty() && scene.process) {
    text += "; " + holders + " then";
  }
  prose.say(std::move(text));
}

/// What is older than half of the run, by the live table: it knows the age of each block, whatever became of the records.
void explain_old_blocks(Scene const& scene, Prose& prose) {
  auto const life = lifetime_ns(scene);
  if (life == 0 || (scene.process && life < kShortRunNs)) return;
  auto const middle = (scene.process ? scene.process->info.start_realtime_ns : scene.model.realtime_ns(0)) + life / 2;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> groups;  // bytes by tag and site
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  scene.model.source().for_each_live([&](flight::LiveAllocation const& live) {
    auto const is_old = live.ticks != 0 && scene.model.realtime_ns(live.ticks) < middle;
    if (live.ledger != scene.ledger->cell || live.state != flight::SlotState::live || !is_old) return;
    groups[{live.tag, live.site}] += live.bytes;
    bytes += live.bytes;
    ++blocks;
  });
  auto const allocated = scene.ledger->allocated;
  if (blocks == 0 || bytes * 10 < allocated) return;
  auto text = capitalised(scene.when()) + ' ' + format_bytes(allocated) + (scene.living() ? " are live" : " were live");
  text += bytes >= allocated ? ", all in " : ", and " + format_bytes(bytes) + " of that in ";
  text += counted_in_words(blocks, "allocation") + " that " + (scene.living() ? blocks == 1 ? "has" : "have" : "had") +
          " been there for more than half of " + (scene.process ? "its life" : "the history");
  if (scene.process) {
    auto const& [tag_and_site, most] = *std::ranges::max_element(groups, {}, [](auto const& group) { return group.second; });
    auto const tag = scene.model.source().name(tag_and_site.first);
    auto const site = scene.model.source().name(tag_and_site.second);
    text += most == bytes ? ", for " : ", most of it for ";
    text += tag_in_prose(tag ? tag->label : "");
    if (site && !site->label.empty()) text += " (" + place_of(site->label) + ')';
  }
  prose.say(text + ": a leak, unless it is meant to stay, as weights are");
}

[[nodiscard]] std::string lost_text(Scene const& scene, follow::Losses const& losses) {
  auto text = "Of " + format_count(losses.events_read + losses.events_lost) + " records " + format_count(losses.events_lost) +
              (losses.events_lost == 1 ? " was" : " were") + " overwritten before I could read " +
              (losses.events_lost == 1 ? "it" : "them");
  if (losses.events_lost == 0) text = format_count(losses.events_refused) + " records could never be written";
  if (losses.events_lost != 0 && losses.events_refused != 0)
    text += ", and " + format_count(losses.events_refused) + " could never be written";
  text += "; totals, budget and peak come from the books and are right all the same";
  return refusals(scene) > scene.stories.size() ? text + ", but some stories of failures are gone" : text;
}

void explain_losses(Scene const& scene, Prose& prose) {
  if (!scene.process) return;
  auto const losses = scene.model.losses();
  if (scene.is_record() && losses.events_read == 0 && scene.process->info.events_recorded != 0) {
    prose.say("This file was written without events: figures, books and the last failure are all that it tells");
    return;
  }
  if (scene.is_record() && !scene.model.source().live_is_whole()) {
    prose.say(
        "This file does not have everything: it was cut off, or lists only the largest blocks, so who held what before may be "
        "missing");
    return;
  }
  if (losses.events_lost + losses.events_refused != 0) {
    prose.say(lost_text(scene, losses));
  } else if (losses.operations_missing + losses.gaps + losses.unmatched_frees != 0) {
    prose.say("No record is missing, but not all of them fit together, so who held what before is known in part");
  } else if (losses.forgotten_operations + losses.forgotten_failures != 0) {
    prose.say("No record is missing, but only the newest are kept while they are read, so the story begins at " +
              time_in_prose(scene, scene.model.first_ticks()));
  } else if (losses.events_read != 0) {
    prose.say("No record is missing, so all of this is exact");
  }
}

}  // namespace

namespace {

/// Frees that were refused: what the manager caught before it reached the driver.
void explain_misuses(Scene const& scene, Prose& prose) {
  std::vector<std::string> kinds;
  std::uint64_t all = 0;
  for (std::size_t kind = 0; kind < scene.ledger->free_failures.size(); ++kind) {
    auto const count = scene.ledger->free_failures[kind];
    if (static_cast<ErrorKind>(kind) == ErrorKind::driver) continue;  // blocks that could not be freed: told already
    all += count;
    if (count != 0) kinds.push_back(format_count(count) + ' ' + std::string{to_string(static_cast<ErrorKind>(kind))});
  }
  if (all != 0)
    prose.say(capitalised(counted_in_words(all, "free")) + (all == 1 ? " was" : " were") + " refused: " + listed(kinds));
}

}  // namespace

void explain_surroundings(Scene const& scene, Prose& prose) {
  if (scene.ledger == nullptr) return;
  explain_other_failures(scene, prose);
  explain_peak(scene, prose);
  explain_old_blocks(scene, prose);
  if (scene.ledger->failed_frees != 0) {
    auto const is_one = scene.ledger->failed_frees == 1;
    prose.say(capitalised(counted_in_words(scene.ledger->failed_frees, "block")) + " could not be freed, and " +
              format_bytes_exact(scene.ledger->failed_free_bytes) + (is_one ? " stay charged for it" : " stay charged for them"));
  }
  explain_misuses(scene, prose);
  explain_losses(scene, prose);
}

}  // namespace headroom::command
