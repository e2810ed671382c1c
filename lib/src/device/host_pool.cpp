#include "device/host_pool.hpp"

#include <algorithm>
#include <new>

namespace headroom {

HostPool::HostPool(FirstFit::Range usable, std::uint64_t cache_limit) : holes_(usable), cache_limit_(cache_limit) {}

std::optional<std::uint64_t> HostPool::take(std::uint64_t length, std::uint64_t alignment) {
  if (cache_.ranges() != 0) {
    if (auto const place = cache_.take(length, alignment)) return place;
  }
  return holes_.take(length, alignment);
}

FirstFit& HostPool::place_of(FirstFit::Range range) noexcept {
  auto const room = cache_limit_ - std::min(cache_limit_, cache_.total());
  return range.length <= room ? cache_ : holes_;
}

void HostPool::give(FirstFit::Range range) { place_of(range).give(range); }
void HostPool::make_room(FirstFit::Range range) { place_of(range).make_room(); }

std::uint64_t HostPool::trim(std::uint64_t keep) noexcept {
  std::uint64_t moved = 0;
  while (cache_.total() > keep) {
    try {
      holes_.make_room();  // what was taken from the cache must find its place there
      cache_.make_room();
    } catch (std::bad_alloc const&) {
      break;
    }
    auto const length = std::min(cache_.lowest()->length, cache_.total() - keep);
    // First fit finds the lowest range itself, since that is long enough.
    auto const start = cache_.take(length, 1);
    holes_.give({*start, length});
    moved += length;
  }
  return moved;
}

}  // namespace headroom
