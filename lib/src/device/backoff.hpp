// How a thread waits for something that nothing signals: it yields at first, since whoever is in the way is running or about to, then
// sleeps, twice as long each time. Thread safety: none; one for each wait.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace headroom::device {

class Backoff {
public:
  struct Bounds {
    std::chrono::microseconds shortest, longest;
  };
  explicit Backoff(Bounds bounds) noexcept : length_{bounds.shortest}, longest_{bounds.longest} {}

  void once() {
    if (yields_ < kYields) {
      ++yields_;
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(length_);
    length_ = std::min(length_ * 2, longest_);
  }

private:
  static constexpr std::uint32_t kYields = 64;
  std::uint32_t yields_ = 0;
  std::chrono::microseconds length_;
  std::chrono::microseconds longest_;
};

}  // namespace headroom::device
