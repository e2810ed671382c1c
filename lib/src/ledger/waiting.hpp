// Waiting for room in a ledger, without losing a wake-up.
//
// The waiter announces itself (waiters + 1), reads the epoch, tries its claim, and sleeps only while the epoch is the one it read.
// Whoever gave bytes back loads the count afterwards: either it sees the waiter and moves the epoch, or the waiter's claim, later in
// the one order of seq_cst operations, sees the bytes. No order among waiters is promised: one large request would hold up small
// ones that fit. The deadline is the only bound.
#pragma once

#include <chrono>
#include <cstdint>

#include <headroom/flight_format.hpp>

namespace headroom::ledger {

template <class Atomics>
struct WaitProtocol {
  using Word = typename Atomics::Word;

  static void announce(Word& waiters) noexcept { Atomics::fetch_add_seq_cst(waiters, 1); }
  static void leave(Word& waiters) noexcept { Atomics::fetch_add_seq_cst(waiters, ~std::uint64_t{0}); }
  static std::uint64_t epoch(Word const& epoch_word) noexcept { return Atomics::load_seq_cst(epoch_word); }

  /// After each decrease of claim, each change of limit and of policy. True when somebody must be woken.
  static bool bump_if_awaited(Word const& waiters, Word& epoch_word) noexcept {
    if (Atomics::load_seq_cst(waiters) == 0) return false;
    Atomics::fetch_add_seq_cst(epoch_word, 1);
    return true;
  }
};

/// Sleeps until the epoch's low half differs from `seen`, or the deadline. Spurious returns are fine: callers try their claim again.
void sleep_on_epoch(flight::Word& epoch_word, std::uint64_t seen, std::chrono::steady_clock::time_point deadline) noexcept;
void wake_all(flight::Word& epoch_word) noexcept;

}  // namespace headroom::ledger
