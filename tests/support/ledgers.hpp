// The ledger behind a manager, for tests of what stands on ledgers; and who passed which test point.
#pragma once

#include <atomic>

#include <headroom/manager.hpp>

#include "base/test_point.hpp"
#include "manager/route.hpp"

namespace headroom::test {

/// By way of a byte that is allocated and given back at once.
inline ledger::Ledger& ledger_of(GpuMemoryManager& manager) {
  auto probe = manager.alloc<std::byte>(1).value();
  return manager::AllocationAccess::of(probe).route->ledger();
}

/// Counts who passes a test point, and lets them pass.
class PassedPoint {
public:
  explicit PassedPoint(TestPoint point) {
    wanted = point;
    passed = 0;
    test_point_handler.store(handle, std::memory_order_release);
  }
  ~PassedPoint() { test_point_handler.store(nullptr, std::memory_order_release); }
  PassedPoint(PassedPoint const&) = delete;
  PassedPoint& operator=(PassedPoint const&) = delete;
  static void wait_until_passed() { passed.wait(0); }

private:
  static void handle(TestPoint at) noexcept {
    if (at != wanted) return;
    passed = 1;
    passed.notify_all();
  }
  static inline TestPoint wanted{};
  static inline std::atomic<int> passed{0};
};

}  // namespace headroom::test
