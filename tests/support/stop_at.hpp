// One thread stopped exactly between two steps. Only in builds with test points: without them it would wait for ever.
#pragma once

#include <atomic>
#include <thread>

#include "base/test_point.hpp"

namespace headroom::test {

/// Stops the first thread that reaches `point`, until release() or the end of its scope.
class StopAt {
public:
  explicit StopAt(TestPoint point) {
    wanted = point;
    state = kArmed;
    test_point_handler.store(handle, std::memory_order_release);
  }
  ~StopAt() {
    release();
    test_point_handler.store(nullptr, std::memory_order_release);
  }
  StopAt(StopAt const&) = delete;
  StopAt& operator=(StopAt const&) = delete;
  static void wait_until_reached() { state.wait(kArmed); }
  static void release() {
    state = kReleased;
    state.notify_all();
  }

private:
  static constexpr int kArmed = 0, kReached = 1, kReleased = 2;
  static void handle(TestPoint at) noexcept {
    int expected = kArmed;
    if (at != wanted || !state.compare_exchange_strong(expected, kReached)) return;
    state.notify_all();
    state.wait(kReached);
  }
  static inline TestPoint wanted{};
  static inline std::atomic<int> state{kArmed};
};

/// Runs `operation` on a thread of its own, `meanwhile` on this one while that thread stands at `point`, and returns when both are
/// through.
template <class Operation, class Meanwhile>
void while_stopped_at(TestPoint point, Operation&& operation, Meanwhile&& meanwhile) {
  std::thread worker;
  {
    const StopAt stop{point};
    worker = std::thread{[&operation] { operation(); }};
    StopAt::wait_until_reached();
    meanwhile();
  }
  worker.join();
}

}  // namespace headroom::test
