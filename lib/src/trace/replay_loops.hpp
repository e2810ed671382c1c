// headroom: what both orders of a replay share: the slots, the loops and how the figures of one come about.
//
// Thread safety: one thread at a time (who has the turn, or who completes the barrier).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "trace/replay_pace.hpp"
#include "trace/replay_player.hpp"
#include "trace/replay_steps.hpp"

namespace headroom::trace {

class Loops {
public:
  Loops(TraceHistory::Data const& data, Player& player, Pace& pace, ReplayOptions const& options, std::size_t slots)
      : slots_(slots), data_{data}, player_{player}, pace_{pace}, progress_{options.progress}, loops_{options.loops} {
    events_left_ = options.stop_after.value_or(UINT64_MAX);
    begin();
  }

  /// Steps of this loop to apply: [0, end()).
  [[nodiscard]] std::size_t end() const noexcept { return end_; }
  [[nodiscard]] std::vector<Slot>& slots() noexcept { return slots_; }
  [[nodiscard]] Tally& tally() noexcept { return tally_; }

  /// After the last step of a loop. Returns false when the replay is over, with everything left as it is; else this loop's rest
  /// was freed and the next one begun.
  [[nodiscard]] bool next() {
    figures_.elapsed_seconds = pace_.elapsed_seconds();
    events_left_ -= end_;
    if (end_ == data_.steps.size()) ++figures_.loops;
    if (progress_ != nullptr) progress_->loops.store(figures_.loops, std::memory_order_relaxed);
    auto const is_last = figures_.loops == loops_ || events_left_ == 0 || data_.steps.empty() || pace_.stopped();
    if (is_last) {
      is_over_ = true;
      return false;
    }
    figures_.refused_in_all_loops += tally_.refused;
    figures_.loop_frees += Player::release_rest(slots_, tally_);
    figures_.failed_frees += tally_.failed_frees;
    keep_first_refusal();
    tally_ = {};
    begin();
    return true;
  }

  /// The figures once nobody applies steps any more.
  [[nodiscard]] ReplayFigures finish() {
    auto const& manager = player_.manager();
    auto figures = figures_;
    if (!is_over_) figures.elapsed_seconds = pace_.elapsed_seconds();  // stopped within the loop
    figures.allocations = tally_.allocations;
    figures.frees = tally_.frees;
    figures.trace_failures = tally_.failures;
    figures.refused = tally_.refused;
    figures.refused_in_all_loops += tally_.refused;
    figures.unmatched_frees = tally_.unmatched_frees;
    figures.failed_frees += tally_.failed_frees;
    figures.live_bytes = manager.allocated_bytes();
    figures.peak_bytes = std::max(manager.peak_bytes(), figures.live_bytes);
    figures.live_allocations = manager.live_allocations();
    figures.claimed_bytes = manager.claimed_bytes();
    auto const budget = manager.budget();
    figures.budget_bytes = budget.limit_bytes();
    return figures;
  }

  [[nodiscard]] std::optional<ReplayRefusal> take_first_refusal() {
    keep_first_refusal();
    return std::move(first_refusal_);
  }

private:
  void keep_first_refusal() {
    if (!first_refusal_) first_refusal_ = std::move(tally_.first_refusal);
  }

  void begin() noexcept {
    end_ = static_cast<std::size_t>(std::min<std::uint64_t>(data_.steps.size(), events_left_));
    player_.manager().reset_peak();
    pace_.begin_loop();
  }

  std::vector<Slot> slots_;
  TraceHistory::Data const& data_;
  Player& player_;
  Pace& pace_;
  ReplayProgress* progress_;
  std::uint64_t loops_;
  std::uint64_t events_left_;
  std::size_t end_ = 0;
  Tally tally_;
  ReplayFigures figures_;
  std::optional<ReplayRefusal> first_refusal_;
  bool is_over_ = false;
};

/// Run the loops to their end, or until stopped. Errors: io (a thread cannot be started; nothing was applied then).
[[nodiscard]] Result<void> run_in_file_order(TraceHistory::Data const& data, Player& player, Pace& pace, Loops& loops,
                                             ReplayProgress* progress);
[[nodiscard]] Result<void> run_in_free_order(TraceHistory::Data const& data, Player& player, Pace& pace, Loops& loops,
                                             ReplayProgress* progress);

}  // namespace headroom::trace
