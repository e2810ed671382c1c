// The lock-free protocols of one ledger, as templates over an atomics policy (see base/atomics.hpp). Only these functions change
// claim, alloc, peak, limit and the pressure word.
//
// Why claim carries a version: a refusal may only be spoken when the claim word did not move while the limit was looked at, and a
// changed limit must make every claim that was checked against the old one fail its CAS. 20 bits of version could come round between
// a load and a CAS only if 2^20 claims fell into those few instructions and left the very same bytes.
#pragma once

#include <cstdint>

#include <headroom/flight_format.hpp>
#include <headroom/pressure.hpp>

#include "base/test_point.hpp"

namespace headroom::ledger {

using flight::kBytesMask;
using flight::kLimitEnforcing;
using flight::kLimitNone;
using flight::kNumberOne;

enum class ClaimOutcome : std::uint8_t {
  granted,
  observed,  ///< granted by an observing budget that an enforcing one would have refused
  refused,
  overflow,  ///< the sum cannot be represented; nothing was looked at or changed
};

struct ClaimResult {
  ClaimOutcome outcome = ClaimOutcome::granted;
  std::uint64_t claimed_before = 0;  ///< bytes, at the instant of the decision
  std::uint64_t limit_word = 0;      ///< in force at that instant
};

template <class Atomics>
struct Protocol {
  using Word = typename Atomics::Word;

  // ── claim ──

  /// Refuses only if bytes + n > limit held at one instant: the claim word was the same before and after the limit was loaded.
  static ClaimResult claim(Word& claim_word, Word const& limit_word, std::uint64_t n) noexcept {
    if (n > kBytesMask) {
      return {.outcome = ClaimOutcome::overflow,
              .claimed_before = Atomics::load_acquire(claim_word) & kBytesMask,
              .limit_word = Atomics::load_acquire(limit_word)};
    }
    // seq_cst: a waiter that announced itself must not miss a give-back that happened before its announcement (see waiting).
    std::uint64_t seen = Atomics::load_seq_cst(claim_word);
    for (;;) {
      const std::uint64_t limit = Atomics::load_seq_cst(limit_word);
      const std::uint64_t bytes = seen & kBytesMask;
      const bool enforcing = (limit & kLimitEnforcing) != 0;
      const std::uint64_t most = enforcing ? limit & kBytesMask : kBytesMask;
      if (bytes > most || n > most - bytes) {
        const std::uint64_t again = Atomics::load_seq_cst(claim_word);
        if (again == seen) {
          return {.outcome = enforcing ? ClaimOutcome::refused : ClaimOutcome::overflow,
                  .claimed_before = bytes,
                  .limit_word = limit};
        }
        seen = again;
        continue;
      }
      test_point(TestPoint::claim_before_exchange);
      // The version moves with each claim, so that "the same word" above means "nothing happened".
      if (Atomics::cas_seq_cst(claim_word, seen, seen + kNumberOne + n)) {
        const bool none = (limit & kLimitNone) != 0;
        const std::uint64_t judged_by = limit & kBytesMask;
        const bool over = !enforcing && !none && (bytes > judged_by || n > judged_by - bytes);
        return {.outcome = over ? ClaimOutcome::observed : ClaimOutcome::granted, .claimed_before = bytes, .limit_word = limit};
      }
    }
  }

  /// Whether claim() would grant n now; changes nothing. A refusal is as well founded as one of claim(): it held at one instant.
  static ClaimResult look(Word const& claim_word, Word const& limit_word, std::uint64_t n) noexcept {
    std::uint64_t seen = Atomics::load_seq_cst(claim_word);
    for (;;) {
      const std::uint64_t limit = Atomics::load_seq_cst(limit_word);
      const std::uint64_t again = Atomics::load_seq_cst(claim_word);
      if (again == seen) {
        const std::uint64_t bytes = seen & kBytesMask;
        const bool enforcing = (limit & kLimitEnforcing) != 0;
        const std::uint64_t most = enforcing ? limit & kBytesMask : kBytesMask;
        const bool fits = bytes <= most && n <= most - bytes;
        return {.outcome = fits        ? ClaimOutcome::granted
                           : enforcing ? ClaimOutcome::refused
                                       : ClaimOutcome::overflow,
                .claimed_before = bytes,
                .limit_word = limit};
      }
      seen = again;
    }
  }

