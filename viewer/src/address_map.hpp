// headroom: where live blocks lie: to scale by address, with the gaps between them.
//
// Regions are what the source knows of the device's address space. Where it knows none, as in flight files, stretches of blocks stand for
// them: between two neighbours that lie farther apart than all live bytes and than 1 GiB, a new stretch begins, since the hole there is
// not memory but distance. Gaps at the ends of such a stretch cannot be seen.
//
// No ImGui. Thread safety: none. Cost: O(n log n) of what is live, and O(pixels) memory for a layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <headroom/follow.hpp>

namespace headroom::viewer {

struct AddressMap {
  follow::Known known = follow::Known::no_ledger;
  std::vector<follow::LiveBlock> blocks;       ///< by address
  std::vector<follow::AddressRegion> regions;  ///< by address; every block lies in one
  bool are_regions_known = false;              ///< false: stretches of blocks
  follow::Fragmentation fragmentation{};
  std::uint64_t bytes = 0;                           ///< of all blocks
  std::uint64_t oldest_ticks = 0, newest_ticks = 0;  ///< of blocks whose age is known
};
[[nodiscard]] AddressMap address_map(follow::Model const& model, std::uint32_t ledger, std::uint64_t ticks);

/// A piece of a row of the picture: a block or a part of one, or several that are narrower than a pixel.
struct MapCell {
  std::size_t row = 0;
  float begin = 0, end = 0;  ///< pixels
  std::size_t first = 0;     ///< block
  std::size_t count = 1;     ///< blocks that lie in it, the first one included
};
/// A region's begin, where one is drawn.
struct MapBegin {
  std::size_t row = 0;
  std::size_t region = 0;
};
struct MapLayout {
  std::uint64_t bytes_per_row = 0;
  std::size_t rows = 0;
  std::vector<MapCell> cells;
  std::vector<MapBegin> begins;
  std::vector<float> row_ends;  ///< pixels of each row that belong to its region
  [[nodiscard]] double bytes_per_pixel(float width) const noexcept {
    return width > 0 ? static_cast<double>(bytes_per_row) / static_cast<double>(width) : 0;
  }
};
/// Regions one after the other, each from a new row on, in about `rows` rows of `width` pixels. Never more cells than pixels.
[[nodiscard]] MapLayout layout_of(AddressMap const& map, std::size_t rows, float width);

/// The address at a pixel of a row; 0 outside of all regions.
[[nodiscard]] std::uint64_t address_at(AddressMap const& map, MapLayout const& layout, std::size_t row, float x, float width);

}  // namespace headroom::viewer
