#include "flight/thread_state.hpp"

#include <algorithm>
#include <cstring>

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomics.hpp"
#include "base/clock.hpp"
#include "base/test_point.hpp"
#include "flight/emit.hpp"
#include "flight/lane_owner.hpp"
#include "flight/live_table.hpp"
#include "flight/recorder.hpp"

namespace headroom::flight {

thread_local constinit ThreadState thread_state;

namespace {

pthread_key_t exit_key;
bool exit_key_made = false;  // written before the recorder is up, read only after

bool thread_is_gone(std::uint64_t thread_id) noexcept {
  return syscall(SYS_tgkill, getpid(), static_cast<pid_t>(thread_id), 0) != 0 && errno == ESRCH;
}

// A lane that nobody owns, else one whose thread died without its exit handler; kOwnedLanes when there is none.
std::uint32_t find_lane(std::uint64_t thread_id) noexcept {
  using Owner = LaneOwner<StdAtomics>;
  for (std::uint32_t i = 0; i < kOwnedLanes; ++i) {
    if (Owner::take(recorder.lane(i).header.owner, thread_id)) return i;
  }
  for (std::uint32_t i = 0; i < kOwnedLanes; ++i) {
    Word& owner = recorder.lane(i).header.owner;
    const std::uint64_t held_by = owner.load(std::memory_order_relaxed);
    if (held_by != 0 && thread_is_gone(Owner::thread_of(held_by)) && Owner::take_over(owner, held_by, thread_id)) return i;
  }
  return kOwnedLanes;
}

void remember_use_of(std::uint32_t lane) noexcept {
  std::uint64_t used = recorder.header->lanes_used.load(std::memory_order_relaxed);
  while (used < lane + 1 && !recorder.header->lanes_used.compare_exchange_weak(used, lane + 1, std::memory_order_relaxed)) {
  }
}

void put_thread_name(LaneHeader& header) noexcept {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  for (std::size_t i = 0; i < 2; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, name + 8 * i, 8);
    header.thread_name[i].store(word, std::memory_order_relaxed);
  }
}

void give_lane_back(void*) noexcept {
  ThreadState& state = thread_state;
  if (state.phase != LanePhase::owned) return;
  emit_thread(EventKind::thread_detach, state);
  LaneBooks& lane = *state.lane;
  // From here on no signal handler keeps slots in the cache, which would be lost or, half way through the flush, given out twice.
  state.phase = LanePhase::ended;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  flush_slot_cache(state);
  test_point(TestPoint::lane_before_give_back);
  state.lane = nullptr;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  lane.header.in_flight.store(0, std::memory_order_release);
  LaneOwner<StdAtomics>::give_back(lane.header.owner);
}

}  // namespace

void prepare_thread_exit() noexcept { exit_key_made = pthread_key_create(&exit_key, give_lane_back) == 0; }

void attach_thread(ThreadState& state) noexcept {
  // A signal handler that emits in here must not take a second lane.
  state.phase = LanePhase::shared;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  state.thread_id = static_cast<std::uint32_t>(syscall(SYS_gettid));
  state.share_hint = state.thread_id;
  const std::uint32_t index = find_lane(state.thread_id);
  if (index == kOwnedLanes) return;

  LaneBooks& lane = recorder.lane(index);
  put_thread_name(lane.header);
  lane.header.attached_ticks.store(ticks_now(), std::memory_order_relaxed);
  state.main_ring = recorder.main_ring(lane);
  state.journal_ring = recorder.journal_ring(lane);
  state.lane_index = index;
  state.share_hint = index;
  state.lane = &lane;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  state.phase = LanePhase::owned;
  remember_use_of(index);
  // Without the key the lane stays owned until someone finds the thread gone.
  if (exit_key_made) pthread_setspecific(exit_key, &state);
  emit_thread(EventKind::thread_attach, state);
}

void forget_thread_after_fork() noexcept {
  ThreadState& state = thread_state;
  state.lane = nullptr;
  state.phase = LanePhase::ended;
  state.in_flight_depth = 0;
  state.cached_slots = 0;
  state.writing.store(false, std::memory_order_relaxed);
}

}  // namespace headroom::flight
