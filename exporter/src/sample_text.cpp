#include "sample_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace headroom::exporter {

void append_number(std::string& text, std::uint64_t number) {
  std::array<char, 20> digits{};
  text.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

bool append_if_whole(std::string& text, double number) {
  constexpr double kWhole = 1e15;
  if (std::isnan(number) || number < 0 || number >= kWhole || std::signbit(number) || number != std::trunc(number)) return false;
  append_number(text, static_cast<std::uint64_t>(number));
  return true;
}

void append_escaped(std::string& text, std::string_view value) {
  const auto is_special = [](char c) { return c == '\n' || c == '\\' || c == '"'; };
  if (std::ranges::none_of(value, is_special)) {  // nearly always
    text += value;
    return;
  }
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (is_special(c)) text += '\\';
    text += c;
  }
}

void append_labels(std::string& text, Labels const& labels) {
  char const* separator = "";
  for (auto const& label : labels) {
    text += separator;
    text += label.name;
    text += "=\"";
    append_escaped(text, label.value);
    text += '"';
    separator = ",";
  }
}

void append_sample_head(std::string& text, std::string_view name, std::string_view suffix, std::string_view labels) {
  text += name;
  text += suffix;
  if (!labels.empty()) {
    text += '{';
    text += labels;
    text += '}';
  }
  text += ' ';
}

void append_bucket(std::string& text, std::string_view name, std::string_view labels, std::string_view bound,
                   std::uint64_t count) {
  text += name;
  text += "_bucket{";
  text += labels;
  text += labels.empty() ? "le=\"" : ",le=\"";
  text += bound;
  text += "\"} ";
  append_number(text, count);
  text += '\n';
}

std::string_view BoundTexts::text_of(std::size_t place, double bound) {
  if (place >= known_.size()) known_.resize(place + 1);
  auto& known = known_[place];
  if (known.second.empty() || known.first != bound) {
    known.first = bound;
    known.second.clear();
    print_(known.second, bound);
  }
  return known.second;
}

}  // namespace headroom::exporter
