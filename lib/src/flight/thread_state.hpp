// What the recorder knows of one thread: its lane, and whether it is inside a step that a signal handler must not break.
//
// The state is trivially constructed and destroyed, so that it can be read in any thread-exit order: a thread-local buffer that is
// destroyed after the lane was given back finds `ended` and uses the shared lanes. The lane itself is given back by a pthread key's
// destructor, which runs after the C++ thread_local destructors.
#pragma once

#include <atomic>
#include <cstdint>

#include <headroom/flight_format.hpp>

namespace headroom::flight {

/// Freed slots of the live table that a thread keeps for its next allocations: no read-modify-write for the common pair.
inline constexpr std::uint32_t kSlotCache = 8;

enum class LanePhase : std::uint8_t {
  fresh,   ///< has not emitted yet
  owned,   ///< holds a lane of its own
  shared,  ///< all owned lanes were taken: uses the shared ones
  ended,   ///< gave its lane back: uses the shared ones
};

struct ThreadState {
  LaneBooks* lane = nullptr;  ///< only in phase owned
  Word* main_ring = nullptr;
  Word* journal_ring = nullptr;
  std::uint32_t lane_index = 0;
  std::uint32_t thread_id = 0;
  std::uint32_t share_hint = 0;       ///< where this thread last found a free slot
  std::uint32_t in_flight_depth = 0;  ///< operations open on this thread: only the outermost owns the lane's word
  std::uint32_t cached_slots = 0;     ///< how many of slot_cache are filled
  std::uint32_t slot_cache[kSlotCache]{};
  /// While it is a ledger's cell, what this thread takes from that ledger and frees to it is added up here: what a hook really freed.
  /// This thread only.
  LedgerCell const* watched_ledger = nullptr;
  std::uint64_t watched_taken_bytes = 0;
  std::uint64_t watched_freed_bytes = 0;
  std::uint16_t scoped_tag = 0;
  LanePhase phase = LanePhase::fresh;
  /// True while the thread writes single-writer words. Read by its own signal handlers only: relaxed plus signal fences.
  std::atomic<bool> writing{false};
  /// This thread changed a pressure state that somebody listens to: told when its outermost operation is over. As `writing`.
  std::atomic<bool> notices_due{false};

  /// A nested operation (a signal handler's above all) may have interrupted the cache's owner half way through a change of it.
  [[nodiscard]] bool may_cache_slots() const noexcept { return phase == LanePhase::owned && in_flight_depth <= 1; }
};

/// Initial-exec TLS (compile option): reading it is one instruction relative to the thread pointer.
extern thread_local constinit ThreadState thread_state;

/// Gives a fresh thread its lane. The recorder must be up.
void attach_thread(ThreadState& state) noexcept;

[[nodiscard]] inline ThreadState& this_thread() noexcept {
  ThreadState& state = thread_state;
  if (state.phase == LanePhase::fresh) [[unlikely]] {
    attach_thread(state);
  }
  return state;
}

/// Makes the pthread key whose destructor gives lanes back. Called once by the recorder's start.
void prepare_thread_exit() noexcept;

/// In a forked child: the lane belongs to the parent's thread.
void forget_thread_after_fork() noexcept;

/// The scope in which this thread writes its lane's single-writer words. A signal handler that interrupts it finds `writing` set and
/// takes the shared words instead.
class LaneSection {
public:
  explicit LaneSection(ThreadState& state) noexcept : state_(state), reentrant_(state.writing.load(std::memory_order_relaxed)) {
    if (!reentrant_) state_.writing.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~LaneSection() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!reentrant_) state_.writing.store(false, std::memory_order_relaxed);
  }
  LaneSection(LaneSection const&) = delete;
  LaneSection& operator=(LaneSection const&) = delete;

  /// The lane whose words this thread may store to, or null: then shared words and fetch_add.
  [[nodiscard]] LaneBooks* lane() const noexcept { return reentrant_ ? nullptr : state_.lane; }
  [[nodiscard]] bool reentrant() const noexcept { return reentrant_; }
  [[nodiscard]] ThreadState& thread() const noexcept { return state_; }

private:
  ThreadState& state_;
  bool reentrant_;
};

}  // namespace headroom::flight
