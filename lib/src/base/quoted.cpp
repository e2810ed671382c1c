#include "base/quoted.hpp"

namespace headroom {

std::string in_quotes(std::string_view text, std::size_t max_length) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result = "'";
  for (char const c : text.substr(0, max_length)) {
    auto const byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      result += "\\n";
    } else if (c == '\r') {
      result += "\\r";
    } else if (c == '\t') {
      result += "\\t";
    } else if (byte < 0x20 || byte >= 0x7f) {
      result += {'\\', 'x', kHex[byte >> 4U], kHex[byte & 0xfU]};
    } else {
      result += c;
    }
  }
  return result + (text.size() > max_length ? "…'" : "'");
}

}  // namespace headroom
