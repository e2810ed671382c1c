// headroom: one step of a replay, applied to a manager.
//
// The orders (file, free) decide who applies which step when; what a step does is here. Thread safety: a Player is shared and
// constant; the slot and the tally of a call belong to its caller.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <headroom/manager.hpp>
#include <headroom/replay.hpp>

#include "trace/replay_pace.hpp"
#include "trace/replay_steps.hpp"
#include "trace/replay_tags.hpp"

namespace headroom::trace {

using Slot = TrackedBuffer<std::byte>;

/// What the steps of one loop came to.
struct Tally {
  std::uint64_t allocations = 0, frees = 0, failures = 0, refused = 0, unmatched_frees = 0, failed_frees = 0;
  std::optional<ReplayRefusal> first_refusal;

  void add(Tally other) {
    allocations += other.allocations;
    frees += other.frees;
    failures += other.failures;
    refused += other.refused;
    unmatched_frees += other.unmatched_frees;
    failed_frees += other.failed_frees;
    auto const is_first = other.first_refusal && (!first_refusal || other.first_refusal->line < first_refusal->line);
    if (is_first) first_refusal = std::move(other.first_refusal);
  }
};

class Player {
public:
  Player(TraceHistory::Data const& data, GpuMemoryManager manager, ReplayOptions const& options)
      : data_{data},
        manager_{std::move(manager)},
        guard_{options.guard},
        tags_{make_tags(data, options.tags)},
        mode_{options.tags},
        streams_{options.streams} {
    streams_.resize(data.stream_ids.size());
  }

  void apply(Step const& step, Slot& slot, Tally& tally) {
    switch (step.what()) {
      case StepAction::allocate: allocate(step, slot, tally); return;
      case StepAction::free: release(step, slot, tally); return;
      case StepAction::empty: {
        Slot nothing;
        allocate(step, nothing, tally);
        return;
      }
      case StepAction::empty_free: ++tally.frees; return;
      case StepAction::failure: ++tally.failures; return;
      case StepAction::unmatched_free: ++tally.unmatched_frees; return;
    }
  }

  /// Frees what a loop left behind; returns how many.
  [[nodiscard]] static std::uint64_t release_rest(std::vector<Slot>& slots, Tally& tally) {
    std::uint64_t freed = 0;
    for (auto& slot : slots) {
      if (slot.data() == nullptr) continue;
      if (slot.release()) {
        ++freed;
      } else {
        ++tally.failed_frees;
      }
    }
    return freed;
  }

  [[nodiscard]] GpuMemoryManager& manager() noexcept { return manager_; }

private:
  void allocate(Step const& step, Slot& slot, Tally& tally) {
    const AllocOptions how{
        .tag = tags_[tag_index(data_, step, mode_)], .stream = streams_[step.stream], .alignment = kMinimumAlignment};
    auto buffer = guard_ ? guard_->safe_alloc_with_hooks<std::byte>(step.bytes, how) : manager_.alloc<std::byte>(step.bytes, how);
    if (buffer) [[likely]] {
      slot = std::move(*buffer);
      ++tally.allocations;
      return;
    }
    if (tally.refused++ == 0) tally.first_refusal = {.line = step.line, .bytes = step.bytes, .error = std::move(buffer.error())};
  }

  static void release(Step const& step, Slot& slot, Tally& tally) {
    auto const was_refused = slot.data() == nullptr && step.bytes != 0;
    if (was_refused) return;
    if (slot.release()) [[likely]] {
      ++tally.frees;
    } else {
      ++tally.failed_frees;
    }
  }

  TraceHistory::Data const& data_;
  GpuMemoryManager manager_;
  std::optional<MemoryGuard> guard_;
  std::vector<AllocTag> tags_;
  ReplayTags mode_;
  std::vector<StreamId> streams_;
};

}  // namespace headroom::trace
