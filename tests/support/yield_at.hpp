// Widens a window that is a few instructions long to a turn of the scheduler. Without test points in the library it does nothing.
#pragma once

#include <atomic>
#include <thread>

#include "base/test_point.hpp"

namespace headroom::test {

/// While it lives, each thread lets the others run first at every `every`-th of its passages through `point`: what they may find and
/// change in between they will, on two cores as on many.
class YieldAt {
public:
  explicit YieldAt(TestPoint point, unsigned every = 3) {
    wanted = point;
    one_in = every;
    test_point_handler.store(handle, std::memory_order_release);
  }
  ~YieldAt() { test_point_handler.store(nullptr, std::memory_order_release); }
  YieldAt(YieldAt const&) = delete;
  YieldAt& operator=(YieldAt const&) = delete;

private:
  static void handle(TestPoint at) noexcept {
    thread_local unsigned passages = 0;
    if (at == wanted && ++passages % one_in == 0) std::this_thread::yield();
  }
  // Written before the threads start.
  static inline TestPoint wanted{};
  static inline unsigned one_in = 1;
};

}  // namespace headroom::test
