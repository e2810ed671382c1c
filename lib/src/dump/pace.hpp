// How often a program writes a post-mortem by itself.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::dump {

/// Times are CLOCK_MONOTONIC in ns. Thread safety: any thread, wait-free.
class Pace {
public:
  static constexpr std::uint64_t kInterval = std::uint64_t{60} * 1'000'000'000;
  static constexpr std::uint64_t kAfterError = std::uint64_t{5} * 1'000'000'000;

  /// True: it is this caller's turn, and nobody else's for a minute.
  [[nodiscard]] bool take_turn(std::uint64_t now) noexcept {
    std::uint64_t next = next_.load(std::memory_order_relaxed);
    // One try: who loses, loses to another failure of this very moment.
    return now >= next && next_.compare_exchange_strong(next, now + kInterval, std::memory_order_relaxed);
  }
  /// Nothing came of the turn: the next failure that comes when something may have changed has another one.
  void turn_failed(std::uint64_t now) noexcept { next_.store(now + kAfterError, std::memory_order_relaxed); }

private:
  // From which on the next one may be written. CAS and load by whoever failed, stored by whose turn failed; relaxed: it decides only who
  // goes on, and what the writer uses has an exchange of its own.
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace headroom::dump
