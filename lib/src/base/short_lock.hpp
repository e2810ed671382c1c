// A lock for sections of a few dozen instructions: one read-modify-write to take it, a store to give it back, where a mutex needs two
// and two calls. Whoever finds it taken spins for a moment, then lets others run, then sleeps in short naps, so that a holder that
// lost its processor, at whatever priority, gets it back.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headroom {

class ShortLock {
public:
  void lock() noexcept {
    if (taken_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      wait();
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

private:
  void wait() noexcept {
    for (std::uint32_t round = 0;; ++round) {
      if (!taken_.load(std::memory_order_relaxed) && !taken_.exchange(true, std::memory_order_acquire)) return;
      if (round < kSpins) {
#if defined(__x86_64__)
        _mm_pause();
#elif defined(__aarch64__)
        asm volatile("isb");
#endif
      } else if (round < kSpins + kYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds{50});
      }
    }
  }

  static constexpr std::uint32_t kSpins = 100;
  static constexpr std::uint32_t kYields = 100;

  // Written by whoever takes and gives back the lock, read by whoever wants it. Acquire on taking pairs with release on giving back:
  // the next holder sees all that the last one wrote. The relaxed load only spares the line a write while the lock is taken.
  std::atomic<bool> taken_{false};
};

}  // namespace headroom
