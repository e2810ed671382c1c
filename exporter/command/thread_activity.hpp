// headroom: what each thread of a process is doing right now, or was when the process died.
//
// It comes from the flight file's thread states: the operation that a lane has in flight, and the hooks that run. Of a process whose
// requests were refused the journal is read besides, for who waits for room or for a callback; of all others no event is, so that two
// hundred processes take milliseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <headroom/flight_reader.hpp>

#include "command/process_figures.hpp"

namespace headroom::command {

struct ThreadActivity {
  std::uint64_t thread = 0;  ///< as the system numbers it; 0 unknown
  std::string name;
  flight::InFlight operation = flight::InFlight::none;
  std::uint64_t bytes = 0;
  std::string manager, device;                     ///< of the operation; empty when unknown
  std::optional<std::uint64_t> since_realtime_ns;  ///< of the operation
  std::optional<double> seconds;                   ///< it has taken; absent for the dead, whose end nobody noted
  std::string hook;                                ///< that runs on this thread; empty: none
  std::uint64_t hook_limit_ns = 0;                 ///< 0: unknown
  std::optional<std::uint64_t> hook_since_realtime_ns;
  std::optional<double> hook_seconds;
  /// What is being done about a request of `bytes` that was refused; absent: nothing, or an operation is in flight in it.
  std::optional<flight::PolicyStep> short_of_memory;
  [[nodiscard]] bool idle() const noexcept { return operation == flight::InFlight::none && hook.empty() && !short_of_memory; }
};

/// Those that hold a lane, in the order of their lanes, and those that run hooks without one.
[[nodiscard]] std::vector<ThreadActivity> thread_activities(flight::FlightView const& view, ProcessFigures const& process);

/// The operation in one word: "allocating", "waiting", "checkpoint", "idle".
[[nodiscard]] std::string word_of(ThreadActivity const& activity);
/// "idle", "asking host for 2 GiB since 3.2 s", "running hook evict since 12.0 s (limit 1.0 s)". Of the dead with the time of day.
[[nodiscard]] std::string sentence(ThreadActivity const& activity);

}  // namespace headroom::command
