// Lines of a LoggingResource in the lanes of their threads, numbered so that no reader has to guess what it lost.
//
// A gap in a ring says how many records are missing, not whose they were. So every ring counts the lines it was given, over all
// logs (RingWords::log_lines) and for each log (LogCounts), and every line carries both counts from before it. A reader takes the
// count, then reads the ring: what is neither read nor already lost below that count is lost.
//
// Thread safety: any thread, signal handlers included; wait-free. Cost: an event plus two stores, on lines of the owner.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include <headroom/error.hpp>
#include <headroom/flight_format.hpp>

#include "flight/emit.hpp"

namespace headroom::flight {

/// What the rings of one lane were given by one log.
struct alignas(64) LogLaneCounts {
  /// [0] main, [1] journal. Written by whoever may write the lane, release, after the record's head; read with acquire, before the
  /// ring is. The lane's hand-over orders one owner's stores before the next one's.
  std::array<std::atomic<std::uint64_t>, 2> lines{};
};

/// The counts of one log. Lives in the process, not in its file; shared by the log and by whoever follows it.
struct LogCounts {
  std::array<LogLaneCounts, kLaneCount> lanes{};
  /// Lines that no ring was given: a signal handler amid a record, or every shared lane busy. Any thread, fetch_add release; read
  /// with acquire.
  std::atomic<std::uint64_t> refused{0};

  /// All lines so far.
  [[nodiscard]] std::uint64_t total() const noexcept;
};

/// The same as LogCounts::refused, over all logs.
extern constinit std::atomic<std::uint64_t> log_lines_refused;

struct LogRecord {
  EventKind kind = EventKind::resource_allocate;
  std::uint32_t log = 0;
  std::uint64_t ticks = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 0;
  std::uint64_t stream = 0;
  std::uint32_t tag = 0;
  std::uint32_t result = 0;  ///< pack_result, 0 = good
};

/// The recorder must be up.
void write_log_line(LogCounts& counts, LogRecord const& record) noexcept;

}  // namespace headroom::flight
