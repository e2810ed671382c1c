// headroom: the live blocks of a resource, by the granule they start at.
//
// Open addressing with linear probing; an erased entry is closed by moving later ones back, so that no tombstones pile up under a
// program that allocates and frees for days.
//
// Thread safety: none, the owner locks. Cost: one or two cache lines; 32 bytes an entry, at most three quarters full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <headroom/device.hpp>

namespace headroom {

class HostBlocks {
public:
  struct Entry {
    std::uint64_t granule = kFree;
    std::uint64_t bytes = 0;
    std::uint64_t generation = 0;
    StreamId stream{};  // of the allocation: the copy in a caller's block may have been changed, to free elsewhere
  };

  /// `initial_entries` is a power of two.
  explicit HostBlocks(std::size_t initial_entries = 1024);
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Makes room for one more; the only call that may throw (bad_alloc, nothing changed).
  void reserve_one() {
    if ((size_ + 1) * 4 > entries_.size() * 3) [[unlikely]]
      grow();
  }
  /// Adds an entry whose granule is not in the table; after reserve_one.
  void insert(Entry const& entry) noexcept {
    auto slot = home(entry.granule);
    while (entries_[slot].granule != kFree) slot = next(slot);
    entries_[slot] = entry;
    ++size_;
  }
  /// Null when the granule starts no live block. Valid until the next change.
  [[nodiscard]] Entry const* find(std::uint64_t granule) const noexcept {
    for (auto slot = home(granule); entries_[slot].granule != kFree; slot = next(slot)) {
      if (entries_[slot].granule == granule) return &entries_[slot];
    }
    return nullptr;
  }
  void erase(Entry const* entry) noexcept;
  template <class Visit>
  void for_each(Visit const& visit) const {
    for (auto const& entry : entries_) {
      if (entry.granule != kFree) visit(entry);
    }
  }

private:
  static constexpr std::uint64_t kFree = UINT64_MAX;
  void grow();
  // Fibonacci hashing: neighbouring granules, and those at equal distances, land far apart.
  [[nodiscard]] std::size_t home(std::uint64_t granule) const noexcept { return (granule * 0x9E3779B97F4A7C15U) >> shift_; }
  [[nodiscard]] std::size_t next(std::size_t slot) const noexcept { return (slot + 1) & (entries_.size() - 1); }

  std::vector<Entry> entries_;  // a power of two of them
  unsigned shift_;              // 64 − log2 of that
  std::size_t size_ = 0;
};

}  // namespace headroom
