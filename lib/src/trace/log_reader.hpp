// The lines of LoggingResources as they come out of this process's lanes: read, merged by time, counted. A LogFollower without its
// thread and sinks.
//
// Thread safety: belongs to one thread. Cost: three loads for each ring and poll, about 100 ns a line.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/log_sink.hpp>

#include "flight/log_lines.hpp"

namespace headroom::trace {

/// Whose lines. Null counts: of all logs.
struct FollowedLog {
  std::shared_ptr<flight::LogCounts const> counts;
  std::uint32_t number = 0;
};

class LogReader {
public:
  /// Starts behind every line that was counted before the call. `view` is of this process.
  LogReader(flight::FlightView view, FollowedLog log);

  /// Everything counted before the call is read or lost after it. Appends lines to `lines`; those that are younger than the call
  /// are kept for the next one, so that a line of another lane can still come before them, unless `to_the_end`.
  /// May throw bad_alloc: then nothing is lost but time, and the next poll goes on.
  void poll(std::vector<LogLine>& lines, bool to_the_end);

  /// Lines that were overwritten before they were read, or refused when they were written. Exact after each poll.
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }

private:
  struct Follow {               // one ring
    std::uint64_t next = 0;     // number of the line that comes next: all below are read or lost
    std::uint64_t counted = 0;  // what the ring's count said before it was read
  };
  static constexpr std::size_t kRings = 2;

  [[nodiscard]] std::uint64_t count_of(std::uint32_t lane, std::size_t ring) const noexcept;
  [[nodiscard]] std::uint64_t refused() const noexcept;
  void load_counts() noexcept;
  void take_new();
  void write_off_the_rest() noexcept;
  [[nodiscard]] LogLine line_of(flight::Event const& event, flight::ClockMap const& clock);

  flight::EventReader reader_;
  FollowedLog log_;
  std::array<std::array<Follow, kRings>, flight::kLaneCount> follows_{};
  std::vector<flight::Event> polled_;
  std::vector<flight::Gap> gaps_;
  std::vector<flight::Event> waiting_;  // read and counted, but not handed out yet
  std::uint64_t refused_ = 0;           // as counted so far
  std::uint64_t refused_now_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t last_time_ns_ = 0;
};

}  // namespace headroom::trace
