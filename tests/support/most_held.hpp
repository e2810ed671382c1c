// How many threads held something at once.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::test {

/// Counts what is held from after the grant until before the return: never more than really is.
class MostHeld {
public:
  void took() noexcept {
    const std::uint64_t now = ++held_;
    std::uint64_t seen = most_.load();
    while (seen < now && !most_.compare_exchange_weak(seen, now)) {
    }
  }
  void gives() noexcept { --held_; }
  [[nodiscard]] std::uint64_t most() const noexcept { return most_; }

private:
  // Any thread, seq_cst throughout: a count that is too high for an instant would fail a test that is right.
  std::atomic<std::uint64_t> held_{0};
  std::atomic<std::uint64_t> most_{0};
};

}  // namespace headroom::test
