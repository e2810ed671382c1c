// Writes pickles, opcode by opcode, as Python's protocol 4 does or in whatever other way a test wants. Each function returns the opcodes
// that leave one value on the stack; pickle() makes a file of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headroom::test::pickled {

using Opcodes = std::string;

/// `count` bytes, the lowest first.
[[nodiscard]] inline std::string little_endian(std::uint64_t number, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xFFU);
  return bytes;
}

[[nodiscard]] inline Opcodes none() { return "N"; }
[[nodiscard]] inline Opcodes boolean(bool value) { return value ? "\x88" : "\x89"; }

/// BININT1, BININT or LONG1, whichever is the shortest that fits.
[[nodiscard]] inline Opcodes integer(std::uint64_t value) {
  if (value < 256) return "K" + little_endian(value, 1);
  if (value < std::uint64_t{1} << 31U) return "J" + little_endian(value, 4);
  return "\x8a\x09" + little_endian(value, 8) + std::string(1, '\0');
}
[[nodiscard]] inline Opcodes negative(std::int64_t value) {
  return std::string{"\x8a"} + "\x08" + little_endian(static_cast<std::uint64_t>(value), 8);
}
[[nodiscard]] inline Opcodes real(double value) {
  auto const bits = std::bit_cast<std::uint64_t>(value);
  Opcodes opcodes{"G"};
  for (int i = 7; i >= 0; --i) opcodes += static_cast<char>(bits >> (8 * i) & 0xFFU);
  return opcodes;
}
[[nodiscard]] inline Opcodes text(std::string_view value) { return "X" + little_endian(value.size(), 4) + std::string{value}; }

/// In batches of 1,000, as Python writes them.
[[nodiscard]] inline Opcodes list(std::span<Opcodes const> items) {
  constexpr std::size_t kBatch = 1000;
  Opcodes opcodes{"]"};
  for (std::size_t begin = 0; begin < items.size(); begin += kBatch) {
    opcodes += '(';
    for (auto const& item : items.subspan(begin, std::min(kBatch, items.size() - begin))) opcodes += item;
    opcodes += 'e';
  }
  return opcodes;
}
[[nodiscard]] inline Opcodes list(std::initializer_list<Opcodes> items) { return list(std::span{items.begin(), items.size()}); }
[[nodiscard]] inline Opcodes tuple(std::initializer_list<Opcodes> items) {
  Opcodes opcodes{"("};
  for (auto const& item : items) opcodes += item;
  return opcodes + 't';
}

using Fields = std::vector<std::pair<std::string, Opcodes>>;
[[nodiscard]] inline Opcodes dict(Fields const& fields) {
  if (fields.empty()) return "}";
  Opcodes opcodes{"}("};
  for (auto const& [key, value] : fields) opcodes += text(key) + value;
  return opcodes + 'u';
}

/// Leaves the value on the stack and in the memo; again() fetches it.
[[nodiscard]] inline Opcodes remembered(Opcodes const& value, std::uint32_t place) {
  return value + 'r' + little_endian(place, 4);
}
[[nodiscard]] inline Opcodes again(std::uint32_t place) { return "j" + little_endian(place, 4); }

[[nodiscard]] inline std::string pickle(Opcodes const& root, int protocol = 4) {
  return std::string{"\x80"} + static_cast<char>(protocol) + root + '.';
}

}  // namespace headroom::test::pickled
