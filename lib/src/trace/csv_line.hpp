// One line of RMM's CSV log, written: the counterpart of parse_record (csv_record.hpp).
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <headroom/log_sink.hpp>

namespace headroom::trace {

/// Room for a line: the longest has 103 bytes (thread 10, time 15, action 16, pointer and stream 18 each, size 20, commas and line
/// end 6), and every number is written as if it had all its 20 digits.
inline constexpr std::size_t kCsvLineRoom = 128;

/// Writes into `text`, which has kCsvLineRoom bytes, and returns the end.
class CsvLineWriter {
public:
  explicit CsvLineWriter(char* text) noexcept : at_(text) {}

  [[nodiscard]] char* write(LogLine const& line) noexcept {
    decimal(line.thread);
    put(',');
    time_of_day(line.time_ns);
    put(',');
    word(to_string(line.action));
    put(',');
    hexadecimal(line.pointer);
    put(',');
    decimal(line.bytes);
    put(',');
    hexadecimal(line.stream);
    put('\n');
    return at_;
  }

private:
  static constexpr std::size_t kMostDigits = 20;

  void put(char c) noexcept { *at_++ = c; }
  void word(std::string_view text) noexcept { at_ += text.copy(at_, text.size()); }
  void decimal(std::uint64_t value) noexcept { at_ = std::to_chars(at_, at_ + kMostDigits, value).ptr; }
  void hexadecimal(std::uint64_t value) noexcept {
    word("0x");
    at_ = std::to_chars(at_, at_ + kMostDigits, value, 16).ptr;
  }
  void padded(std::uint64_t value, unsigned digits) noexcept {
    for (unsigned i = digits; i-- > 0; value /= 10) at_[i] = static_cast<char>('0' + value % 10);
    at_ += digits;
  }
  void time_of_day(std::uint64_t time_ns) noexcept {
    const std::uint64_t us = time_ns / 1'000 % (std::uint64_t{24} * 3600 * 1'000'000);
    const std::uint64_t seconds = us / 1'000'000;
    padded(seconds / 3600, 2);
    put(':');
    padded(seconds / 60 % 60, 2);
    put(':');
    padded(seconds % 60, 2);
    put('.');
    padded(us % 1'000'000, 6);
  }

  char* at_;
};

}  // namespace headroom::trace
