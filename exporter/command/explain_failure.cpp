// The request that failed: what was asked for, which layer said no, and who held the memory then.
#include <algorithm>
#include <utility>

#include <headroom/byte_size.hpp>

#include "command/explanation.hpp"
#include "command/output.hpp"

namespace headroom::command {
namespace {

using follow::FailureStory;

/// "700 MiB were claimed", of a limit that the reader has just been told.
[[nodiscard]] std::string claimed_text(std::uint64_t claimed, std::uint64_t limit) {
  if (claimed == limit) return "all of it was claimed";
  // Figures are rounded: "of 5 GiB 5 GiB were claimed" would tell nothing.
  if (claimed < limit && format_bytes(claimed) == format_bytes(limit))
    return "all but " + format_bytes(limit - claimed) + " of it was claimed";
  return format_bytes(claimed) + " were claimed";
}

/// "the budget of 8 GiB of its manager said no: 7.8 GiB were claimed, so that 312 MiB were missing".
[[nodiscard]] std::string budget_said_no(FailureStory const& story, std::string const& whose) {
  if (!story.claimed || !story.limit) return "the budget of " + whose + " said no";
  auto text = "the budget of " + format_bytes(*story.limit) + " of " + whose + " said no: ";
  if (story.requested > *story.limit) return text + "the request alone is larger than all of it";
  text += claimed_text(*story.claimed, *story.limit);
  auto const required = *story.claimed + story.requested;
  if (required > *story.limit) text += ", so that " + format_bytes_exact(required - *story.limit) + " were missing";
  return text;
}

[[nodiscard]] std::string device_said_no(FailureStory const& story) {
  auto const text = std::string{"the device itself said no"};
  if (!story.device_free) return text + ", and did not say how much it had left";
  auto const has_enough = *story.device_free >= story.requested;
  return text + ", with " + format_bytes(*story.device_free) + " free" +
         (has_enough ? ": enough in all, but not in one piece" : "");
}

[[nodiscard]] std::string who_said_no(Scene const& scene, FailureStory const& story) {
  if (!story.kind || !story.layer) return "was refused; which layer said no is not among the records that are left";
  switch (*story.kind) {
    case ErrorKind::over_budget:
      return "and " + budget_said_no(story, *story.layer == Layer::device_account ? "the device, which all its managers share,"
                                                                                  : "its " + manager_in_prose(story.ledger_name));
    case ErrorKind::device_out_of_memory:
      return scene.process ? "and " + device_said_no(story) : "and was refused; the history does not say why";
    case ErrorKind::overflow: return "and that is more than any size that can be kept in books";
    default: break;
  }
  auto text = "and the " + std::string{to_string(*story.layer)} + " said no (" + std::string{to_string(*story.kind)};
  if (story.device_code != 0) text += ", code " + std::to_string(story.device_code);
  return text + ")";
}

/// Its records are gone, but the books remember the first of each kind.
void explain_first_failures(Scene const& scene, Prose& prose) {
  auto failures = scene.model.source().first_failures();
  if (failures.empty()) {
    prose.say(capitalised(counted_in_words(refusals(scene), "request")) + (refusals(scene) == 1 ? " was" : " were") +
              " refused, and no record of it is left");
    return;
  }
  auto const& last = *std::ranges::max_element(failures, {}, &flight::FirstFailureInfo::last_ticks);
  auto const name = scene.model.source().name(last.tag);
  prose.say("At " + time_in_prose(scene, last.last_ticks) + " a request for " + tag_in_prose(name ? name->label : "") +
            " was refused (" + std::string{to_string(last.kind)} + " by the " + std::string{to_string(last.layer)} +
            "), but its story is no longer among the records");
  auto text = last.count == 1 ? std::string{"It"} : "The first of " + number_in_words(last.count) + " such refusals";
  text += last.count == 1 ? " asked for " : ", at " + time_in_prose(scene, last.first_ticks) + ", was of ";
  text += format_bytes_exact(last.requested) + ", when " + format_bytes(last.claimed);
  prose.say(text + (last.limit ? " of " + format_bytes(*last.limit) : "") + " were claimed");
}

[[nodiscard]] std::string holders_text(Scene const& scene, FailureStory const& story) {
  if (auto const then = held_at_failure(scene)) {
    if (then->bytes == 0) return "Nothing of its own was live in that manager at that moment";
    if (then->tags.size() == 1 && then->unattributed_bytes == 0) {
      auto const& tag = then->tags.front();
      auto text = "At that moment " + format_bytes(then->bytes) + " were live";
      if (tag.allocations != 0) text += " in " + counted_in_words(tag.allocations, "allocation");
      return scene.process ? text + ", all of it " + tag_in_prose(tag.name) : text;
    }
    return "At that moment " + holders_in_prose(then->tags, then->unattributed_bytes);
  }
  // The books noted who held what when it was most. Nobody can have held anything else where that was not less than now.
  auto const peak = scene.model.peak(story.ledger);
  if (peak.bytes != 0 && peak.bytes == allocated_at_failure(story) && !peak.tags.empty()) {
    return "It held as much then as it ever did: at its peak of " + format_bytes(peak.bytes) + ' ' +
           holders_in_prose(peak.tags, peak.unattributed_bytes);
  }
  std::vector<follow::TagFigures> now;
  for (auto const& tag : scene.ledger->tags) {
    if (scene.ledger->cell == story.ledger && tag.bytes != 0)
      now.push_back({.name = tag.name, .bytes = tag.bytes, .allocations = 0});
  }
  auto const lead = std::string{"Who held what at that moment is not recorded any more"};
  return now.empty() ? lead : lead + "; " + scene.when() + ' ' + holders_in_prose(now, 0);
}

/// Where the device or its budget said no, what the asking manager held is but a part.
void explain_neighbours(Scene const& scene, FailureStory const& story, Prose& prose) {
  auto const is_of_device = story.layer == Layer::device_account || story.kind == ErrorKind::device_out_of_memory;
  if (!is_of_device || scene.ledger == nullptr || !scene.process) return;
  struct Neighbour {
    flight::LedgerSnapshot const* ledger;
    follow::LedgerState then;
  };
  std::vector<Neighbour> known;
  std::size_t unknown = 0;
  for (auto const* const ledger : neighbours(scene, *scene.ledger)) {
    auto then = scene.model.losses().events_read == 0 ? follow::LedgerState{} : scene.model.state_at(ledger->cell, story.ticks);
    if (then.known == follow::Known::exact || then.known == follow::Known::partial) {
      if (then.allocated != 0) known.push_back({.ledger = ledger, .then = std::move(then)});
    } else if (ledger->peak != 0) {
      ++unknown;
    }
  }
  if (known.empty() && unknown == 0) return;
  constexpr std::size_t kMost = 3;
  std::ranges::sort(known, std::ranges::greater{}, [](Neighbour const& one) { return one.then.allocated; });
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(known.size(), kMost); ++i) {
    auto part = manager_in_prose(known[i].ledger->name) + (i == 0 ? " held " : " ") + format_bytes(known[i].then.allocated);
    auto const& tags = known[i].then.tags;
    if (!tags.empty() && tags.front().bytes * 2 > known[i].then.allocated)
      part += ", most of it " + tag_in_prose(tags.front().name);
    parts.push_back(std::move(part));
  }
  if (known.size() > kMost) parts.push_back(counted_in_words(known.size() - kMost, "other manager") + " the rest");
  auto text = parts.empty() ? std::string{} : "On the same device " + listed(parts);
  if (unknown != 0) {
    text += text.empty() ? "What " : "; what ";
    text += counted_in_words(unknown, "other manager") + " of the device held then is not recorded any more";
  }
  prose.say(std::move(text));
}

}  // namespace

