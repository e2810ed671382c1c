// A text as long as a post-mortem has room for: its reader refuses longer ones.
#pragma once

#include <cstddef>
#include <string_view>

namespace headroom::dump {

/// Four times that, when every byte is escaped: see kMostTextBytes of document.cpp.
inline constexpr std::size_t kMostText = 4096;

/// At a character's boundary where there is one.
[[nodiscard]] constexpr std::string_view shortened(std::string_view text) noexcept {
  if (text.size() <= kMostText) return text;
  std::size_t end = kMostText;
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; };
  while (end > kMostText - 3 && continues(end)) --end;
  return text.substr(0, continues(end) ? kMostText : end);
}

}  // namespace headroom::dump
