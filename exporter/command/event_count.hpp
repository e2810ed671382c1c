// headroom: how many events a flight file recorded, and how many could be read.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <headroom/flight_reader.hpp>

namespace headroom::command {

struct EventCounts {
  std::uint64_t recorded = 0;  ///< sum of all heads
  std::uint64_t read = 0;
  std::uint64_t lost = 0;  ///< overwritten before they were read; read + lost = recorded
};

/// Counts from the first record on. One thread at a time.
class EventCounter {
public:
  explicit EventCounter(flight::FlightView view) : reader_{std::move(view), flight::EventReader::Start::zero} {}

  /// Reads what is new. `dead`: nobody writes any more, so the block that a living writer may be in can be read too.
  void poll(bool dead = false) {
    events_.clear();
    gaps_.clear();
    reader_.poll(events_, gaps_, dead);
  }

  /// Polls until the file was quiet for the time of a poll, or for long enough that it never is: then its own sum stands for the
  /// heads, which is what they were at the last poll.
  [[nodiscard]] EventCounts finish(bool dead = false) {
    constexpr int kPolls = 50;
    for (int i = 0; i < kPolls; ++i) {
      poll(dead);
      auto const recorded = reader_.view().process().events_recorded;
      if (recorded == reader_.accepted() + reader_.lost()) break;
    }
    return {.recorded = reader_.accepted() + reader_.lost(), .read = reader_.accepted(), .lost = reader_.lost()};
  }

private:
  flight::EventReader reader_;
  std::vector<flight::Event> events_;  // kept for their memory
  std::vector<flight::Gap> gaps_;
};

}  // namespace headroom::command
