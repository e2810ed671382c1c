// The holes between blocks. Regions and blocks become disjoint stretches first, so that nothing counts twice; ends are kept as
// 128-bit numbers, since a region may reach the end of the address space.
#include <algorithm>
#include <utility>
#include <vector>

#include <headroom/follow.hpp>

#include "base/checked.hpp"

namespace headroom::follow {
namespace {

struct Stretch {
  uint128 begin = 0, end = 0;
};

std::vector<Stretch> disjoint(std::vector<Stretch> stretches) {
  std::erase_if(stretches, [](Stretch const& stretch) { return stretch.begin >= stretch.end; });
  std::ranges::sort(stretches, {}, &Stretch::begin);
  std::vector<Stretch> merged;
  for (auto const& stretch : stretches) {
    if (!merged.empty() && stretch.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, stretch.end);
    } else {
      merged.push_back(stretch);
    }
  }
  return merged;
}

std::uint64_t clamped(uint128 bytes) noexcept { return bytes > kMaxUint64 ? kMaxUint64 : static_cast<std::uint64_t>(bytes); }

}  // namespace

Fragmentation fragmentation_of(std::span<AddressRegion const> regions, std::span<LiveBlock const> blocks) {
  std::vector<Stretch> space;
  for (auto const& region : regions) space.push_back({region.begin, uint128{region.begin} + region.bytes});
  std::vector<Stretch> used;
  for (auto const& block : blocks) used.push_back({block.address, uint128{block.address} + block.bytes});
  space = disjoint(std::move(space));
  used = disjoint(std::move(used));

  Fragmentation answer;
  uint128 region_bytes = 0, used_bytes = 0, free_bytes = 0, inside_bytes = 0, largest = 0;
  for (auto const& stretch : used) used_bytes += stretch.end - stretch.begin;
  auto const add_hole = [&](uint128 begin, uint128 end) {
    if (begin >= end) return;
    free_bytes += end - begin;
    largest = std::max(largest, end - begin);
    ++answer.holes;
  };
  auto block = used.begin();
  for (auto const& region : space) {
    region_bytes += region.end - region.begin;
    auto at = region.begin;
    while (block != used.end() && block->end <= region.begin) ++block;
    for (auto inside = block; inside != used.end() && inside->begin < region.end; ++inside) {
      auto const begin = std::max(inside->begin, region.begin);
      auto const end = std::min(inside->end, region.end);
      add_hole(at, begin);
      inside_bytes += end - begin;
      at = end;
    }
    add_hole(at, region.end);
  }
  answer.region_bytes = clamped(region_bytes);
  answer.free_bytes = clamped(free_bytes);
  answer.largest_hole = clamped(largest);
  answer.bytes_outside = clamped(used_bytes - inside_bytes);
  if (free_bytes != 0) answer.fragmentation = 1.0 - static_cast<double>(largest) / static_cast<double>(free_bytes);
  return answer;
}

}  // namespace headroom::follow
