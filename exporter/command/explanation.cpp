// What is looked at, who it is about, and what several parts of the explanation need to know.
#include "command/explanation.hpp"

#include <algorithm>
#include <numeric>
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

/// The last request that failed for good and was not asked by a hook; else the last that no hook asked; else the last.
[[nodiscard]] FailureStory const* most_serious(std::vector<FailureStory> const& stories) {
  FailureStory const* best = nullptr;
  auto const rank = [](FailureStory const& story) { return story.inside_hook ? 0 : failed_for_good(story) ? 2 : 1; };
  for (auto const& story : stories) {
    if (best == nullptr || rank(story) >= rank(*best)) best = &story;
  }
  return best;
}

[[nodiscard]] double fullness(flight::LedgerSnapshot const& ledger) noexcept {
  if (!ledger.limit || *ledger.limit == 0) return 0.0;
  return static_cast<double>(std::max(ledger.peak, ledger.claimed)) / static_cast<double>(*ledger.limit);
}

/// A snapshot's clock shows the time of day, and it is not known when its program began.
[[nodiscard]] std::uint64_t into_history_ns(Scene const& scene, std::uint64_t ticks) {
  auto const start = scene.start_ticks == 0 ? 0 : scene.model.monotonic_ns(scene.start_ticks);
  auto const then = scene.model.monotonic_ns(ticks);
  return then > start ? then - start : 0;
}

[[nodiscard]] std::string lifetime(Scene const& scene) { return format_seconds(static_cast<double>(lifetime_ns(scene)) * 1e-9); }

[[nodiscard]] std::string who_text(Scene const& scene) {
  if (!scene.process) {
    return printable(scene.path) + " is a recorded history of " + format_count(scene.model.losses().events_read) +
           " records over " + lifetime(scene) + "; it tells of no budget";
  }
  auto const& info = scene.process->info;
  auto const program = printable(info.program) + " (process " + std::to_string(info.pid) + ") on " + printable(info.host);
  auto const last_sign = format_utc(last_sign_ns(scene));
  if (scene.living()) return program + " is alive, and has been for " + lifetime(scene);
  if (scene.is_record_of_living())
    return program + " was alive when this was written, at " + last_sign + ", " + lifetime(scene) + " into its life";
  if (scene.process->state == "exited") return program + " ended in good order at " + last_sign + ", after " + lifetime(scene);
  if (scene.process->state == "killed") {
    return program + " was killed, or crashed: nothing was heard of it after " + last_sign + ", " + lifetime(scene) +
           " into its life";
  }
  return program + " may be alive or not, which nobody can tell from here; the last that was heard of it was at " + last_sign +
         ", " + lifetime(scene) + " into its life";
}

}  // namespace

Scene make_scene(follow::Model const& model, std::string path, std::optional<ProcessFigures> process, std::uint64_t start_ticks) {
  Scene scene{.model = model,
              .path = std::move(path),
              .process = std::move(process),
              .ledger = nullptr,
              .stories = model.failures(),
              .story = {},
              .start_ticks = start_ticks};
  std::erase_if(scene.stories, [](FailureStory const& story) { return story.end == FailureEnd::observed; });
  if (auto const* const story = most_serious(scene.stories)) {
    scene.story = *story;
    scene.ledger = model.ledger(story->ledger);
  }
  if (scene.ledger != nullptr) return scene;
  for (auto const& ledger : model.ledgers()) {
    if (ledger.is_device_account) continue;
    auto const is_better = scene.ledger == nullptr || fullness(ledger) > fullness(*scene.ledger) ||
                           (fullness(ledger) == fullness(*scene.ledger) && ledger.peak > scene.ledger->peak);
    if (is_better) scene.ledger = &ledger;
  }
  return scene;
}

std::uint64_t last_sign_ns(Scene const& scene) {
  auto const& source = scene.model.source();
  if (scene.living()) return scene.model.realtime_ns(source.now_ticks());
  // The clock is written down now and then only. A record without events still has what is live, what failed and what was under way.
  auto last = scene.is_record() ? source.now_ticks() : scene.model.last_ticks();
  for (auto const& story : scene.stories) last = std::max(last, story.end_ticks);
  for (auto const& failure : source.first_failures()) last = std::max(last, failure.last_ticks);
  for (auto const& operation : source.in_flight()) last = std::max(last, operation.since_ticks);
  auto const written = scene.process ? scene.process->info.last_activity_realtime_ns : 0;
  return std::max(last == 0 ? 0 : scene.model.realtime_ns(last), written);
}

