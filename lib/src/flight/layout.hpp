// headroom: what a reader believes about a flight file, after checking it.
//
// A Layout is a private copy of the sizes and offsets in a header, every one checked against the size of the file. Whoever
// indexes with a Layout stays inside the mapping, whatever the file says now or later: nobody reads these header fields a second
// time.
//
// Thread safety: plain values. Cost: a microsecond when a file is opened.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <headroom/error.hpp>
#include <headroom/flight_format.hpp>

namespace headroom::flight {

using HeaderBytes = std::span<const std::byte, sizeof(FileHeader)>;

/// One ring within each lane.
struct RingLayout {
  std::uint32_t offset = 0;   ///< from the start of the lane
  std::uint32_t records = 0;  ///< a power of two
};

struct Layout {
  std::uint64_t file_bytes = 0;
  std::array<RegionEntry, kRegionCount> regions{};
  RingLayout main;
  RingLayout journal;

  [[nodiscard]] RegionEntry const& operator[](Region region) const noexcept { return regions[static_cast<std::size_t>(region)]; }
};

/// Nothing larger is mapped: a header that asks for more than this is damage, not a flight file.
inline constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 30;

/// Checks a copy of the first 4 KiB of something that has `available_bytes`. `name` begins every message. Errors: parse (offset,
/// what was found, what was expected), unsupported (another version or byte order; says both).
[[nodiscard]] Result<Layout> check_layout(HeaderBytes header, std::uint64_t available_bytes, std::string_view name);

/// The same for something that is too short to have a header.
[[nodiscard]] tl::unexpected<Error> too_short(std::uint64_t available_bytes, std::string_view name);

}  // namespace headroom::flight
