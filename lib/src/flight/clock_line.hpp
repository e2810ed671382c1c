// The arithmetic of a ClockMap, over syncs that lie in memory of somebody else: for whoever must not allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <headroom/flight_reader.hpp>

namespace headroom::flight {

struct ClockLine {
  using Sync = ClockMap::Sync;
  std::uint64_t ticks_per_second = 0;  ///< not 0
  std::span<Sync const> syncs;         ///< at least one; by ticks, without doubles

  [[nodiscard]] std::uint64_t convert(std::uint64_t ticks, std::uint64_t Sync::* clock) const noexcept;
  [[nodiscard]] std::uint64_t realtime_ns(std::uint64_t ticks) const noexcept { return convert(ticks, &Sync::realtime_ns); }
  [[nodiscard]] std::uint64_t monotonic_ns(std::uint64_t ticks) const noexcept { return convert(ticks, &Sync::monotonic_ns); }
  [[nodiscard]] std::uint64_t duration_ns(std::uint64_t ticks) const noexcept;
};

/// Sorts by ticks and drops doubles, of which the first one given stays. Returns how many are left, at the front. For a thousand at
/// most: in the worst order the time is quadratic.
[[nodiscard]] std::size_t arrange_syncs(std::span<ClockMap::Sync> syncs) noexcept;

}  // namespace headroom::flight