std::uint64_t lifetime_ns(Scene const& scene) {
  if (!scene.process) {
    auto const last = scene.model.last_ticks();
    return last == 0 ? 0 : into_history_ns(scene, last);
  }
  auto const last = last_sign_ns(scene);
  auto const start = scene.process->info.start_realtime_ns;
  return last > start ? last - start : 0;
}

std::uint64_t refusals(Scene const& scene) {
  auto const ledgers = scene.model.ledgers();
  return std::accumulate(ledgers.begin(), ledgers.end(), std::uint64_t{0},
                         [](std::uint64_t sum, flight::LedgerSnapshot const& ledger) {
                           // What a device account refused stands in the books of the manager that asked, too.
                           return sum + (ledger.is_device_account ? 0 : ledger.failures());
                         });
}

std::optional<follow::HeldThen> held_at_failure(Scene const& scene) {
  return scene.story ? follow::held_at(scene.model, *scene.story) : std::nullopt;
}

std::uint64_t allocated_at_failure(FailureStory const& story) {
  if (story.allocated != 0) return story.allocated;
  auto const claimed = story.claimed.value_or(0);
  return claimed - std::min(story.unspent.value_or(0), claimed);
}

std::vector<flight::LedgerSnapshot const*> neighbours(Scene const& scene, flight::LedgerSnapshot const& ledger) {
  std::vector<flight::LedgerSnapshot const*> others;
  for (auto const& other : scene.model.ledgers()) {
    auto const shares_account = ledger.parent_cell && other.parent_cell == ledger.parent_cell;
    auto const shares_device = !ledger.device_uuid.empty() && other.device_uuid == ledger.device_uuid;
    if (!other.is_device_account && other.cell != ledger.cell && (shares_account || shares_device)) others.push_back(&other);
  }
  return others;
}

std::string time_in_prose(Scene const& scene, std::uint64_t ticks) {
  if (!scene.process) return format_seconds(static_cast<double>(into_history_ns(scene, ticks)) * 1e-9) + " into the history";
  // The day goes without saying where it is the day of the last sign of life.
  auto const text = format_utc(scene.model.realtime_ns(ticks));
  auto const last = format_utc(last_sign_ns(scene));
  return text.size() > kDay && text.substr(0, kDay) == last.substr(0, kDay) ? text.substr(kDay) : text;
}

std::string moment_in_prose(Scene const& scene, std::uint64_t ticks) {
  return (scene.process ? "at " : "") + time_in_prose(scene, ticks);
}

std::string holders_in_prose(std::vector<follow::TagFigures> const& tags, std::uint64_t unattributed) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(tags.size(), kMost); ++i) {
    auto part = tag_in_prose(tags[i].name) + (i == 0 ? " held " : " ") + format_bytes(tags[i].bytes);
    if (tags[i].allocations != 0) {
      part += " in " + (i == 0 ? counted_in_words(tags[i].allocations, "allocation") : number_in_words(tags[i].allocations));
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
    text += "who held " + std::string{parts.empty() ? "these " : "the other "} + format_bytes(unattributed) +
            " is not recorded any more";
  }
  return text;
}

std::string manager_in_prose(std::string_view name) { return name.empty() ? "manager" : "manager '" + printable(name) + "'"; }

std::string time_taken(std::uint64_t ns, bool overran) {
  if (ns < kWorthTellingNs) return overran ? " (longer than its limit)" : "";
  return " (" + format_seconds(static_cast<double>(ns) * 1e-9) + (overran ? ", longer than its limit)" : ")");
}

void explain_who(Scene const& scene, Prose& prose) {
  auto text = who_text(scene);
  if (scene.ledger == nullptr) {
    text += "; it has made no manager, so nothing was allocated through headroom";
  } else if (scene.process && scene.process->info.events_off) {
    text += "; its events were switched off (HEADROOM_FLIGHT=off), so there are figures but no story";
  }
  prose.say(std::move(text));
}

}  // namespace headroom::command
