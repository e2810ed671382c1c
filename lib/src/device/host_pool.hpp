// headroom: where a host device's bytes are: in holes, or kept by the cache. Everything is counted in granules.
//
// Thread safety: none, the owner locks. Cost: that of FirstFit. Strong exception safety.
#pragma once

#include <cstdint>
#include <optional>

#include "device/first_fit.hpp"

namespace headroom {

class HostPool {
public:
  HostPool(FirstFit::Range usable, std::uint64_t cache_limit);

  /// The lowest place that fits, in the cache if it has one, else in the holes.
  [[nodiscard]] std::optional<std::uint64_t> take(std::uint64_t length, std::uint64_t alignment);

  /// To the cache if it stays within its limit with the whole range, else to the holes: a range is never split, as a driver's
  /// pool keeps or releases whole pieces.
  void give(FirstFit::Range range);

  /// Room for give(range), which cannot throw then. Itself it may (bad_alloc, nothing changed).
  void make_room(FirstFit::Range range);

  /// Moves cached ranges to the holes, lowest first, until at most `keep` granules are cached, or host memory is out. Returns how many
  /// moved.
  std::uint64_t trim(std::uint64_t keep) noexcept;

  [[nodiscard]] FirstFit const& holes() const noexcept { return holes_; }
  [[nodiscard]] FirstFit const& cache() const noexcept { return cache_; }

private:
  [[nodiscard]] FirstFit& place_of(FirstFit::Range range) noexcept;
  FirstFit holes_;
  FirstFit cache_;
  std::uint64_t cache_limit_;
};

}  // namespace headroom
