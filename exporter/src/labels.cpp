#include "labels.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace headroom::exporter {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// How many bytes the well-formed UTF-8 sequence at the front of `text` has; 0 when there is none (Unicode, table 3-7).
std::size_t sequence_length(std::string_view text) noexcept {
  const auto byte = [text](std::size_t index) -> std::uint8_t {
    return index < text.size() ? static_cast<std::uint8_t>(text[index]) : std::uint8_t{0};
  };
  const auto continues = [&byte](std::size_t index, std::uint8_t low = 0x80, std::uint8_t high = 0xBF) {
    return byte(index) >= low && byte(index) <= high;
  };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const std::uint8_t low = first == 0xE0 ? 0xA0 : 0x80;   // no overlong forms
    const std::uint8_t high = first == 0xED ? 0x9F : 0xBF;  // no surrogates
    return continues(1, low, high) && continues(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const std::uint8_t low = first == 0xF0 ? 0x90 : 0x80;
    const std::uint8_t high = first == 0xF4 ? 0x8F : 0xBF;  // nothing above U+10FFFF
    return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

bool is_forbidden_control(char character) noexcept {
  const auto code = static_cast<std::uint8_t>(character);
  return (code < 0x20 && character != '\t' && character != '\n') || code == 0x7F;
}

bool is_printable_ascii(char character) noexcept { return character >= 0x20 && character < 0x7F; }

constexpr std::size_t kMoreToCome = 2;  // labels that are added to those of a manager, at the most

}  // namespace

std::string safe_label_value(std::string_view raw) {
  if (raw.size() <= kLabelValueBytes && std::ranges::all_of(raw, is_printable_ascii)) return std::string{raw};  // nearly always
  std::string value;
  while (!raw.empty()) {
    const std::size_t length = sequence_length(raw);
    const bool is_good = length > 1 || (length == 1 && !is_forbidden_control(raw.front()));
    const std::string_view piece = is_good ? raw.substr(0, length) : kReplacement;
    if (value.size() + piece.size() > kLabelValueBytes) break;
    value += piece;
    raw.remove_prefix(is_good ? length : 1);
  }
  return value;
}

Labels with_label(Labels const& labels, std::string_view name, std::string_view value) {
  Labels more;
  more.reserve(labels.size() + kMoreToCome);
  more = labels;
  return with_label(std::move(more), name, value);
}

Labels with_label(Labels&& labels, std::string_view name, std::string_view value) {
  labels.push_back({std::string{name}, safe_label_value(value)});
  return std::move(labels);
}

}  // namespace headroom::exporter
