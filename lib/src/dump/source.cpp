// A post-mortem as a source: all of it is there at the first read, and nothing follows.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include <headroom/post_mortem_reader.hpp>

#include "dump/words.hpp"

namespace headroom {
namespace {

using follow::FailureEnd;
using follow::FailureStory;
using follow::HookResult;

enum class PolicyNumber : std::uint8_t {};  // the place of its word
constexpr std::uint8_t kUnknownPolicy = std::numeric_limits<std::uint8_t>::max();

[[nodiscard]] HookResult result_of(std::string_view word) noexcept {
  constexpr std::array<std::pair<std::string_view, HookResult>, 5> kWords{{{"threw", HookResult::threw},
                                                                           {"skipped_large", HookResult::skipped_large},
                                                                           {"skipped_busy", HookResult::skipped_busy},
                                                                           {"ran_elsewhere", HookResult::elsewhere},
                                                                           {"not_ended", HookResult::running}}};
  auto const* const found = std::ranges::find(kWords, word, &std::pair<std::string_view, HookResult>::first);
  return found == kWords.end() ? HookResult::ran : found->second;
}

[[nodiscard]] FailureEnd end_of(PostMortemFailure const& failure) noexcept {
  if (failure.outcome == "granted_after_all") return FailureEnd::recovered;
  if (failure.outcome == "unknown") return FailureEnd::under_way;
  return failure.hooks.empty() && failure.policy_steps.empty() ? FailureEnd::failed : FailureEnd::gave_up;
}

[[nodiscard]] FailureStory story_of(PostMortemFailure const& failure) {
  FailureStory story;
  story.ticks = story.end_ticks = failure.ticks.value_or(0);
  story.ledger = failure.ledger;
  story.tag = failure.tag;
  story.site = failure.site;
  story.thread = static_cast<std::uint32_t>(failure.thread);
  story.requested = failure.requested_bytes.value_or(0);
  story.kind = failure.kind;
  story.layer = failure.layer;
  story.claimed = failure.claimed_bytes;
  story.limit = failure.limit_bytes;
  story.peak = failure.peak_bytes;
  story.unspent = failure.unspent_bytes;
  story.device_free = failure.device_free_bytes;
  story.device_code = static_cast<std::int32_t>(failure.device_code);
  for (auto const& holder : failure.holders) {
    story.holders.push_back({.name = holder.name, .bytes = holder.bytes, .allocations = 0});
    story.allocated += holder.bytes;
  }
  for (auto const& turn : failure.hooks) {
    story.hooks.push_back({.name = turn.name,
                           .result = result_of(turn.result),
                           .begin_ticks = 0,
                           .shortfall = turn.shortfall_bytes.value_or(0),
                           .estimate = turn.estimate_bytes.value_or(0),
                           .reported = turn.reported_bytes.value_or(0),
                           .freed = turn.freed_bytes.value_or(0),
                           .ledger_fell = 0,
                           .duration_ns = turn.duration_ns.value_or(0),
                           .overhead = turn.overhead_bytes.value_or(0),
                           .overran = turn.overran});
  }
  for (auto const& step : failure.policy_steps) {
    if (step.step == dump::word_of(dump::kPolicyStepWords, flight::PolicyStep::begun)) {
      story.doing = dump::value_of<flight::PolicyStep>(dump::kBegunWords, step.begins);
      continue;
    }
    auto const policy = dump::value_of<PolicyNumber>(dump::kPolicyWords, step.policy);
    story.policy.push_back(
        {.step = dump::value_of<flight::PolicyStep>(dump::kPolicyStepWords, step.step).value_or(flight::PolicyStep::none),
         .policy = policy ? static_cast<std::uint8_t>(*policy) : kUnknownPolicy,
         .ticks = 0,
         .duration_ns = step.duration_ns,
         .bytes = step.bytes});
  }
  story.end = end_of(failure);
  return story;
}

/// Of a word in `names`; none of a later version's.
[[nodiscard]] flight::EntryKind kind_of(std::string_view word) noexcept {
  using flight::EntryKind;
  constexpr std::array<std::pair<std::string_view, EntryKind>, 5> kWords{{{"mark", EntryKind::mark},
                                                                          {"log", EntryKind::log},
                                                                          {"hook", EntryKind::hook},
                                                                          {"tag", EntryKind::tag},
                                                                          {"ledger", EntryKind::ledger}}};
  auto const* const found = std::ranges::find(kWords, word, &std::pair<std::string_view, EntryKind>::first);
  return found == kWords.end() ? EntryKind::none : found->second;
}

class PostMortemSource final : public follow::Source {
public:
  PostMortemSource(PostMortem dump, std::string title)
      : dump_{std::move(dump)}, title_{std::move(title)}, accepted_{dump_.events.size()} {
    for (auto const& site : dump_.sites) kinds_[site.id] = flight::EntryKind::site;
    for (auto const& name : dump_.other_names) kinds_[name.id] = kind_of(name.kind);
    for (auto const& event : dump_.events) newest_ticks_ = std::max(newest_ticks_, event.ticks);
    for (auto const& live : dump_.live) newest_ticks_ = std::max(newest_ticks_, live.ticks);
    for (auto const& sync : dump_.syncs) newest_ticks_ = std::max(newest_ticks_, sync.ticks);
    for (auto const& lane : dump_.lanes) {
      lost_ += lane.main.lost.value_or(0) + lane.journal.lost.value_or(0);
      recorded_ += lane.main.recorded + lane.journal.recorded;
    }
    // With an event whose writer did not live to count it, one more was read than recorded.
    if (accepted_ != 0 && !dump_.lanes.empty()) accepted_ = std::min(accepted_, recorded_ - std::min(recorded_, lost_));
    note_sign_of_life();
  }

