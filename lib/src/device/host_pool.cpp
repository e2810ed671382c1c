#include "device/host_pool.hpp"

#include <algorithm>

namespace headroom {

HostPool::HostPool(FirstFit::Range usable, std::uint64_t cache_limit) : holes_(usable), cache_limit_(cache_limit) {}

std::optional<std::uint64_t> HostPool::take(std::uint64_t length, std::uint64_t alignment) {
  if (cache_.ranges() != 0) {
    if (auto const place = cache_.take(length, alignment)) return place;
  }
  return holes_.take(length, alignment);
}

void HostPool::give(FirstFit::Range range) {
  auto const room = cache_limit_ - std::min(cache_limit_, cache_.total());
  (range.length <= room ? cache_ : holes_).give(range);
}

std::uint64_t HostPool::trim(std::uint64_t keep) {
  std::uint64_t moved = 0;
  while (cache_.total() > keep) {
    auto const length = std::min(cache_.lowest()->length, cache_.total() - keep);
    // First fit finds the lowest range itself, since that is long enough.
    auto const start = cache_.take(length, 1);
    holes_.give({*start, length});
    moved += length;
  }
  return moved;
}

}  // namespace headroom
