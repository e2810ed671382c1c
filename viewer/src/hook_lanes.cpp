#include "hook_lanes.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace headroom::viewer {
namespace {

using flight::Event;
using flight::EventKind;
using follow::HookResult;

class LaneBuilder {
public:
  LaneBuilder(follow::Model const& model, std::uint32_t ledger) : model_{model}, ledger_{ledger} {}

  void take_pressure() {
    model_.for_each_journal_event(0, ~std::uint64_t{0}, [this](Event const& event) {
      if (event.kind != EventKind::pressure || event.ledger() != ledger_) return;
      auto const from = event.words[2] & 0xFFU;
      auto const to = (event.words[2] >> 8U) & 0xFFU;
      if (to > from) rises_.push_back(event.ticks);
    });
  }

  void take_stories() {
    for (auto const& story : model_.failures()) {
      if (story.ledger != ledger_ || story.hooks.empty()) continue;
      // Of a story whose refusal is lost only what was done about it is known.
      auto const is_refusal_known = story.kind.has_value();
      if (is_refusal_known) result_.failures.push_back(story.ticks);
      auto const thread = model_.source().thread_id(story.thread);
      for (auto const& turn : story.hooks) {
        told_.insert({thread, turn.begin_ticks, turn.name});
        HookSlice slice{.turn = turn, .begin = turn.begin_ticks, .end = end_of(turn), .thread = thread, .failure = story.number};
        if (is_refusal_known) {
          slice.cause = HookCause::failure;
          slice.cause_ticks = story.ticks;
        } else {
          blame_pressure(slice);
        }
        add(std::move(slice));
      }
    }
  }

  /// Runs whose failure is not known any more.
  void take_journal() {
    model_.for_each_journal_event(0, ~std::uint64_t{0}, [this](Event const& event) {
      if (event.ledger() != ledger_ || (event.flags() & flight::kFlagContinues) != 0) return;
      if (event.kind == EventKind::hook_begin) begin(event);
      if (event.kind == EventKind::hook_end) end(event);
    });
    for (auto& [key, slice] : open_) add(std::move(slice));
  }

  [[nodiscard]] HookLanes take() && {
    std::ranges::sort(result_.failures);
    for (auto& lane : result_.lanes) {
      std::ranges::stable_sort(lane.slices, {}, &HookSlice::begin);
      for (auto const& slice : lane.slices) {
        ++(slice.has_run() ? lane.runs : lane.skipped);
        if (slice.turn.result == HookResult::threw) ++lane.threw;
        lane.freed += slice.turn.freed;
      }
    }
    std::ranges::stable_sort(result_.lanes, {}, [](HookLane const& lane) { return lane.slices.front().begin; });
    return std::move(result_);
  }

private:
  /// Turns know how long they took in nanoseconds; ticks are what a display needs.
  [[nodiscard]] std::uint64_t end_of(follow::HookTurnStory const& turn) const {
    return turn.begin_ticks + ticks_of(turn.duration_ns);
  }
  [[nodiscard]] std::uint64_t ticks_of(std::uint64_t ns) const {
    constexpr std::uint64_t kMany = 1'000'000'000;
    auto const ns_of_many = model_.duration_ns(kMany);
    if (ns_of_many == 0) return 0;
    return static_cast<std::uint64_t>(static_cast<double>(ns) / static_cast<double>(ns_of_many) * static_cast<double>(kMany));
  }

  void add(HookSlice slice) {
    auto lane = std::ranges::find(result_.lanes, slice.turn.name, &HookLane::name);
    if (lane == result_.lanes.end()) {
      result_.lanes.push_back({.name = slice.turn.name, .slices = {}});
      lane = std::prev(result_.lanes.end());
    }
    lane->slices.push_back(std::move(slice));
  }

  void blame_pressure(HookSlice& slice) const {
    auto const after = std::ranges::upper_bound(rises_, slice.begin);
    if (after == rises_.begin()) return;
    slice.cause = HookCause::pressure;
    slice.cause_ticks = *std::prev(after);
  }

  void begin(Event const& event) {
    auto const name = model_.source().name(event.hook());
    HookSlice slice{.begin = event.ticks, .end = event.ticks, .thread = model_.source().thread_id(event.thread())};
    slice.turn = {.name = name ? name->label : std::string{},
                  .result = HookResult::running,
                  .begin_ticks = event.ticks,
                  .shortfall = event.words[2],
                  .estimate = event.words[3]};
    if (told_.contains({slice.thread, slice.begin, slice.turn.name})) return;
    blame_pressure(slice);
    open_[{event.thread(), event.hook()}] = std::move(slice);
  }

  void end(Event const& event) {
    auto const found = open_.find({event.thread(), event.hook()});
    if (found == open_.end()) return;
    auto& slice = found->second;
    slice.end = std::max(event.ticks, slice.begin);
    slice.turn.result = event.hook_threw() ? HookResult::threw : HookResult::ran;
    slice.turn.reported = event.words[flight::HookEnd::kReported];
    slice.turn.duration_ns = event.words[flight::HookEnd::kNs];
    slice.turn.freed = event.words[flight::HookEnd::kFreed];
    slice.turn.overran = event.hook_overran();
    add(std::move(slice));
    open_.erase(found);
  }

  follow::Model const& model_;
  std::uint32_t ledger_;
  HookLanes result_;
  std::set<std::tuple<std::uint64_t, std::uint64_t, std::string>> told_;  // thread, begin, hook
  std::map<std::pair<std::uint32_t, std::uint32_t>, HookSlice> open_;     // by thread and hook
  std::vector<std::uint64_t> rises_;                                      // of pressure, in order
};

}  // namespace

HookLanes hook_lanes(follow::Model const& model, std::uint32_t ledger) {
  LaneBuilder builder{model, ledger};
  builder.take_pressure();
  builder.take_stories();
  builder.take_journal();
  return std::move(builder).take();
}

std::vector<LaneCell> cells_of(HookLane const& lane, TickRange visible, float width) {
  std::vector<LaneCell> cells;
  if (visible.empty() || width < 1) return cells;
  auto const x = [&](std::uint64_t ticks) {
    auto const distance = static_cast<double>(ticks - std::min(ticks, visible.begin));  // not of doubles: ticks may be above 2^53
    return static_cast<float>(std::clamp(distance / static_cast<double>(visible.length()), 0.0, 1.0) *
                              static_cast<double>(width));
  };
  auto const after = std::ranges::lower_bound(lane.slices, visible.end, {}, &HookSlice::begin);
  for (auto slice = lane.slices.begin(); slice != after; ++slice) {
    if (slice->end < visible.begin) continue;
    auto begin = x(slice->begin);
    auto end = x(slice->end);
    if (end - begin < 1) {  // a whole pixel, so that all that lies in it is one cell
      begin = std::floor(begin);
      end = begin + 1;
    }
    if (end - begin <= 1 && !cells.empty() && begin < cells.back().end) {
      auto& cell = cells.back();
      ++cell.count;
      cell.freed += slice->turn.freed;
      cell.has_run = cell.has_run || slice->has_run();
      cell.has_skip = cell.has_skip || !slice->has_run();
      cell.is_bad = cell.is_bad || slice->is_bad();
      continue;
    }
    cells.push_back({.begin = begin,
                     .end = end,
                     .first = static_cast<std::size_t>(slice - lane.slices.begin()),
                     .count = 1,
                     .freed = slice->turn.freed,
                     .has_run = slice->has_run(),
                     .has_skip = !slice->has_run(),
                     .is_bad = slice->is_bad()});
  }
  return cells;
}

}  // namespace headroom::viewer