  [[nodiscard]] follow::SourceKind kind() const override { return follow::SourceKind::dump; }
  [[nodiscard]] std::string title() const override { return title_; }

  [[nodiscard]] Result<void> read(follow::News& news) override {
    news.ended = true;
    if (std::exchange(was_read_, true)) return success();
    news.events.insert(news.events.end(), dump_.events.begin(), dump_.events.end());
    for (auto const& lane : dump_.lanes) {
      add_gap(lane.lane, flight::Ring::main, lane.main, news.gaps);
      add_gap(lane.lane, flight::Ring::journal, lane.journal, news.gaps);
    }
    return success();
  }

  [[nodiscard]] flight::ProcessInfo process() const override { return dump_.process; }
  [[nodiscard]] flight::Liveness liveness() const override { return dump_.liveness; }
  [[nodiscard]] flight::ClockMap clock() const override { return dump_.clock(); }
  [[nodiscard]] std::uint64_t now_ticks() const override { return newest_ticks_; }
  [[nodiscard]] std::vector<flight::LedgerSnapshot> ledgers() const override { return dump_.ledgers; }
  void for_each_live(std::function<void(flight::LiveAllocation const&)> const& visit) const override {
    for (auto const& live : dump_.live) visit(live);
  }
  [[nodiscard]] bool live_is_whole() const override { return !dump_.truncated && dump_.live.size() >= dump_.live_allocations; }

  [[nodiscard]] std::optional<flight::DirectoryName> name(std::uint32_t id) const override {
    auto const found = dump_.names.find(id);
    if (found == dump_.names.end()) return std::nullopt;
    flight::DirectoryName name;
    auto const kind = kinds_.find(id);
    name.kind = kind == kinds_.end() ? flight::EntryKind::none : kind->second;
    name.label = found->second;
    return name;
  }
  [[nodiscard]] std::vector<flight::HookSnapshot> hooks() const override { return dump_.hooks; }
  [[nodiscard]] std::vector<flight::FirstFailureInfo> first_failures() const override { return dump_.first_failures; }
  [[nodiscard]] std::vector<flight::LaneInfo> lanes() const override {
    std::vector<flight::LaneInfo> lanes;
    lanes.reserve(dump_.lanes.size());
    for (auto const& lane : dump_.lanes) {
      lanes.push_back({.lane = lane.lane,
                       .owned = lane.owned,
                       .thread = lane.thread,
                       .thread_name = lane.thread_name,
                       .main_head = lane.main.recorded,
                       .journal_head = lane.journal.recorded});
    }
    return lanes;
  }
  [[nodiscard]] std::vector<flight::InFlightOperation> in_flight() const override { return dump_.in_flight; }
  [[nodiscard]] std::optional<FailureStory> failure() const override {
    if (!dump_.failure) return std::nullopt;
    auto story = story_of(*dump_.failure);
    // Without its record, the instant is that of the newest refusal of its kind.
    for (auto const& first : dump_.first_failures) {
      auto const is_of_it = first.kind == story.kind && first.layer == story.layer && first.ledger == story.ledger;
      if (is_of_it && !dump_.failure->ticks) story.ticks = story.end_ticks = std::max(story.ticks, first.last_ticks);
    }
    if (story.ticks == 0) story.ticks = story.end_ticks = newest_ticks_;
    return story;
  }
  [[nodiscard]] std::uint64_t accepted() const override { return accepted_; }
  [[nodiscard]] std::uint64_t lost() const override { return lost_; }

private:
  /// Whoever wrote this while the program lived saw it alive. The clock on the wall may have been set since it started: how long that
  /// is ago comes from the other one.
  void note_sign_of_life() {
    if (dump_.liveness != flight::Liveness::living) return;
    auto& last = dump_.process.last_activity_realtime_ns;
    auto const first = std::ranges::min_element(dump_.syncs, {}, &flight::ClockMap::Sync::ticks);
    if (first != dump_.syncs.end() && dump_.written_monotonic_ns && *dump_.written_monotonic_ns >= first->monotonic_ns) {
      last = std::max(last, first->realtime_ns + (*dump_.written_monotonic_ns - first->monotonic_ns));
    } else {
      last = std::max(last, dump_.written_realtime_ns);
    }
  }
  static void add_gap(std::uint32_t lane, flight::Ring ring, PostMortemRing const& figures, std::vector<flight::Gap>& gaps) {
    // What is missing lies before what is listed: a writer overwrites its oldest records.
    auto const missing = figures.first.value_or(figures.recorded);
    if (figures.recorded == 0 || missing == 0) return;
    gaps.push_back({.ring = ring, .lane = lane, .first_missing = 0, .last_missing = missing - 1});
  }

  PostMortem dump_;
  std::string title_;
  std::map<std::uint32_t, flight::EntryKind> kinds_;  // of sites, marks and logs
  std::uint64_t newest_ticks_ = 0;
  std::uint64_t accepted_ = 0, lost_ = 0, recorded_ = 0;
  bool was_read_ = false;
};

}  // namespace

std::unique_ptr<follow::Source> post_mortem_source(PostMortem dump, std::string title) {
  return std::make_unique<PostMortemSource>(std::move(dump), std::move(title));
}

}  // namespace headroom
