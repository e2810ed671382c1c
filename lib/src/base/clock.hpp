// headroom: the clock of the event lanes.
//
// ticks_now() is the raw cycle counter where it runs at one rate on every core (invariant TSC on x86-64, the generic timer on
// AArch64) and CLOCK_MONOTONIC elsewhere: 8 ns instead of 18 on the path of every event. Ticks of one process compare with each
// other; to show them as time, a reader interpolates between ClockTriples (a flight file has many), and ticks_to_ns() turns a
// short difference into nanoseconds.
//
// Thread safety: all of it, from any thread and signal handler; no locks, no allocation, and a fork at any moment is harmless.
// Cost: ticks_now() is one relaxed load and one instruction; the first ticks_per_second() spins for about 2 ms on x86-64.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace headroom {

/// Which counter the ticks are. Stored in flight files: numbers never change.
enum class ClockKind : std::uint8_t { monotonic = 1, tsc = 2, cntvct = 3 };

[[nodiscard]] std::string_view to_string(ClockKind kind) noexcept;

/// The same instant on three clocks: ticks, CLOCK_MONOTONIC and CLOCK_REALTIME (both in ns).
struct ClockTriple {
  std::uint64_t ticks = 0;
  std::uint64_t monotonic_ns = 0;
  std::uint64_t realtime_ns = 0;
};

namespace detail {

/// 0 = not chosen yet, else a ClockKind. Written by any thread that finds 0, read by every ticks_now(); relaxed both ways, since
/// every writer stores the same value and nothing else depends on it. Constant-initialised: ticks_now() needs no guard variable.
inline constinit std::atomic<std::uint8_t> clock_kind_word{0};

[[nodiscard]] ClockKind choose_clock_kind() noexcept;
[[nodiscard]] std::uint64_t read_monotonic_ns() noexcept;

[[nodiscard]] inline std::uint64_t read_ticks(ClockKind kind) noexcept {
#if defined(__x86_64__)
  // Not serialised: a few cycles of reordering cost less than the fence, and an event needs no more.
  if (kind == ClockKind::tsc) return __rdtsc();
#elif defined(__aarch64__)
  if (kind == ClockKind::cntvct) {
    std::uint64_t ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
  }
#endif
  static_cast<void>(kind);
  return read_monotonic_ns();
}

}  // namespace detail

[[nodiscard]] inline ClockKind clock_kind() noexcept {
  auto const word = detail::clock_kind_word.load(std::memory_order_relaxed);
  return word != 0 ? static_cast<ClockKind>(word) : detail::choose_clock_kind();
}

/// Now, in ticks of clock_kind().
[[nodiscard]] inline std::uint64_t ticks_now() noexcept { return detail::read_ticks(clock_kind()); }

/// Now, and not before anything that this thread has read so far: whoever saw what another thread wrote after its own reading reads
/// a later time. ticks_now() may be early by as long as a cache miss takes, since the processor does not wait for loads before it.
[[nodiscard]] inline std::uint64_t ticks_now_ordered() noexcept {
  auto const kind = clock_kind();
#if defined(__x86_64__)
  if (kind == ClockKind::tsc) _mm_lfence();
#elif defined(__aarch64__)
  if (kind == ClockKind::cntvct) asm volatile("isb" ::: "memory");
#endif
  return detail::read_ticks(kind);
}

/// Ticks in one second, never 0: exact for monotonic and cntvct, measured once (to about 100 ppm) for tsc.
[[nodiscard]] std::uint64_t ticks_per_second() noexcept;

/// A difference of ticks in nanoseconds, rounded down; more than 2^64 − 1 ns (584 years) becomes 2^64 − 1.
[[nodiscard]] std::uint64_t ticks_to_ns(std::uint64_t ticks) noexcept;

/// The three clocks read together; the ticks are the middle of the tightest of five tries.
[[nodiscard]] ClockTriple clock_triple_now() noexcept;

}  // namespace headroom
