// headroom: what a list shows, as text for other programs: tabs for a clipboard, CSV and JSON for a file. No ImGui.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace headroom::viewer {

/// Nothing is what is not known.
using PlainCell = std::variant<std::monostate, std::uint64_t, double, std::string>;

/// Nothing where `figure` is absent.
[[nodiscard]] PlainCell plain_figure(std::optional<std::uint64_t> figure);
/// Nothing where `text` is empty.
[[nodiscard]] PlainCell plain_text(std::string_view text);

using PlainRow = std::vector<PlainCell>;

struct PlainTable {
  std::vector<std::string> columns{};  ///< names with their units, as in "duration_ns"
  std::vector<PlainRow> rows{};
};

enum class PlainFormat : std::uint8_t { tabs, csv, json };

/// The text of a table, row by row: head(), row() for each, end(). The formats are those of the functions below.
class PlainText {
public:
  PlainText(PlainFormat format, std::vector<std::string> columns) : columns_{std::move(columns)}, format_{format} {}
  [[nodiscard]] std::string head() const;
  [[nodiscard]] std::string row(PlainRow const& cells);
  [[nodiscard]] std::string end() const;

private:
  std::vector<std::string> columns_;
  PlainFormat format_;
  bool has_rows_ = false;
};

/// A heading and a line for each row, cells between tabs; tabs and line ends within a cell become blanks.
[[nodiscard]] std::string as_tabs(PlainTable const& table);
/// RFC 4180: cells with commas, quotes or line ends stand in quotes. Lines end in CR LF.
[[nodiscard]] std::string as_csv(PlainTable const& table);
/// An array of objects; numbers stay numbers, what is not known is null, what is not UTF-8 is replaced.
[[nodiscard]] std::string as_json(PlainTable const& table);

}  // namespace headroom::viewer
