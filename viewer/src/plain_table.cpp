#include "plain_table.hpp"

#include <algorithm>
#include <string_view>

#include <nlohmann/json.hpp>

namespace headroom::viewer {
namespace {

std::string text_of(PlainCell const& cell) {
  if (auto const* const number = std::get_if<std::uint64_t>(&cell)) return std::to_string(*number);
  if (auto const* const real = std::get_if<double>(&cell)) return nlohmann::json(*real).dump();
  if (auto const* const text = std::get_if<std::string>(&cell)) return *text;
  return {};
}

std::string without_breaks(std::string text) {
  std::ranges::replace_if(text, [](char one) { return one == '\t' || one == '\n' || one == '\r'; }, ' ');
  return text;
}

std::string quoted_for_csv(std::string text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (auto const one : text) quoted += one == '"' ? std::string{"\"\""} : std::string{one};
  return quoted + '"';
}

/// A line of tabs or CSV; `text_at` gives the text of a column.
template <typename TextAt>
std::string line_of(PlainFormat format, std::size_t columns, TextAt const& text_at) {
  auto const is_csv = format == PlainFormat::csv;
  std::string line;
  for (std::size_t i = 0; i < columns; ++i) {
    if (i != 0) line += is_csv ? ',' : '\t';
    line += is_csv ? quoted_for_csv(text_at(i)) : without_breaks(text_at(i));
  }
  return line + (is_csv ? "\r\n" : "\n");
}

nlohmann::ordered_json json_of(PlainCell const& cell) {
  if (auto const* const number = std::get_if<std::uint64_t>(&cell)) return *number;
  if (auto const* const real = std::get_if<double>(&cell)) return *real;
  if (auto const* const text = std::get_if<std::string>(&cell)) return *text;
  return nullptr;
}

}  // namespace

PlainCell plain_figure(std::optional<std::uint64_t> figure) {
  PlainCell cell;
  if (figure) cell = *figure;
  return cell;
}

PlainCell plain_text(std::string_view text) {
  PlainCell cell;
  if (!text.empty()) cell = std::string{text};
  return cell;
}

std::string PlainText::head() const {
  if (format_ == PlainFormat::json) return "[";
  return line_of(format_, columns_.size(), [this](std::size_t column) { return columns_[column]; });
}

std::string PlainText::row(PlainRow const& cells) {
  if (format_ != PlainFormat::json) {
    return line_of(format_, cells.size(), [&cells](std::size_t column) { return text_of(cells[column]); });
  }
  nlohmann::ordered_json object;
  for (std::size_t i = 0; i < std::min(cells.size(), columns_.size()); ++i) object[columns_[i]] = json_of(cells[i]);
  return (std::exchange(has_rows_, true) ? ",\n" : "\n") +
         object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string PlainText::end() const {
  if (format_ != PlainFormat::json) return {};
  return has_rows_ ? "\n]\n" : "]\n";
}

namespace {

std::string whole(PlainFormat format, PlainTable const& table) {
  PlainText text{format, table.columns};
  auto all = text.head();
  for (auto const& row : table.rows) all += text.row(row);
  return all + text.end();
}

}  // namespace

std::string as_tabs(PlainTable const& table) { return whole(PlainFormat::tabs, table); }

std::string as_csv(PlainTable const& table) { return whole(PlainFormat::csv, table); }

std::string as_json(PlainTable const& table) { return whole(PlainFormat::json, table); }

}  // namespace headroom::viewer
