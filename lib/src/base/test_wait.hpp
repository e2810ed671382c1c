// Where the library waits for another thread, and the clock that bounds the wait: a test may put itself in their place, so that one
// scheduler decides who runs, who sleeps and when a deadline passes. Compiled out unless HEADROOM_TEST_POINTS is set: a release has
// the plain wait and the plain clock.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/test_point.hpp"

namespace headroom {

struct TestWaits {
  using Deadline = std::chrono::steady_clock::time_point;
  /// The time that deadlines are made from and measured against.
  Deadline (*now)() noexcept;
  /// Sleeps until wake(key), or until the deadline. False: the calling thread is none of the test's, and waits as in a release.
  bool (*sleep)(void const* key, Deadline deadline) noexcept;
  /// Beside the real wake-up, which still happens.
  void (*wake)(void const* key) noexcept;
};
/// Set by tests before their threads start; null: real waits.
// Written by the test (release), read wherever the library waits (acquire: the table's content).
inline constinit std::atomic<TestWaits const*> test_waits{nullptr};

/// The clock of every deadline in the guard.
[[nodiscard]] inline std::chrono::steady_clock::time_point steady_now() noexcept {
  if constexpr (kTestPoints) {
    if (auto const* const waits = test_waits.load(std::memory_order_acquire); waits != nullptr) return waits->now();
  }
  return std::chrono::steady_clock::now();
}

/// True: a test made the wait, which is over. Nothing may be locked.
[[nodiscard]] inline bool test_sleep(void const* key, std::chrono::steady_clock::time_point deadline) noexcept {
  if constexpr (kTestPoints) {
    if (auto const* const waits = test_waits.load(std::memory_order_acquire); waits != nullptr)
      return waits->sleep(key, deadline);
  } else {
    static_cast<void>(key);
    static_cast<void>(deadline);
  }
  return false;
}

inline void test_wake(void const* key) noexcept {
  if constexpr (kTestPoints) {
    if (auto const* const waits = test_waits.load(std::memory_order_acquire); waits != nullptr) waits->wake(key);
  } else {
    static_cast<void>(key);
  }
}

/// A condition variable whose waits a test may make. Its wakers change the condition under the waiters' mutex.
class RunEnded {
public:
  /// What `condition` says in the end, as std::condition_variable::wait_until.
  template <class Condition>
  [[nodiscard]] bool wait_until(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point deadline,
                                Condition&& condition) {
    if constexpr (kTestPoints) {
      while (!condition()) {
        lock.unlock();
        const bool slept = test_sleep(this, deadline);
        lock.lock();
        if (!slept) break;
        if (steady_now() >= deadline) return condition();
      }
    }
    return variable_.wait_until(lock, deadline, condition);
  }
  void notify_all() noexcept {
    test_wake(this);
    variable_.notify_all();
  }

private:
  std::condition_variable variable_;
};

}  // namespace headroom