  /// Every decrease of the claim. The caller then wakes waiters and judges the pressure.
  static void give_back(Word& claim_word, std::uint64_t n) noexcept { Atomics::fetch_add_seq_cst(claim_word, kNumberOne - n); }

  /// Stores the limit, then moves claim's version: a claim that was checked against the old limit fails its CAS and checks again.
  static void set_limit(Word& limit_word, Word& claim_word, std::uint64_t limit) noexcept {
    Atomics::store_seq_cst(limit_word, limit);
    Atomics::fetch_add_seq_cst(claim_word, kNumberOne);
  }

  // ── alloc and peak ──

  /// Adds n to allocated; the result is the record's "allocated after" and operation number.
  static std::uint64_t admit(Word& alloc_word, std::uint64_t n) noexcept {
    return Atomics::fetch_add_seq_cst(alloc_word, kNumberOne + n) + kNumberOne + n;
  }
  static std::uint64_t retire(Word& alloc_word, std::uint64_t n) noexcept {
    return Atomics::fetch_add_seq_cst(alloc_word, kNumberOne - n) + kNumberOne - n;
  }

  /// True when `alloc` was a new peak. Its number half names the operation that set it.
  static bool raise_peak(Word& peak_word, std::uint64_t alloc) noexcept {
    std::uint64_t peak = Atomics::load_seq_cst(peak_word);
    while ((alloc & kBytesMask) > (peak & kBytesMask)) {
      if (Atomics::cas_seq_cst(peak_word, peak, alloc)) return true;
    }
    return false;
  }

  /// Peak := allocated. The second look at alloc catches an allocation whose raise came before the exchange.
  static void reset_peak(Word& peak_word, Word const& alloc_word) noexcept {
    Atomics::exchange_seq_cst(peak_word, Atomics::load_seq_cst(alloc_word));
    raise_peak(peak_word, Atomics::load_seq_cst(alloc_word));
  }

  // ── pressure: one word {sequence (56), level (8)} ──

  /// `margin_word` as stored. next = max(level(used), min(state, level(used + margin))): up at once, down only when the margin is free too.
  static constexpr PressureLevel next_level(PressureLevel state, std::uint64_t used, std::uint64_t limit,
                                            std::uint64_t margin_word) noexcept {
    if ((limit & kLimitNone) != 0) return PressureLevel::none;
    const std::uint64_t budget = limit & kBytesMask;
    const PressureLevel now = pressure_level(used, budget);
    if (now >= state) return now;
    const PressureLevel with_margin = pressure_level(used + margin_bytes(margin_word, limit), budget);
    return with_margin < state ? (with_margin > now ? with_margin : now) : state;
  }

  struct Transition {
    PressureLevel from{};
    PressureLevel to{};
    std::uint64_t sequence = 0;
  };

  /// Brings the state in line with the ledger as it is now; calls `told(Transition)` for each change that this thread made. Whoever
  /// changes claim or limit judges afterwards, so the state at rest is right: a CAS made on old figures is followed by another look.
  template <class Told>
  static void judge_pressure(Word& pressure_word, Word const& claim_word, Word const& limit_word, Word const& margin_word,
                             Told&& told) {
    std::uint64_t state = Atomics::load_seq_cst(pressure_word);
    for (;;) {
      const std::uint64_t used = Atomics::load_seq_cst(claim_word) & kBytesMask;
      const std::uint64_t limit = Atomics::load_seq_cst(limit_word);
      const auto from = static_cast<PressureLevel>(state & 0xFF);
      const PressureLevel to = next_level(from, used, limit, Atomics::load_relaxed(margin_word));
      if (to == from) return;
      const std::uint64_t desired = ((state >> 8) + 1) << 8 | static_cast<std::uint8_t>(to);
      if (Atomics::cas_seq_cst(pressure_word, state, desired)) {
        told(Transition{from, to, desired >> 8});
        state = desired;
      }
    }
  }

  /// The margin word holds bytes + 1; 0 stands for 1 % of the budget.
  static constexpr std::uint64_t margin_bytes(std::uint64_t margin_word, std::uint64_t limit) noexcept {
    return margin_word == 0 ? (limit & kBytesMask) / 100 : margin_word - 1;
  }
};

/// The limit word of a budget.
[[nodiscard]] constexpr std::uint64_t pack_limit(std::uint64_t bytes, bool enforcing, bool none) noexcept {
  return (none ? kLimitNone : 0) | (enforcing ? kLimitEnforcing : 0) | (bytes & kBytesMask);
}

}  // namespace headroom::ledger
