#include "address_map.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headroom::viewer {
namespace {

using follow::AddressRegion;
using follow::LiveBlock;

constexpr std::uint64_t kFarApart = std::uint64_t{1} << 30U;

/// Stretches of blocks, from the first byte of one to the last of one.
std::vector<AddressRegion> stretches_of(std::vector<LiveBlock> const& blocks, std::uint64_t bytes) {
  auto const far = std::max(bytes, kFarApart);
  std::vector<AddressRegion> stretches;
  for (auto const& block : blocks) {
    auto const end = block.address + block.bytes;
    if (!stretches.empty()) {
      auto& last = stretches.back();
      auto const last_end = last.begin + last.bytes;
      if (block.address <= last_end || block.address - last_end <= far) {
        last.bytes = std::max(last_end, end) - last.begin;
        continue;
      }
    }
    stretches.push_back({.begin = block.address, .bytes = block.bytes});
  }
  return stretches;
}

/// Known regions, and stretches for blocks that lie in none.
std::vector<AddressRegion> with_outsiders(std::vector<AddressRegion> regions, std::vector<LiveBlock> const& blocks,
                                          std::uint64_t bytes) {
  std::ranges::sort(regions, {}, &AddressRegion::begin);
  std::vector<LiveBlock> outside;
  for (auto const& block : blocks) {
    auto const after = std::ranges::upper_bound(regions, block.address, {}, &AddressRegion::begin);
    auto const is_inside = after != regions.begin() && block.address - std::prev(after)->begin < std::prev(after)->bytes;
    if (!is_inside) outside.push_back(block);
  }
  std::ranges::move(stretches_of(outside, bytes), std::back_inserter(regions));
  std::ranges::sort(regions, {}, &AddressRegion::begin);
  return regions;
}

/// Draws one region's blocks into rows from `first_row` on.
class RowFiller {
public:
  RowFiller(MapLayout& layout, AddressRegion const& region, std::size_t first_row, float width)
      : layout_{layout}, region_{region}, first_row_{first_row}, width_{static_cast<double>(width)} {}

  void add(LiveBlock const& block, std::size_t index) {
    auto const from = block.address - std::min(block.address, region_.begin);
    auto const to = std::min(from + block.bytes, region_.bytes);
    auto const per_row = layout_.bytes_per_row;
    for (auto row = from / per_row; row * per_row < std::max(to, from + 1); ++row) {
      auto const begin = std::max(from, row * per_row) - row * per_row;
      auto const end = std::min(to, (row + 1) * per_row) - row * per_row;
      put(first_row_ + static_cast<std::size_t>(row), begin, end, index);
    }
  }

private:
  void put(std::size_t row, std::uint64_t begin, std::uint64_t end, std::size_t index) {
    auto const scale = width_ / static_cast<double>(layout_.bytes_per_row);
    auto const x0 = static_cast<float>(static_cast<double>(begin) * scale);
    auto const x1 = static_cast<float>(static_cast<double>(end) * scale);
    auto& cells = layout_.cells;
    // Narrower than a pixel: into the cell of that pixel, if there is one of its kind.
    auto const pixel = std::floor(x0);
    if (x1 - x0 < 1 && !cells.empty() && cells.back().row == row && cells.back().begin >= pixel &&
        cells.back().end <= pixel + 1.001F && cells.back().end - cells.back().begin <= 1.001F) {
      cells.back().end = pixel + 1;
      ++cells.back().count;
      return;
    }
    if (x1 - x0 < 1) {
      cells.push_back({.row = row, .begin = pixel, .end = pixel + 1, .first = index});
    } else {
      cells.push_back({.row = row, .begin = x0, .end = x1, .first = index});
    }
  }

  MapLayout& layout_;
  AddressRegion const& region_;
  std::size_t first_row_;
  double width_;
};

std::uint64_t rows_of(AddressRegion const& region, std::uint64_t per_row) noexcept {
  return std::max<std::uint64_t>((region.bytes + per_row - 1) / per_row, 1);
}

}  // namespace

AddressMap address_map(follow::Model const& model, std::uint32_t ledger, std::uint64_t ticks) {
  AddressMap map;
  map.known = model.state_at(ledger, ticks).known;
  map.blocks = model.live_at(ledger, ticks);
  std::ranges::sort(map.blocks, {}, &LiveBlock::address);
  for (auto const& block : map.blocks) {
    map.bytes += block.bytes;
    if (!block.ticks) continue;
    map.oldest_ticks = map.oldest_ticks == 0 ? *block.ticks : std::min(map.oldest_ticks, *block.ticks);
    map.newest_ticks = std::max(map.newest_ticks, *block.ticks);
  }
  auto regions = model.source().regions(ledger);
  map.are_regions_known = !regions.empty();
  map.regions = with_outsiders(regions, map.blocks, map.bytes);
  map.fragmentation = follow::fragmentation_of(map.are_regions_known ? regions : map.regions, map.blocks);
  return map;
}

MapLayout layout_of(AddressMap const& map, std::size_t rows, float width) {
  MapLayout layout;
  if (map.regions.empty() || rows == 0 || width < 1) return layout;
  std::uint64_t bytes = 0;
  for (auto const& region : map.regions) bytes += region.bytes;
  // Every region has a row of its own at least: what is left is shared out by size. A power of two, so that a row is a figure to remember.
  auto const for_bytes = std::max<std::size_t>(rows > map.regions.size() ? rows - map.regions.size() : 1, 1);
  auto per_row = std::max<std::uint64_t>(bytes / for_bytes, 1);
  layout.bytes_per_row = 1;
  while (layout.bytes_per_row < per_row && layout.bytes_per_row < (std::uint64_t{1} << 62U)) layout.bytes_per_row *= 2;
  auto block = map.blocks.begin();
  auto const scale = static_cast<double>(width) / static_cast<double>(layout.bytes_per_row);
  for (std::size_t i = 0; i < map.regions.size(); ++i) {
    auto const& region = map.regions[i];
    layout.begins.push_back({.row = layout.rows, .region = i});
    RowFiller filler{layout, region, layout.rows, width};
    for (; block != map.blocks.end() && block->address < region.begin + std::max<std::uint64_t>(region.bytes, 1); ++block) {
      filler.add(*block, static_cast<std::size_t>(block - map.blocks.begin()));
    }
    auto const region_rows = rows_of(region, layout.bytes_per_row);
    for (std::uint64_t row = 0; row < region_rows; ++row) {
      auto const left = region.bytes - std::min(region.bytes, row * layout.bytes_per_row);
      layout.row_ends.push_back(static_cast<float>(std::min(static_cast<double>(left) * scale, static_cast<double>(width))));
    }
    layout.rows += static_cast<std::size_t>(region_rows);
  }
  return layout;
}

std::uint64_t address_at(AddressMap const& map, MapLayout const& layout, std::size_t row, float x, float width) {
  auto const after = std::ranges::upper_bound(layout.begins, row, {}, &MapBegin::row);
  if (after == layout.begins.begin() || row >= layout.rows || x < 0 || width < 1) return 0;
  auto const& begin = *std::prev(after);
  auto const& region = map.regions[begin.region];
  auto const offset = static_cast<std::uint64_t>(row - begin.row) * layout.bytes_per_row +
                      static_cast<std::uint64_t>(static_cast<double>(x) * layout.bytes_per_pixel(width));
  return offset < region.bytes ? region.begin + offset : 0;
}

}  // namespace headroom::viewer
