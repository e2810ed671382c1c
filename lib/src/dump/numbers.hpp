// Whole numbers and words of a post-mortem, as JSON has them: see json_stream.hpp for how they were written.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace headroom::dump {

/// All of `text`, in digits or, after 0x, hexadecimal ones.
[[nodiscard]] inline std::optional<std::uint64_t> whole_number(std::string_view text) noexcept {
  int base = 10;
  if (text.starts_with("0x")) {
    base = 16;
    text.remove_prefix(2);
  }
  std::uint64_t number = 0;
  auto const* const end = text.data() + text.size();
  auto const [stopped, error] = std::from_chars(text.data(), end, number, base);
  if (text.empty() || error != std::errc{} || stopped != end) return std::nullopt;
  return number;
}

[[nodiscard]] inline std::optional<std::uint64_t> whole_number_of(nlohmann::json const& value) noexcept {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (value.is_string()) return whole_number(value.get_ref<std::string const&>());
  return std::nullopt;
}

/// Undoes \xHH.
[[nodiscard]] inline std::string unescaped(std::string const& text) {
  if (text.find("\\x") == std::string::npos) return text;
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const bool escape = text.compare(at, 2, "\\x") == 0 && at + 4 <= text.size();
    unsigned byte = 0;
    auto const* const digits = text.data() + at + 2;
    if (escape && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      bytes += static_cast<char>(static_cast<unsigned char>(byte));
      at += 4;
    } else {
      bytes += text[at++];
    }
  }
  return bytes;
}

}  // namespace headroom::dump
