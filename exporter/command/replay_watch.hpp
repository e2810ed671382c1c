// headroom: a thread beside a replay: counts its events, draws its progress, and ends it when its time is over.
//
// The replay itself calls nobody and waits for nobody; all that looks at it does so from here.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <thread>

#include <headroom/flight_reader.hpp>
#include <headroom/replay.hpp>

#include "command/event_count.hpp"

namespace headroom::command {

class ReplayWatch {
public:
  struct Options {
    std::optional<std::chrono::steady_clock::time_point> deadline;  ///< then request_stop() is called
    bool draws = false;                                             ///< a progress line on stderr
    std::uint64_t events = 0;                                       ///< of one loop
    std::uint64_t loops = 1;
  };

  /// Watches until finish(). `view`: this process's books; without them no events are counted.
  ReplayWatch(std::optional<flight::FlightView> const& view, Options options);

  [[nodiscard]] ReplayProgress* progress() noexcept { return &progress_; }
  /// Ends the thread and counts to the end; nothing without books.
  [[nodiscard]] std::optional<EventCounts> finish();

private:
  void run(std::stop_token const& token);
  void draw() const;

  std::optional<EventCounter> counter_;  // the thread's until it is joined
  Options options_;
  ReplayProgress progress_;
  std::jthread thread_;
};

}  // namespace headroom::command
