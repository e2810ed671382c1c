// headroom: memory pressure, the five levels by the free share of a budget.
// Layer: base
//
// f = free ÷ budget: more than 30 % none, more than 10 % low, more than 5 % medium, else high; used ≥ budget is critical. A value
// on a boundary belongs to the more severe level. Integer arithmetic in 128 bits, so that no budget is too large.
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom {

enum class PressureLevel : std::uint8_t { none = 0, low = 1, medium = 2, high = 3, critical = 4 };

[[nodiscard]] constexpr std::string_view to_string(PressureLevel level) noexcept {
  constexpr std::string_view kWords[] = {"none", "low", "medium", "high", "critical"};
  const auto index = static_cast<std::uint8_t>(level);
  return index < 5 ? kWords[index] : std::string_view{"unknown"};
}

/// The level of `used` bytes under a budget of `budget` bytes. A budget of 0 is always full.
/// For 1000: 699 none, 700 low, 890 low, 900 medium, 949 medium, 950 high, 999 high, 1000 critical.
[[nodiscard]] constexpr PressureLevel pressure_level(std::uint64_t used, std::uint64_t budget) noexcept {
  __extension__ using Wide = unsigned __int128;
  const auto judge = [](auto free_share, auto whole) {
    if (free_share > 30 * whole) return PressureLevel::none;
    if (free_share > 10 * whole) return PressureLevel::low;
    return free_share > 5 * whole ? PressureLevel::medium : PressureLevel::high;
  };
  if (used >= budget) return PressureLevel::critical;
  // What a ledger can hold (44 bits) fits 64-bit arithmetic, and every allocation asks.
  if (budget < (std::uint64_t{1} << 56)) return judge(100 * (budget - used), budget);
  return judge(Wide{100} * (budget - used), Wide{budget});
}

}  // namespace headroom
