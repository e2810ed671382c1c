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

template <typename Change>
std::string lines_of(PlainTable const& table, std::string_view between, std::string_view end, Change const& change) {
  std::string lines;
  auto const add = [&](std::size_t column, std::string text) {
    if (column != 0) lines += between;
    lines += change(std::move(text));
  };
  for (std::size_t i = 0; i < table.columns.size(); ++i) add(i, table.columns[i]);
  lines += end;
  for (auto const& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) add(i, text_of(row[i]));
    lines += end;
  }
  return lines;
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

std::string as_tabs(PlainTable const& table) { return lines_of(table, "\t", "\n", without_breaks); }

std::string as_csv(PlainTable const& table) { return lines_of(table, ",", "\r\n", quoted_for_csv); }

std::string as_json(PlainTable const& table) {
  auto array = nlohmann::ordered_json::array();
  for (auto const& row : table.rows) {
    nlohmann::ordered_json object;
    for (std::size_t i = 0; i < std::min(row.size(), table.columns.size()); ++i) object[table.columns[i]] = json_of(row[i]);
    array.push_back(std::move(object));
  }
  return array.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace headroom::viewer
