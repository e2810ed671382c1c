// headroom: the checks that every resource makes before it asks its driver. Plain functions; a few instructions when all is
// well.
#pragma once

#include <algorithm>
#include <cstdint>

#include <headroom/device.hpp>

#include "base/checked.hpp"

namespace headroom {

[[nodiscard]] inline std::uint64_t raised_alignment(std::uint64_t alignment) noexcept {
  return std::max(alignment, kMinimumAlignment);
}

/// True when the figures of a request are fine.
[[nodiscard]] constexpr bool acceptable(AllocRequest const& request) noexcept {
  return is_power_of_two(request.alignment) && request.bytes <= kLargestRequest;
}

/// True when [offset, offset + bytes) is a part of a block.
[[nodiscard]] constexpr bool within(Block const& block, std::uint64_t offset, std::uint64_t bytes) noexcept {
  return offset <= block.bytes && bytes <= block.bytes - offset;
}

/// The error of a request that is not acceptable.
[[nodiscard]] tl::unexpected<Error> wrong_request(AllocRequest const& request);
/// The error of a range that is not within its block.
[[nodiscard]] tl::unexpected<Error> wrong_range(Block const& block, std::uint64_t offset, std::uint64_t bytes);

}  // namespace headroom
