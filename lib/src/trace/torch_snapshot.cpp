#include <headroom/torch_snapshot.hpp>

#include <algorithm>
#include <map>

#include "base/checked.hpp"

namespace headroom {

std::string_view to_string(TorchBlockState state) noexcept {
  switch (state) {
    case TorchBlockState::active_allocated: return "active_allocated";
    case TorchBlockState::active_pending_free: return "active_pending_free";
    case TorchBlockState::inactive: return "inactive";
  }
  return "unknown";
}

namespace {

/// A file may say of segments what no memory has; 2^64 - 1 is what a sum beyond that shows.
void add_up_to_most(std::uint64_t& sum, std::uint64_t bytes) noexcept { sum = checked_add(sum, bytes).value_or(kMaxUint64); }

}  // namespace

std::vector<TorchCacheFigures> cache_figures(TorchSnapshot const& snapshot) {
  std::map<std::uint32_t, TorchCacheFigures> by_device;
  std::map<std::uint32_t, std::uint64_t> inactive_bytes;
  for (auto const& segment : snapshot.segments) {
    auto& figures = by_device[segment.device];
    figures.device = segment.device;
    ++figures.segments;
    add_up_to_most(figures.reserved_bytes, segment.bytes);
    for (auto const& block : segment.blocks) {
      if (block.state == TorchBlockState::inactive) {
        ++figures.inactive_blocks;
        add_up_to_most(inactive_bytes[segment.device], block.bytes);
        figures.largest_inactive_bytes = std::max(figures.largest_inactive_bytes, block.bytes);
        continue;
      }
      ++figures.active_blocks;
      add_up_to_most(figures.active_bytes, block.bytes);
      if (block.state == TorchBlockState::active_allocated) add_up_to_most(figures.allocated_bytes, block.bytes);
    }
  }
  std::vector<TorchCacheFigures> all;
  for (auto& [device, figures] : by_device) {
    auto const inactive = inactive_bytes[device];
    if (inactive != 0) {
      figures.fragmentation = 1.0 - static_cast<double>(figures.largest_inactive_bytes) / static_cast<double>(inactive);
    }
    all.push_back(figures);
  }
  return all;
}

}  // namespace headroom
