// headroom: times of day that go past midnight.
#pragma once

#include <cstdint>

namespace headroom::trace {

/// RMM's log has times of day without a date. This adds the days: a time that jumps back by more than an hour is on the next day,
/// and one that would so jump forward by nearly a day is a straggler of the day before.
/// Within an hour, threads may log out of order.
class DayClock {
public:
  [[nodiscard]] std::uint64_t unwrap(std::uint64_t time_of_day_us) noexcept {
    constexpr std::uint64_t kHourUs = std::uint64_t{3600} * 1'000'000;
    constexpr auto kDayUs = 24 * kHourUs;
    auto time_us = midnight_us_ + time_of_day_us;
    if (time_us + kHourUs < last_us_) {
      midnight_us_ += kDayUs;
      time_us += kDayUs;
    } else if (midnight_us_ != 0 && time_us - kDayUs + kHourUs >= last_us_ && time_us > last_us_ + kHourUs) {
      // It leaves last_us_ alone, or the next record of the new day would count as one more jump back.
      return time_us - kDayUs;
    }
    last_us_ = time_us;
    return time_us;
  }

private:
  std::uint64_t midnight_us_ = 0;
  std::uint64_t last_us_ = 0;
};

}  // namespace headroom::trace
