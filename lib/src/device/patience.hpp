// How long a thread that other threads overtake keeps trying.
//
// On a loaded machine a thread may sleep for a second between two steps, and a thousand tries may pass in a millisecond: neither alone
// says that trying is in vain. So both must have happened. Thread safety: none; one for each request.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace headroom::device {

class Patience {
public:
  static constexpr std::chrono::seconds kLong{1};
  static constexpr std::uint32_t kOften = 1000;

  /// Counts one time of being overtaken; true when it was long and often enough to give up.
  [[nodiscard]] bool overtaken() noexcept { return ++times_ >= kOften && is_long(); }
  [[nodiscard]] bool is_long() const noexcept { return std::chrono::steady_clock::now() - start_ >= kLong; }

  /// Lets whoever is in the way go on. Short at first, since it is running or about to.
  void pause() const {
    if (times_ < kYields || is_long()) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }

private:
  static constexpr std::uint32_t kYields = 64;
  static constexpr std::chrono::microseconds kPause{100};
  std::uint32_t times_ = 0;
  std::chrono::steady_clock::time_point const start_ = std::chrono::steady_clock::now();
};

}  // namespace headroom::device
