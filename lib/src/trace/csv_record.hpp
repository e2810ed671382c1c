// headroom: one line of RMM's CSV log.
//
// Two functions that must agree: parse_record() is fast and only says yes or no; describe_bad_record() is slow, runs once, and
// says what was wrong with a line that parse_record() refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <headroom/trace.hpp>

namespace headroom::trace {

inline constexpr std::string_view kCsvHeader = "Thread,Time,Action,Pointer,Size,Stream";

/// How many bytes behind a line's '\n' must be readable (and may be anything).
inline constexpr std::size_t kReadableSlack = 32;

/// A record before its thread has an index and its time a day.
struct CsvRecord {
  std::uint64_t thread_id = 0;
  std::uint64_t time_us = 0;
  bool is_time_of_day = false;
  TraceEvent::Action action = TraceEvent::Action::allocate;
  std::uint64_t pointer = 0;
  std::uint64_t bytes = 0;
  std::uint64_t stream = 0;
};

/// Reads the line that begins at `text` and must end in '\n' or "\r\n". Returns the byte behind the line end, or null when the
/// line is no record. No byte before that '\n' needs to be anything in particular: it stops every loop.
[[nodiscard]] char const* parse_record(char const* text, CsvRecord& record) noexcept;

/// What is wrong with `line` (without its line end, but with a '\n' or "\r\n" readable behind it), as one sentence.
/// `is_unfinished`: it is the last line and has no line end, so that it may be cut off.
[[nodiscard]] std::string describe_bad_record(std::string_view line, bool is_unfinished);

/// How describe_bad_header() begins of a file in which nothing is like a log: lines are then no place to name.
inline constexpr std::string_view kUnknownKind = "a file of no known kind";

/// What is wrong with a first line that is not the header.
[[nodiscard]] std::string describe_bad_header(std::string_view line);

}  // namespace headroom::trace
