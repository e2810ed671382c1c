#include "base/utf8.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace headroom {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct LeadByte {
  std::size_t length;       // of the whole character, 0 = cannot start one
  unsigned char low, high;  // range of the second byte: shuts out overlong forms, surrogates and what lies above U+10FFFF
};

constexpr LeadByte classify(unsigned char byte) noexcept {
  if (byte < 0x80) return {1, 0, 0};
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

std::size_t utf8_character_length(std::string_view text) noexcept {
  const auto lead = classify(static_cast<unsigned char>(text.front()));
  if (lead.length > text.size()) return 0;
  for (std::size_t i = 1; i < lead.length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return 0;
  }
  return lead.length;
}

std::string valid_utf8(std::string_view text, std::size_t max_bytes) {
  text = text.substr(0, text.find('\0'));
  std::string out;
  out.reserve(std::min(text.size(), max_bytes));
  while (!text.empty()) {
    const std::size_t length = utf8_character_length(text);
    const std::string_view piece = length == 0 ? kReplacement : text.substr(0, length);
    if (piece.size() > max_bytes - out.size()) break;
    out += piece;
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

}  // namespace headroom
