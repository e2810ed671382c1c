// headroom: the checks that every resource makes before it asks its driver. Plain functions; a few instructions when all is
// well.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

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

/// `0x` and hexadecimal digits.
[[nodiscard]] std::string hexadecimal(std::uint64_t value);
/// What a resource found wrong with a block that it was given.
struct MisusedBlock {
  ErrorKind misuse = ErrorKind::unknown_pointer;
  std::uint64_t recorded_bytes = 0;  ///< for wrong_size
  std::string_view resource;         ///< who never handed out an unknown one: "the host device"
};
[[nodiscard]] Error misused_block(Block const& block, MisusedBlock const& found);

}  // namespace headroom
