// headroom: what the command prints: tables, bars, notices; in colour only on a terminal.
//
// Results go to stdout, everything else to stderr. Colours obey NO_COLOR (https://no-color.org) and are off where the output is
// no terminal. Thread safety: none; notices are single writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/error.hpp>

#include "command/subcommand.hpp"

namespace headroom::command {

enum class Colour : std::uint8_t { plain, bold, dim, red, yellow, green };

/// True when stdout, or stderr, is a terminal that wants colours.
[[nodiscard]] bool colours_on(int file_descriptor) noexcept;
/// True when a line on stderr can be drawn over: a terminal, and no dumb one.
[[nodiscard]] bool draws_on_stderr() noexcept;
/// `text` in that colour when stdout wants colours, else as it is.
[[nodiscard]] std::string painted(std::string_view text, Colour colour);

/// "headroom replay: message" on stderr, in one write.
void complain(std::string_view who, std::string_view message);
/// The same with what an error says; returns `code`, for `return complain_about(…)`.
ExitCode complain_about(std::string_view who, Error const& error, ExitCode code);

/// Columns as wide as their widest cell. Cells are UTF-8 without control characters.
class Table {
public:
  enum class Align : std::uint8_t { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  struct Cell {
    std::string text;
    Colour colour = Colour::plain;
    Cell(std::string cell_text, Colour cell_colour = Colour::plain)
        : text{std::move(cell_text)}, colour{cell_colour} {}  // NOLINT
    Cell(const char* cell_text) : text{cell_text} {}          // NOLINT
  };

  /// Without any title the heading line is left out. Every line begins with `indent`.
  explicit Table(std::vector<Column> columns, std::string indent = "");
  void add(std::vector<Cell> row);
  void print(std::ostream& out) const;

private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
  std::string indent_;
};

/// How full: "#######...", with blocks where the terminal shows them.
[[nodiscard]] std::string bar(std::uint64_t part, std::uint64_t whole, std::size_t width);

/// Text from files and other processes, made safe for a terminal: control characters, those of C1 (U+0080…U+009F, which terminals
/// obey too) and those that turn the direction of writing or end a line become spaces, bytes that are not UTF-8 question marks.
[[nodiscard]] std::string printable(std::string_view text);

/// Bytes of the character that `text`, which is not empty, begins with; of what is not UTF-8, one.
[[nodiscard]] std::size_t character_length(std::string_view text) noexcept;
/// Cells that text takes in a terminal: ideographs, syllables of Hangul and pictures take two, combining marks none.
[[nodiscard]] std::size_t width_of(std::string_view text) noexcept;

/// "72 %", rounded down: 100 % means full. Empty where `whole` is 0.
[[nodiscard]] std::string percent(std::uint64_t part, std::uint64_t whole);

/// "train.cpp:42" of a site "train.cpp:42 void step(...)"; printable.
[[nodiscard]] std::string place_of(std::string_view site);

/// "812 ms", "3.2 s", "4 min 10 s", "3 h 5 min", "2 d 4 h".
[[nodiscard]] std::string format_seconds(double seconds);

/// "1 thread", "2,000 threads".
[[nodiscard]] std::string counted(std::uint64_t count, std::string_view thing);
/// Of a word that takes more than an s.
[[nodiscard]] std::string counted(std::uint64_t count, std::string_view thing, std::string_view things);

/// format_bytes, or "unlimited".
[[nodiscard]] std::string format_budget(std::optional<std::uint64_t> bytes);

}  // namespace headroom::command
