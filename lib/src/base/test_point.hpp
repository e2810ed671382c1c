// Named points between the steps of the protocols, where a test may stop a thread. Compiled out unless HEADROOM_TEST_POINTS is set:
// a release has neither the call nor the load.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom {

/// In the order of books: between which two steps a thread stands.
enum class TestPoint : std::uint8_t {
  allocate_before_claim,
  allocate_after_claim,
  allocate_after_driver,
  allocate_after_slot,
  allocate_after_admit,
  book_before_publish,
  book_before_record,
  free_before_driver,
  free_after_driver,
  free_after_slot,
  free_after_retire,
  free_after_unclaim,
};

#ifdef HEADROOM_TEST_POINTS
inline constexpr bool kTestPoints = true;
#else
inline constexpr bool kTestPoints = false;
#endif

using TestPointHandler = void (*)(TestPoint) noexcept;
/// Set by tests before their threads start; null does nothing.
inline constinit std::atomic<TestPointHandler> test_point_handler{nullptr};

inline void test_point(TestPoint point) noexcept {
  if constexpr (kTestPoints) {
    if (const auto handler = test_point_handler.load(std::memory_order_acquire); handler != nullptr) handler(point);
  } else {
    static_cast<void>(point);
  }
}

}  // namespace headroom
