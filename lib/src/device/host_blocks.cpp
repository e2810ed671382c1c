#include "device/host_blocks.hpp"

#include <bit>

namespace headroom {

HostBlocks::HostBlocks(std::size_t initial_entries)
    : entries_(initial_entries), shift_(64U - static_cast<unsigned>(std::countr_zero(initial_entries))) {}

void HostBlocks::grow() {
  std::vector<Entry> old(entries_.size() * 2);
  old.swap(entries_);
  --shift_;
  size_ = 0;
  for (auto const& entry : old) {
    if (entry.granule != kFree) insert(entry);
  }
}

void HostBlocks::erase(Entry const* entry) noexcept {
  auto gap = static_cast<std::size_t>(entry - entries_.data());
  for (auto slot = next(gap); entries_[slot].granule != kFree; slot = next(slot)) {
    // An entry may move into the gap unless its home lies behind the gap, cyclically.
    auto const mask = entries_.size() - 1;
    auto const from_home = (slot - home(entries_[slot].granule)) & mask;
    if (from_home >= ((slot - gap) & mask)) {
      entries_[gap] = entries_[slot];
      gap = slot;
    }
  }
  entries_[gap].granule = kFree;
  --size_;
}

}  // namespace headroom
