// Deadlines from limits that anybody may set.
#pragma once

#include <chrono>

namespace headroom::guard {

/// `wait` after `now`. A limit that nobody lives to see must not wrap.
[[nodiscard]] constexpr std::chrono::steady_clock::time_point after(std::chrono::steady_clock::time_point now,
                                                                    std::chrono::nanoseconds wait) noexcept {
  using Time = std::chrono::steady_clock::time_point;
  return wait < Time::max() - now ? now + wait : Time::max();
}

}  // namespace headroom::guard
