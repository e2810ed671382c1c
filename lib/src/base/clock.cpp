#include "base/clock.hpp"

#include <ctime>

#include "base/checked.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace headroom {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
// Fixed point of the tick length: 2^-48 ns keeps the error of a whole year below a microsecond, and 128 bits hold the product.
constexpr unsigned kFractionBits = 48;
constexpr int kTries = 5;

/// 0 = not known yet. Written once, by the first thread that finishes (compare-exchange); later ones take its value, so that all
/// ticks of a process have one length. Relaxed: the word is the whole message. No std::call_once: a fork in the middle of it
/// would leave the child waiting for a thread that it does not have.
constinit std::atomic<std::uint64_t> ticks_per_second_word{0};

/// Nanoseconds per tick × 2^48, 0 = not known yet. Derived from the word above, so that all writers store the same; relaxed.
constinit std::atomic<std::uint64_t> tick_length_word{0};

std::uint64_t read_clock_ns(clockid_t id) noexcept {
  timespec now{};
  // Both clocks exist on every Linux, so that the only documented failures cannot happen.
  static_cast<void>(::clock_gettime(id, &now));
  return static_cast<std::uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<std::uint64_t>(now.tv_nsec);
}

#if defined(__x86_64__)

bool has_invariant_tsc() noexcept {
  constexpr unsigned kPowerManagementLeaf = 0x80000007;
  constexpr unsigned kInvariantTscBit = 1U << 8U;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(kPowerManagementLeaf, &eax, &ebx, &ecx, &edx) != 0 && (edx & kInvariantTscBit) != 0;
}

/// An interrupt between the two readings would spoil the pair: the tightest of several tries has none.
ClockTriple tightest_pair() noexcept {
  ClockTriple best{};
  auto best_width = kMaxUint64;
  for (int i = 0; i < 2 * kTries; ++i) {
    auto const before = detail::read_ticks(ClockKind::tsc);
    auto const monotonic_ns = detail::read_monotonic_ns();
    auto const width = detail::read_ticks(ClockKind::tsc) - before;
    if (width < best_width) {
      best_width = width;
      best = {.ticks = before + width / 2, .monotonic_ns = monotonic_ns, .realtime_ns = 0};
    }
  }
  return best;
}

std::uint64_t measure_tsc_rate() noexcept {
  constexpr std::uint64_t kSpinNs = 2'000'000;
  auto const start = tightest_pair();
  while (detail::read_monotonic_ns() - start.monotonic_ns < kSpinNs) _mm_pause();
  auto const end = tightest_pair();
  auto const ticks = static_cast<uint128>(end.ticks - start.ticks);
  return static_cast<std::uint64_t>(ticks * kNsPerSecond / (end.monotonic_ns - start.monotonic_ns));
}

#endif

std::uint64_t find_ticks_per_second() noexcept {
  std::uint64_t rate = kNsPerSecond;
#if defined(__x86_64__)
  if (clock_kind() == ClockKind::tsc) rate = measure_tsc_rate();
#elif defined(__aarch64__)
  if (clock_kind() == ClockKind::cntvct) asm volatile("mrs %0, cntfrq_el0" : "=r"(rate));
#endif
  return rate == 0 ? 1 : rate;
}

std::uint64_t find_tick_length() noexcept {
  // Rounded up: 2 × 10^9 ticks at that rate are then 10^9 ns, and not one less.
  auto const rate = ticks_per_second();
  auto const scaled = static_cast<uint128>(kNsPerSecond) << kFractionBits;
  auto const length = (scaled + rate - 1) / rate;
  auto const word = length > kMaxUint64 ? kMaxUint64 : static_cast<std::uint64_t>(length);
  tick_length_word.store(word, std::memory_order_relaxed);
  return word;
}

}  // namespace

namespace detail {

std::uint64_t read_monotonic_ns() noexcept { return read_clock_ns(CLOCK_MONOTONIC); }

ClockKind choose_clock_kind() noexcept {
  auto kind = ClockKind::monotonic;
#if defined(__x86_64__)
  if (has_invariant_tsc()) kind = ClockKind::tsc;
#elif defined(__aarch64__)
  kind = ClockKind::cntvct;
#endif
  clock_kind_word.store(static_cast<std::uint8_t>(kind), std::memory_order_relaxed);
  return kind;
}

}  // namespace detail

std::string_view to_string(ClockKind kind) noexcept {
  switch (kind) {
    case ClockKind::monotonic: return "monotonic";
    case ClockKind::tsc: return "tsc";
    case ClockKind::cntvct: return "cntvct";
  }
  return "unknown";
}

std::uint64_t ticks_per_second() noexcept {
  auto rate = ticks_per_second_word.load(std::memory_order_relaxed);
  if (rate != 0) return rate;
  auto const found = find_ticks_per_second();
  return ticks_per_second_word.compare_exchange_strong(rate, found, std::memory_order_relaxed) ? found : rate;
}

std::uint64_t ticks_to_ns(std::uint64_t ticks) noexcept {
  auto length = tick_length_word.load(std::memory_order_relaxed);
  if (length == 0) length = find_tick_length();
  auto const ns = (static_cast<uint128>(ticks) * length) >> kFractionBits;
  return ns > kMaxUint64 ? kMaxUint64 : static_cast<std::uint64_t>(ns);
}

ClockTriple clock_triple_now() noexcept {
  ClockTriple best{};
  auto best_width = kMaxUint64;
  for (int i = 0; i < kTries; ++i) {
    auto const before = ticks_now();
    auto const monotonic_ns = read_clock_ns(CLOCK_MONOTONIC);
    auto const realtime_ns = read_clock_ns(CLOCK_REALTIME);
    auto const width = ticks_now() - before;
    if (width < best_width) {
      best_width = width;
      best = {.ticks = before + width / 2, .monotonic_ns = monotonic_ns, .realtime_ns = realtime_ns};
    }
  }
  return best;
}

}  // namespace headroom