void explain_failure(Scene const& scene, Prose& prose) {
  if (scene.ledger == nullptr) return;
  if (!scene.story) {
    if (refusals(scene) != 0 || !scene.model.source().first_failures().empty()) {
      explain_first_failures(scene, prose);
    } else {
      prose.say(scene.living() ? "No request has been refused so far" : "No request was ever refused");
    }
    return;
  }
  auto const& story = *scene.story;
  auto const* const who = story.inside_hook ? "a hook or callback, which runs when memory is short already,"
                          : scene.process   ? "it"
                                            : "the program";
  auto request =
      capitalised(moment_in_prose(scene, story.ticks)) + ' ' + who + " asked for " + format_bytes_exact(story.requested);
  if (!story.tag.empty() && story.tag != "untagged") request += " for " + tag_in_prose(story.tag);
  if (!story.site.empty()) request += " (" + place_of(story.site) + ")";
  auto const is_known = story.kind && story.layer;
  prose.say(request + (is_known ? ", " : " and ") + who_said_no(scene, story));

  auto holders = holders_text(scene, story);
  if (story.unspent.value_or(0) != 0)
    holders += "; another " + format_bytes(*story.unspent) + " were claimed by reservations, and not in use";
  prose.say(std::move(holders));
  explain_neighbours(scene, story, prose);
}

}  // namespace headroom::command
