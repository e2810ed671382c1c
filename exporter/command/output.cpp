#include "command/output.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <utility>

#include <headroom/byte_size.hpp>

namespace headroom::command {
namespace {

[[nodiscard]] std::string_view environment(const char* name) noexcept {
  auto const* const value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

[[nodiscard]] std::size_t width_of(std::string_view text) noexcept {
  auto const starts_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
  return static_cast<std::size_t>(std::ranges::count_if(text, starts_character));
}

[[nodiscard]] bool shows_blocks() noexcept {
  if (::isatty(STDOUT_FILENO) == 0) return false;
  for (auto const* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    auto const value = environment(name);
    if (!value.empty()) return value.find("UTF-8") != std::string_view::npos || value.find("utf8") != std::string_view::npos;
  }
  return false;
}

[[nodiscard]] std::string repeated(std::string_view text, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

}  // namespace

bool colours_on(int file_descriptor) noexcept {
  return ::isatty(file_descriptor) != 0 && environment("NO_COLOR").empty() && environment("TERM") != "dumb";
}

std::string painted(std::string_view text, Colour colour) {
  static bool const is_on = colours_on(STDOUT_FILENO);
  if (!is_on || colour == Colour::plain) return std::string{text};
  constexpr std::array<std::string_view, 6> kCodes = {"", "1", "2", "31", "33", "32"};
  return "\x1b[" + std::string{kCodes[static_cast<std::size_t>(colour)]} + 'm' + std::string{text} + "\x1b[0m";
}

void complain(std::string_view who, std::string_view message) {
  auto const line = std::string{who} + ": " + std::string{message} + '\n';
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

ExitCode complain_about(std::string_view who, Error const& error, ExitCode code) {
  complain(who, error.message.empty() ? error.to_string() : error.message);
  return code;
}

Table::Table(std::vector<Column> columns, std::string indent) : columns_{std::move(columns)}, indent_{std::move(indent)} {}

void Table::add(std::vector<Cell> row) {
  while (row.size() < columns_.size()) row.emplace_back("");
  rows_.push_back(std::move(row));
}

void Table::print(std::ostream& out) const {
  std::vector<std::size_t> widths;
  widths.reserve(columns_.size());
  for (auto const& column : columns_) widths.push_back(width_of(column.title));
  for (auto const& row : rows_) {
    for (std::size_t i = 0; i < columns_.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i].text));
  }
  auto const print_row = [&](auto const& cell_at) {
    std::string line = indent_;
    std::string gap;  // put off, so that no line ends in blanks
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      Cell const cell = cell_at(i);
      auto const padding = std::string(widths[i] - width_of(cell.text), ' ');
      if (columns_[i].align == Align::right) gap += padding;
      if (!cell.text.empty()) line += std::exchange(gap, "") + painted(cell.text, cell.colour);
      if (columns_[i].align == Align::left) gap += padding;
      gap += "  ";
    }
    out << line << '\n';
  };
  if (std::ranges::any_of(columns_, [](Column const& column) { return !column.title.empty(); })) {
    print_row([&](std::size_t i) { return Cell{columns_[i].title, Colour::bold}; });
  }
  for (auto const& row : rows_) print_row([&](std::size_t i) { return row[i]; });
}

std::string bar(std::uint64_t part, std::uint64_t whole, std::size_t width) {
  static bool const has_blocks = shows_blocks();
  auto const share = whole == 0 ? 1.0 : std::min(1.0, static_cast<double>(part) / static_cast<double>(whole));
  // Only a full bar means full, and only an empty one empty.
  auto filled = static_cast<std::size_t>(std::lround(share * static_cast<double>(width)));
  if (part != 0 && filled == 0) filled = 1;
  if (part < whole && filled == width) filled = width - 1;
  return repeated(has_blocks ? "█" : "#", filled) + repeated(has_blocks ? "░" : ".", width - filled);
}

std::string printable(std::string_view text) {
  std::string result{text};
  for (auto& c : result) {
    auto const byte = static_cast<unsigned char>(c);
    if (byte < 0x20U || byte == 0x7FU) c = ' ';
  }
  return result;
}

std::string format_seconds(double seconds) {
  std::array<char, 32> text{};
  auto const print = [&text](const char* format, auto... values) {
    std::snprintf(text.data(), text.size(), format, values...);
    return std::string{text.data()};
  };
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 0.9995) return print("%.0f ms", seconds * 1e3);
  if (seconds < 59.95) return print("%.1f s", seconds);
  auto const whole = static_cast<std::uint64_t>(seconds);
  auto const pair = [&](std::uint64_t high, const char* high_unit, std::uint64_t low, const char* low_unit) {
    return std::to_string(high) + ' ' + high_unit + ' ' + std::to_string(low) + ' ' + low_unit;
  };
  if (whole < 3600) return pair(whole / 60, "min", whole % 60, "s");
  if (whole < 86'400) return pair(whole / 3600, "h", whole % 3600 / 60, "min");
  return pair(whole / 86'400, "d", whole % 86'400 / 3600, "h");
}

std::string counted(std::uint64_t count, std::string_view thing) {
  return format_count(count) + ' ' + std::string{thing} + (count == 1 ? "" : "s");
}

std::string format_budget(std::optional<std::uint64_t> bytes) { return bytes ? format_bytes(*bytes) : "unlimited"; }

}  // namespace headroom::command
