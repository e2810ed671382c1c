// Who may write a lane. The owner word is 0 or 1 + the thread's id; acquire and release order the old writer's last stores (rings,
// counters, tag cells) before the new writer's first loads of them, which then continue the same numbering.
#pragma once

#include <cstdint>

namespace headroom::flight {

template <class Atomics>
struct LaneOwner {
  using Word = typename Atomics::Word;

  /// Takes a free lane for good. One try: the caller goes on to the next lane.
  static bool take(Word& owner, std::uint64_t thread_id) noexcept {
    std::uint64_t expected = 0;
    return Atomics::load_relaxed(owner) == 0 && Atomics::cas_acquire(owner, expected, thread_id + 1);
  }
  /// Takes the lane of a thread that no longer exists.
  static bool take_over(Word& owner, std::uint64_t held_by, std::uint64_t thread_id) noexcept {
    return Atomics::cas_acquire(owner, held_by, thread_id + 1);
  }
  static void give_back(Word& owner) noexcept { Atomics::store_release(owner, 0); }

  /// A shared lane, for one record. Never waits.
  static bool try_enter(Word& owner) noexcept {
    return Atomics::load_relaxed(owner) == 0 && Atomics::exchange_acquire(owner, 1) == 0;
  }
  static void leave(Word& owner) noexcept { Atomics::store_release(owner, 0); }

  static constexpr std::uint64_t thread_of(std::uint64_t owner) noexcept { return owner - 1; }
};

}  // namespace headroom::flight
