// What else is known: other failures, the peak, what has been alive for long, what was under way, what the records cannot tell; and
// what to try.
#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

#include <headroom/byte_size.hpp>

#include "command/explanation.hpp"
#include "command/output.hpp"

namespace headroom::command {
namespace {

using follow::FailureEnd;

constexpr std::uint64_t kLongCallNs = 1'000'000'000;
constexpr std::uint64_t kShortRunNs = 10'000'000'000;  // of which "since before" would mean nothing

[[nodiscard]] std::string percent(std::uint64_t part, std::uint64_t whole) {
  // Rounded down: 100 % means full.
  auto const share = static_cast<unsigned>(static_cast<long double>(part) * 100.0L / static_cast<long double>(whole));
  return std::to_string(share) + " %";
}

void explain_other_failures(Scene const& scene, Prose& prose) {
  if (!scene.story) return;
  auto const refusals =
      std::accumulate(scene.model.ledgers().begin(), scene.model.ledgers().end(), std::uint64_t{0},
                      [](std::uint64_t sum, flight::LedgerSnapshot const& ledger) { return sum + ledger.failures(); });
  if (refusals < 2) return;
  std::uint64_t recovered = 0;
  for (auto const& ledger : scene.model.ledgers()) {
    recovered = std::accumulate(ledger.guard.recoveries.begin(), ledger.guard.recoveries.end(), recovered);
  }
  auto text = scene.process ? "It was refused " + format_count(refusals) + " times in all"
                            : "The history has " + counted_in_words(refusals, "failed request");
  if (recovered == refusals) {
    text += ", and every time the request went through after all";
  } else if (recovered != 0) {
    text += ", and in " + counted_in_words(recovered, "case") + " of these the request went through after all";
  }
  auto failures = scene.model.source().first_failures();
  if (!failures.empty()) {
    auto const& first = *std::ranges::min_element(failures, {}, &flight::FirstFailureInfo::first_ticks);
    text +=
        "; the first refusal, at " + time_in_prose(scene, first.first_ticks) + ", was of " + format_bytes_exact(first.requested);
  } else if (!scene.stories.empty() && scene.model.losses().forgotten_failures == 0) {
    text += "; the first was " + time_in_prose(scene, scene.stories.front().ticks) + ", of " +
            format_bytes_exact(scene.stories.front().requested);
  }
  prose.say(std::move(text));
}

void explain_peak(Scene const& scene, Prose& prose) {
  auto const peak = scene.model.peak(scene.ledger->cell);
  if (peak.bytes == 0) {
    if (!scene.story) prose.say("Nothing was allocated");
    return;
  }
  auto text = "The most it ever held was " + format_bytes(peak.bytes);
  if (scene.ledger->limit && *scene.ledger->limit != 0) {
    text += ", " + percent(peak.bytes, *scene.ledger->limit) + " of its budget of " + format_bytes(*scene.ledger->limit);
  }
  if (peak.ticks) text += ", at " + time_in_prose(scene, *peak.ticks);
  if (auto const holders = holders_in_prose(peak.tags, peak.unattributed_bytes); !holders.empty() && scene.process) {
    text += "; " + holders + " then";
  }
  prose.say(std::move(text));
}

/// What is older than half of the run may be a leak.
void explain_old_blocks(Scene const& scene, Prose& prose) {
  auto const last = scene.model.last_ticks();
  auto const first = scene.model.first_ticks();
  if (first == 0 || last <= first) return;
  if (scene.process && scene.model.duration_ns(last - first) < kShortRunNs) return;
  auto const since = first + (last - first) / 2;
  auto const old = scene.model.alive_since(scene.ledger->cell, since, last);
  auto const state = scene.model.state_at(scene.ledger->cell, last);
  if (old.allocations == 0 || old.bytes * 10 < state.allocated) return;
  auto const& largest = old.groups.front();
  auto text = scene.when() + ' ' + format_bytes(state.allocated) + (scene.living() ? " are live" : " were live");
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  text += ", and " + format_bytes(old.bytes) + " of that in " + counted_in_words(old.allocations, "allocation") + " " +
          (scene.living() ? "have" : "had") + " been there since before " + time_in_prose(scene, since);
  if (scene.process) {
    text += ", most of it " + tag_in_prose(largest.tag);
    if (!largest.site.empty()) text += " from " + printable(largest.site.substr(0, largest.site.find(' ')));
  }
  prose.say(text + ": a leak, unless it is meant to stay");
}

[[nodiscard]] std::string doing(flight::InFlight operation) {
  switch (operation) {
    case flight::InFlight::allocating:
    case flight::InFlight::spending: return "allocating";
    case flight::InFlight::freeing: return "freeing";
    case flight::InFlight::reserving: return "reserving";
    case flight::InFlight::dropping: return "giving back a reservation of";
    case flight::InFlight::none: break;
  }
  return "working on";
}

void explain_losses(Scene const& scene, Prose& prose) {
  if (!scene.process) return;
  auto const losses = scene.model.losses();
  if (scene.is_record() && losses.events_read == 0 && scene.process->info.events_recorded != 0) {
    prose.say("This file was written without events, so figures, books and the last failure are all that it tells");
    return;
  }
  if (losses.events_lost + losses.events_refused == 0) {
    if (losses.events_read != 0) prose.say("No record is missing, so all of this is exact");
    return;
  }
  auto text = "Of " + format_count(losses.events_read + losses.events_lost) + " records " + format_count(losses.events_lost) +
              " were overwritten before I could read them";
  if (losses.events_refused != 0) text += ", and " + format_count(losses.events_refused) + " could never be written";
  prose.say(text + "; totals, budget and peak come from the books and are right all the same, but older stories are gone");
}

/// Advice, most useful first; at most three pieces.
class Advice {
public:
  void add(std::string sentence) {
    if (sentences_.size() < 3) sentences_.push_back(std::move(sentence));
  }
  void say(Prose& prose) const {
    if (sentences_.empty()) return;
    prose.say("What to try: " + sentences_.front());
    for (std::size_t i = 1; i < sentences_.size(); ++i) prose.say(sentences_[i]);
  }

private:
  std::vector<std::string> sentences_;
};

void advise_on_budget(follow::FailureStory const& story, Advice& advice) {
  if (story.kind != ErrorKind::over_budget || !story.claimed || !story.limit) return;
  if (story.requested > *story.limit) {
    advice.add(
        "no hook can help here, for the request alone is larger than the budget; ask for less, or set the budget to at least " +
        format_bytes_exact(story.requested));
    return;
  }
  advice.add("a budget of " + format_bytes_exact(*story.claimed + story.requested) + " would have let this request through");
}

void advise_on_hooks(Scene const& scene, follow::FailureStory const& story, Advice& advice) {
  for (auto const& turn : story.hooks) {
    auto const name = "'" + printable(turn.name) + "'";
    if (turn.result == follow::HookResult::threw) {
      advice.add("Find out why " + name + " throws");
    } else if (turn.result == follow::HookResult::ran && turn.reported > turn.freed) {
      advice.add("Look at " + name +
                 ": it reports more than it frees to this manager, so it is freeing somewhere else, or later");
    } else if (turn.result == follow::HookResult::skipped_large) {
      advice.add("Give " + name + " room to run: an emergency reserve of " + format_bytes(turn.overhead) +
                 " would do, or a smaller overhead");
    } else if (turn.result == follow::HookResult::running || turn.overran) {
      advice.add("Look at why " + name + " takes so long");
    }
  }
  auto const was_shortage = story.kind == ErrorKind::over_budget || story.kind == ErrorKind::device_out_of_memory;
  if (!scene.process || !story.hooks.empty() || !was_shortage || story.inside_hook) return;
  auto const then = scene.model.state_at(story.ledger, story.ticks);
  if (!then.tags.empty() && then.tags.front().bytes >= story.requested) {
    advice.add("If any of " + tag_in_prose(then.tags.front().name) +
               " can be given up or moved to the host, register a hook that does it");
  }
}

void advise_on_device(follow::FailureStory const& story, flight::LedgerSnapshot const& ledger, Advice& advice) {
  if (story.kind != ErrorKind::device_out_of_memory || !story.device_free) return;
  if (*story.device_free >= story.requested) {
    advice.add("the device is in splinters: release cached blocks, or allocate what is large and long-lived first");
    return;
  }
  if (ledger.device_outside && *ledger.device_outside != 0) {
    advice.add(
        format_bytes(*ledger.device_outside) +
        " of the device are used outside this program's books, by other processes, contexts and libraries: see `headroom ps` and "
        "nvidia-smi");
  }
  advice.add("A budget that leaves what others use free would have refused earlier, with hooks and a policy still able to act");
}

}  // namespace

void explain_operations(Scene const& scene, Prose& prose) {
  auto const now = scene.model.source().now_ticks();
  for (auto const& operation : scene.model.source().in_flight()) {
    auto const since = now > operation.since_ticks ? scene.model.duration_ns(now - operation.since_ticks) : 0;
    if (scene.living() && since < kLongCallNs) continue;
    auto who = "thread " + std::to_string(operation.thread);
    if (!operation.thread_name.empty()) who = "thread '" + printable(operation.thread_name) + "'";
    if (scene.living()) {
      prose.say("Right now " + who + " is " + doing(operation.operation) + ' ' + format_bytes_exact(operation.bytes) +
                ", and has been for " + format_seconds(static_cast<double>(since) * 1e-9) +
                ": a slow call of the driver, or a hang");
    } else if (scene.is_record() && scene.process->state == "living") {
      prose.say("When this was written, " + who + " was in the middle of " + doing(operation.operation) + ' ' +
                format_bytes_exact(operation.bytes) + ", which it had begun at " + time_in_prose(scene, operation.since_ticks));
    } else {
      prose.say("When it died, " + who + " was in the middle of " + doing(operation.operation) + ' ' +
                format_bytes_exact(operation.bytes) + ", which it had begun at " + time_in_prose(scene, operation.since_ticks) +
                "; a call into the driver that never came back looks like this");
    }
  }
}

void explain_surroundings(Scene const& scene, Prose& prose) {
  if (scene.ledger == nullptr) return;
  explain_other_failures(scene, prose);
  explain_peak(scene, prose);
  explain_old_blocks(scene, prose);
  if (scene.ledger->failed_frees != 0) {
    prose.say(counted_in_words(scene.ledger->failed_frees, "block") + " could not be freed, and " +
              format_bytes_exact(scene.ledger->failed_free_bytes) + " stay charged for " +
              (scene.ledger->failed_frees == 1 ? "it" : "them"));
  }
  if (!scene.living()) explain_operations(scene, prose);
  explain_losses(scene, prose);
}

void explain_remedies(Scene const& scene, Prose& prose) {
  if (scene.ledger == nullptr) return;
  Advice advice;
  if (scene.story && scene.story->end != FailureEnd::recovered) {
    advise_on_budget(*scene.story, advice);
    advise_on_device(*scene.story, *scene.ledger, advice);
    advise_on_hooks(scene, *scene.story, advice);
    if (!scene.process) {
      advice.add(
          "`headroom replay` with --budget tells where this job would have been refused under a budget, and with --hook what "
          "hooks "
          "would have saved");
    }
  } else if (scene.story) {
    advice.add("nothing has to be done, for the last shortage was mended; but it is close to its budget, and hooks take time");
  } else if (scene.process && scene.process->state == "killed") {
    advice.add(
        "headroom saw no shortage of device memory, so look for who killed it: the kernel's log (`journalctl -k`, for the host's "
        "out-of-memory killer), the scheduler, or a crash of its own");
  }
  if (scene.ledger->failed_frees != 0)
    advice.add("Find out why the driver refuses those frees; until then their bytes are lost to the budget");
  advice.say(prose);
}

}  // namespace headroom::command
