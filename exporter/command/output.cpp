#include "command/output.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <ostream>
#include <utility>

#include <headroom/byte_size.hpp>

namespace headroom::command {
namespace {

[[nodiscard]] std::string_view environment(const char* name) noexcept {
  auto const* const value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

struct Character {
  std::optional<char32_t> code;  // absent: the byte begins no character
  std::size_t bytes = 1;
};

/// The first of `text`, which is not empty. Strict: no surrogates, nothing above U+10FFFF, nothing longer than it must be.
[[nodiscard]] Character first_of(std::string_view text) noexcept {
  auto const byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  auto const lead = byte(0);
  if (lead < 0x80U) return {.code = lead, .bytes = 1};
  auto const bytes = lead >= 0xF0U ? std::size_t{4} : lead >= 0xE0U ? std::size_t{3} : std::size_t{2};
  if (lead < 0xC2U || lead > 0xF4U || text.size() < bytes) return {};
  char32_t code = lead & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {};
    code = code << 6U | (byte(i) & 0x3FU);
  }
  auto const is_surrogate = code >= 0xD800U && code <= 0xDFFFU;
  auto const is_long = (bytes == 3 && code < 0x800U) || (bytes == 4 && code < 0x10000U);
  if (is_surrogate || is_long || code > 0x10FFFFU) return {};
  return {.code = code, .bytes = bytes};
}

struct Range {
  char32_t first, last;
};

template <std::size_t count>
[[nodiscard]] bool is_in(std::array<Range, count> const& ranges, char32_t code) noexcept {
  return std::ranges::any_of(ranges, [code](Range range) { return code >= range.first && code <= range.last; });
}

// Blocks of Unicode in which all, or nearly all, is as wide as a square, or has no width of its own.
constexpr std::array<Range, 13> kWide{{{0x1100, 0x115F},
                                       {0x2E80, 0x303E},
                                       {0x3041, 0x4DBF},
                                       {0x4E00, 0xA4CF},
                                       {0xA960, 0xA97C},
                                       {0xAC00, 0xD7A3},
                                       {0xF900, 0xFAFF},
                                       {0xFE30, 0xFE6F},
                                       {0xFF01, 0xFF60},
                                       {0xFFE0, 0xFFE6},
                                       {0x1F300, 0x1F64F},
                                       {0x1F680, 0x1FAFF},
                                       {0x20000, 0x3FFFD}}};
constexpr std::array<Range, 7> kNoWidth{{{0x0300, 0x036F},
                                         {0x1AB0, 0x1AFF},
                                         {0x1DC0, 0x1DFF},
                                         {0x200B, 0x200D},
                                         {0x20D0, 0x20FF},
                                         {0xFE00, 0xFE0F},
                                         {0xFE20, 0xFE2F}}};
// Controls; line and paragraph separators; marks, embeddings and isolates of direction.
constexpr std::array<Range, 7> kCommands{
    {{0x00, 0x1F}, {0x7F, 0x9F}, {0x061C, 0x061C}, {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069}, {0xFEFF, 0xFEFF}}};

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

bool draws_on_stderr() noexcept { return ::isatty(STDERR_FILENO) != 0 && environment("TERM") != "dumb"; }

std::string painted(std::string_view text, Colour colour) {
  static bool const is_on = colours_on(STDOUT_FILENO);
  if (!is_on || colour == Colour::plain) return std::string{text};
  constexpr std::array<std::string_view, 6> kCodes = {"", "1", "2", "31", "33", "32"};
  return "\x1b[" + std::string{kCodes[static_cast<std::size_t>(colour)]} + 'm' + std::string{text} + "\x1b[0m";
}

void complain(std::string_view who, std::string_view message) {
  auto const line = std::string{who} + ": " + printable(message) + '\n';
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
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    auto const character = first_of(text);
    if (!character.code) {
      result += '?';
    } else if (is_in(kCommands, *character.code)) {
      result += ' ';
    } else {
      result += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.bytes);
  }
  return result;
}

std::size_t character_length(std::string_view text) noexcept { return first_of(text).bytes; }

std::size_t width_of(std::string_view text) noexcept {
  std::size_t width = 0;
  while (!text.empty()) {
    auto const character = first_of(text);
    auto const code = character.code.value_or(U'?');
    auto const is_wide = code >= kWide.front().first && is_in(kWide, code);
    auto const is_mark = code >= kNoWidth.front().first && is_in(kNoWidth, code);
    width += is_wide ? std::size_t{2} : is_mark ? std::size_t{0} : std::size_t{1};
    text.remove_prefix(character.bytes);
  }
  return width;
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "";
  // A budget may be set far below what is claimed, so that the share itself is out of all range.
  __extension__ using Wide = unsigned __int128;
  constexpr Wide kMost = std::numeric_limits<std::uint64_t>::max();
  return std::to_string(static_cast<std::uint64_t>(std::min(Wide{part} * 100U / whole, kMost))) + " %";
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

std::string place_of(std::string_view site) { return printable(site.substr(0, site.find(' '))); }

std::string counted(std::uint64_t count, std::string_view thing) { return counted(count, thing, std::string{thing} + 's'); }

std::string counted(std::uint64_t count, std::string_view thing, std::string_view things) {
  return format_count(count) + ' ' + std::string{count == 1 ? thing : things};
}

std::string format_budget(std::optional<std::uint64_t> bytes) { return bytes ? format_bytes(*bytes) : "unlimited"; }

}  // namespace headroom::command
