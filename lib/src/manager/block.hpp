// The block that a resource handed out, made again from what its owner keeps.
#pragma once

#include <headroom/buffer.hpp>
#include <headroom/device.hpp>

#include "manager/route.hpp"

namespace headroom::manager {

[[nodiscard]] inline Block block_of(Allocation const& allocation) noexcept {
  return {.pointer = allocation.pointer,
          .bytes = allocation.bytes,
          .alignment = std::uint64_t{1} << allocation.alignment_log2,
          .stream = {allocation.stream},
          .generation = allocation.generation,
          .device = allocation.route->ordinal(),
          .tag = allocation.tag};
}

}  // namespace headroom::manager
