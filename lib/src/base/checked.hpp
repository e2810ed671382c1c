// headroom: arithmetic on byte counts that cannot wrap.
//
// Use it wherever a size from outside (a caller, a file, a device) is added, multiplied or rounded up: the answer is absent when
// it does not fit 64 bits, so that nobody compares a wrapped sum with a budget. Plain values, constexpr, a few instructions.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace headroom {

/// 128 bits for the middle of a calculation. The extension is one that both GCC and Clang keep on every 64-bit target.
__extension__ using uint128 = unsigned __int128;

inline constexpr std::uint64_t kMaxUint64 = std::numeric_limits<std::uint64_t>::max();

[[nodiscard]] constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) noexcept {
  if (b > kMaxUint64 - a) return std::nullopt;
  return a + b;
}

[[nodiscard]] constexpr std::optional<std::uint64_t> checked_sub(std::uint64_t a, std::uint64_t b) noexcept {
  if (b > a) return std::nullopt;
  return a - b;
}

[[nodiscard]] constexpr std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) noexcept {
  auto const product = static_cast<uint128>(a) * b;
  if (product > kMaxUint64) return std::nullopt;
  return static_cast<std::uint64_t>(product);
}

/// Without std::has_single_bit, which is a call into a population count on the oldest x86-64.
[[nodiscard]] constexpr bool is_power_of_two(std::uint64_t value) noexcept { return value != 0 && (value & (value - 1)) == 0; }

/// The smallest multiple of `granularity` that is not below `value`; absent when it does not fit or granularity is 0.
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_round_up(std::uint64_t value, std::uint64_t granularity) noexcept {
  if (granularity == 0) return std::nullopt;
  // A mask where it is possible: the division costs more than everything else on an allocation's path.
  auto const rest = is_power_of_two(granularity) ? value & (granularity - 1) : value % granularity;
  return rest == 0 ? std::optional{value} : checked_add(value, granularity - rest);
}

}  // namespace headroom
