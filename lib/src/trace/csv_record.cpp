#include "trace/csv_record.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/quoted.hpp"
#include "trace/csv_fields.hpp"
#include "trace/record_reader.hpp"

namespace headroom::trace {
namespace {

struct Column {
  std::string_view name;
  std::string_view expected;
  bool (*is_good)(char const*& text) noexcept;
};

template <auto Take, class Value>
bool takes(char const*& text) noexcept {
  Value value{};
  return Take(text, value);
}

bool takes_time(char const*& text) noexcept {
  std::uint64_t time_us = 0;
  bool is_time_of_day = false;
  return take_time(text, time_us, is_time_of_day);
}

constexpr std::array<Column, 6> kColumns{{
    {"thread", "a number, decimal or 0x-hexadecimal", takes<take_thread, std::uint64_t>},
    {"time", "microseconds since the start, or HH:MM:SS.micro, or HH:MM:SS:micro", takes_time},
    {"action", "allocate, allocate failure or free", takes<take_action, TraceEvent::Action>},
    {"pointer", "0x and hexadecimal digits (at most 64 bits), or (nil)", takes<take_pointer, std::uint64_t>},
    {"size", "bytes as a decimal number below 2^64", takes<take_decimal, std::uint64_t>},
    {"stream", "a number, decimal or 0x-hexadecimal, or (nil)", takes<take_stream, std::uint64_t>},
}};

std::vector<std::string_view> split_columns(std::string_view line) {
  std::vector<std::string_view> columns;
  while (true) {
    auto const comma = line.find(',');
    columns.push_back(line.substr(0, comma));
    // Enough to know that they are too many; a line of commas would make thousands.
    if (comma == std::string_view::npos || columns.size() > 100) return columns;
    line.remove_prefix(comma + 1);
  }
}

/// Why a number was refused, in front of what was expected; empty when there is nothing to add.
std::string_view reason_of(std::string_view value) {
  if (value.empty()) return " is empty";
  if (value.starts_with('-')) return " is negative";
  auto const is_hex = value.starts_with("0x") || value.starts_with("0X");
  auto const digits = value.substr(is_hex ? 2 : 0);
  auto const is_number = !digits.empty() && std::ranges::all_of(digits, [is_hex](char c) {
    auto const digit = hex_digit(c);
    return is_hex ? digit <= 15 : digit <= 9;
  });
  // Only a number of that many digits can have been refused for its size; fewer are of the wrong sort (hex where decimal stands).
  return is_number && digits.size() > 16 ? " does not fit 64 bits" : "";
}

std::string describe_column(Column const& column, std::string_view value) {
  std::string text = column.name == "action" && !value.empty() ? "unknown action" : std::string{column.name};
  text += ' ' + in_quotes(value);
  text += column.name == "action" && !value.empty() ? "" : reason_of(value);
  return text + "; expected " + std::string{column.expected};
}

bool is_good_column(Column const& column, std::string_view value) {
  auto const* text = value.data();
  return column.is_good(text) && text == value.data() + value.size();
}

}  // namespace

char const* parse_record(char const* text, CsvRecord& record) noexcept {
  if (!take_thread(text, record.thread_id) || *text++ != ',') return nullptr;
  if (!take_time(text, record.time_us, record.is_time_of_day) || *text++ != ',') return nullptr;
  if (!take_action(text, record.action) || *text++ != ',') return nullptr;
  if (!take_pointer(text, record.pointer) || *text++ != ',') return nullptr;
  if (!take_decimal(text, record.bytes) || *text++ != ',') return nullptr;
  if (!take_stream(text, record.stream)) return nullptr;
  if (*text == '\r') ++text;
  return *text == '\n' ? text + 1 : nullptr;
}

std::string describe_bad_record(std::string_view line, bool is_unfinished) {
  auto const columns = split_columns(line);
  auto const is_last_bad = columns.size() == kColumns.size() && !is_good_column(kColumns.back(), columns.back());
  if (is_unfinished && (columns.size() < kColumns.size() || is_last_bad)) {
    return "the last line " + in_quotes(line) + " is cut off; expected the six columns " + std::string{kCsvHeader} +
           " and a line end";
  }
  if (columns.size() != kColumns.size()) {
    auto const count = columns.size() > 100 ? std::string{"more than 100"} : std::to_string(columns.size());
    return "the line " + in_quotes(line) + " has " + count + (columns.size() == 1 ? " column" : " columns") +
           "; expected the six columns " + std::string{kCsvHeader} +
           (columns.size() < kColumns.size() ? " (is it cut off?)" : "");
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (!is_good_column(kColumns[i], columns[i])) return describe_column(kColumns[i], columns[i]);
  }
  return "the line " + in_quotes(line) + " is no record; expected the six columns " + std::string{kCsvHeader};
}

std::string describe_bad_header(std::string_view line) {
  auto const header = std::string{kCsvHeader};
  if (!line.empty() && kCsvHeader.starts_with(line))
    return "the header line " + in_quotes(line) + " is cut off; expected " + header;
  // The look of a record, or of a header in another order: such a file is RMM's kind, and it helps more to say what is missing.
  auto const columns = split_columns(line);
  auto const is_record = columns.size() == kColumns.size() && is_good_column(kColumns[2], columns[2]);
  if (line.empty() || is_record) return "the header line is missing; expected " + header + " before the first record";
  if (line.find("Action") != std::string_view::npos || line.find("Pointer") != std::string_view::npos) {
    return "header line " + in_quotes(line) + "; expected exactly " + header;
  }
  return std::string{kUnknownKind} + ": it begins with " + in_quotes(line, 40) + "; " + std::string{kKnownFormats};
}

}  // namespace headroom::trace
