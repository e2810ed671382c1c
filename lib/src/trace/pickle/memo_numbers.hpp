// Which memo entries were put: the same question in both passes, without the values.
//
// Picklers number entries from 0 without gaps, which takes one counter here; what comes out of order takes a bit.
#pragma once

#include <cstdint>

#include "trace/pickle/bit_pages.hpp"

namespace headroom::trace::pickle {

class MemoNumbers {
public:
  /// False: it was put before.
  bool put(std::uint64_t number) {
    if (number < dense_) return false;
    if (number > dense_) {
      if (beyond_.test(number)) return false;
      beyond_.set(number);
      ++beyond_count_;
      return true;
    }
    ++dense_;
    while (beyond_count_ != 0 && beyond_.test(dense_)) {
      ++dense_;
      --beyond_count_;
    }
    return true;
  }
  [[nodiscard]] bool has(std::uint64_t number) const noexcept {
    return number < dense_ || (beyond_count_ != 0 && beyond_.test(number));
  }
  /// How many: what MEMOIZE takes for its number.
  [[nodiscard]] std::uint64_t count() const noexcept { return dense_ + beyond_count_; }

private:
  std::uint64_t dense_ = 0;         // all below were put
  std::uint64_t beyond_count_ = 0;  // … and so many above
  BitPages beyond_;
};

}  // namespace headroom::trace::pickle
