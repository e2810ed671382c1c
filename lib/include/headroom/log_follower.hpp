// headroom: a thread that brings the lines of LoggingResources to their sinks.
// Layer: trace
//
//   auto logged = LoggingResource::create(resource).value();
//   auto csv = CsvSink::create("allocations.csv").value();
//   auto follower = LogFollower::start({.sinks = {csv}}).value();
//
// The threads that allocate write events into their lanes and know nothing of followers; a follower reads the lanes behind them,
// merges what is new by time and hands it to each of its sinks. What a thread wrote too fast was overwritten before it was read:
// lost() says exactly how many lines that were, and lines() + lost() = operations() of what is followed, from the follower's start to
// its last flush. With HEADROOM_FLIGHT=off there are no events: all is lost, and said to be.
//
// Order: by time, over all threads. Only a line that its thread was still writing down when the follower looked may come after
// younger ones: of other threads, or of its own when one of the two is a failure (failures stand in a ring of their own).
//
// When not: to look at another process, or at one that ended, open its flight file (flight_reader.hpp).
//
// Ownership: the follower owns its thread, the only one that anything in the library starts, and shares its sinks. stop() and the
// destructor bring the last lines to the sinks.
// Thread safety: any member from any thread, from a sink too (but flush(), which would wait for itself, refuses there). Sinks are
// called with no lock held. In a forked child a follower has no thread and does nothing.
// Cost: to threads that allocate none. A poll without news takes some microseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/log_sink.hpp>
#include <headroom/logging_resource.hpp>

namespace headroom {

struct LogFollowerOptions {
  /// Whose lines; null: of every LoggingResource of the process, also of those made later. Need not outlive the start.
  LoggingResource const* resource = nullptr;
  std::vector<std::shared_ptr<LogSink>> sinks{};
  /// Pause between polls while there is little to do, 0 … 1 h. A lane keeps about 2,000 allocations and frees of its thread, half as
  /// many under a manager, which writes an event of its own for each; and about 120 events in its journal, where failures stand.
  std::chrono::nanoseconds poll_interval = std::chrono::milliseconds{10};
  /// The longest that flush() and stop() wait for slow sinks, 0 … 1 h.
  std::chrono::nanoseconds patience = std::chrono::seconds{10};
};

class LogFollower {
public:
  /// Lines from here on go to the sinks. Errors: invalid_argument (no sinks, a null one, the same one twice, intervals out of their
  /// range), unsupported (in a forked child), io (no memory for the flight file, no thread).
  [[nodiscard]] static Result<LogFollower> start(LogFollowerOptions options);

  LogFollower(LogFollower&&) noexcept;
  LogFollower& operator=(LogFollower&&) noexcept;  ///< stops the one that was here
  ~LogFollower();

  /// Brings every line that was written before the call to all sinks, and flushes them. Errors: what a sink answered meanwhile (the
  /// others got their lines), io (a sink took longer than the patience; the flush goes on), invalid_argument (called by a sink),
  /// unsupported (stopped, moved from, or in a forked child).
  [[nodiscard]] Result<void> flush();

  /// The same once more, then the thread ends. If a sink takes longer than the patience, the thread is left behind and ends when the
  /// sink returns. Called by a sink: ends after it. Again: does nothing.
  void stop() noexcept;

  [[nodiscard]] bool is_running() const noexcept;
  /// Lines handed to the sinks so far.
  [[nodiscard]] std::uint64_t lines() const noexcept;
  /// Lines that could not be read any more, or were never written: exact as of the newest poll.
  [[nodiscard]] std::uint64_t lost() const noexcept;
  /// Calls of this sink that failed or threw; 0 for one that is not ours.
  [[nodiscard]] std::uint64_t failures(LogSink const& sink) const noexcept;
  /// What the newest of them said; empty without any.
  [[nodiscard]] std::string last_failure(LogSink const& sink) const;

private:
  class Core;
  explicit LogFollower(std::shared_ptr<Core> core) noexcept;
  std::shared_ptr<Core> core_;
};

}  // namespace headroom
