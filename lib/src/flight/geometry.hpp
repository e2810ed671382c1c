// Where everything lies in a flight file of a given size. One function computes it, for the writer and for tests that build files;
// readers believe only the header.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <headroom/flight_format.hpp>

namespace headroom::flight {

/// What may be chosen; everything else is fixed by the format. All powers of two.
struct Sizes {
  std::uint32_t main_records = 2048;
  std::uint32_t main_block = 32;
  std::uint32_t journal_records = 128;
  std::uint32_t journal_block = 8;
  std::uint32_t live_slots = 65536;
  std::uint32_t directory_entries = 4096;

  /// Rings and table at half their size; false when they are as small as they may get.
  [[nodiscard]] bool halve() noexcept;
};

inline constexpr std::uint32_t kSmallestMainRing = 64;
inline constexpr std::uint32_t kSmallestJournal = 32;
inline constexpr std::uint32_t kClockSyncs = 128;
inline constexpr std::uint32_t kHookCells = 256;
inline constexpr std::uint32_t kFirstFailures = 256;

struct Geometry {
  Sizes sizes;
  std::array<RegionEntry, kRegionCount> regions{};
  std::uint32_t lane_main_offset = 0;
  std::uint32_t lane_journal_offset = 0;
  std::uint64_t bytes = 0;

  [[nodiscard]] RegionEntry const& operator[](Region region) const noexcept { return regions[static_cast<std::size_t>(region)]; }
};

[[nodiscard]] Geometry geometry_for(Sizes const& sizes) noexcept;

/// Writes sizes, offsets and versions into a zeroed header; everything but `magic`.
void describe(Geometry const& geometry, FileHeader& header) noexcept;

}  // namespace headroom::flight
