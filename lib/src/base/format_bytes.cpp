// Byte counts as people read them; parsing is in byte_size.cpp.
#include <array>

#include <headroom/byte_size.hpp>

#include "base/checked.hpp"

namespace headroom {
namespace {

constexpr std::array<std::string_view, 7> kUnitNames{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

struct Rounded {
  std::string text;
  bool exact = true;
};

/// `bytes` in units of 2^(10 × unit) with three digits, or as many as its whole part has.
Rounded round_to(std::uint64_t bytes, std::size_t unit) {
  auto const shift = 10 * unit;
  auto const whole = bytes >> shift;
  std::uint64_t scale = 1;  // 10^decimals
  if (unit > 0 && whole < 100) scale = whole < 10 ? 100 : 10;
  auto const scaled = static_cast<uint128>(bytes) * scale;
  auto const half = unit > 0 ? uint128{1} << (shift - 1) : 0;
  auto const digits = static_cast<std::uint64_t>((scaled + half) >> shift);
  // 1023.6 KiB would read "1024 KiB", and 9.999 GiB "10.00": the rounded value decides the unit and the decimals are trimmed.
  if (unit + 1 < kUnitNames.size() && unit > 0 && digits >= 1024 * scale)
    return {round_to(std::uint64_t{1024} << shift, unit + 1).text, false};
  Rounded result{std::to_string(digits / scale), (static_cast<uint128>(digits) << shift) == scaled};
  if (auto const rest = digits % scale; rest != 0) {
    auto decimals = std::to_string(scale + rest).substr(1);
    while (decimals.ends_with('0')) decimals.pop_back();
    result.text += '.' + decimals;
  }
  result.text += ' ';
  result.text += kUnitNames[unit];
  return result;
}

Rounded rounded(std::uint64_t bytes) {
  std::size_t unit = 0;
  while (unit + 1 < kUnitNames.size() && (bytes >> (10 * (unit + 1))) != 0) ++unit;
  return round_to(bytes, unit);
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) { return rounded(bytes).text; }

std::string format_bytes_exact(std::uint64_t bytes) {
  auto result = rounded(bytes);
  if (!result.exact) result.text += " (" + format_count(bytes) + " B)";
  return result.text;
}

std::string format_count(std::uint64_t count) {
  auto text = std::to_string(count);
  for (auto i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

}  // namespace headroom
