// Asking a route's resource for memory, and what is done before its "no" is believed.
#pragma once

#include <headroom/device.hpp>
#include <headroom/error.hpp>

#include "device/guarded.hpp"
#include "manager/errors.hpp"
#include "manager/route.hpp"

namespace headroom::manager {

/// No exception leaves the library, whatever a user's resource throws.
[[nodiscard]] inline Result<Block> ask_for_block(DeviceResource& resource, AllocRequest const& request) noexcept {
  return device::guarded([&] { return resource.allocate(request); });
}

/// `block` is a refusal. If it says that the device had no room: frees that were made may still be pending on their streams, and caches
/// may hold what nobody uses. Takes the frees that are finished, then waits for one after the other, then trims the caches (an event),
/// asking again whenever enough came back to try; bounded. The result is the block, or the last refusal. `place` is the tag's.
[[nodiscard]] Result<Block> ask_again_if_short(Route& route, AllocRequest const& asked, flight::TagPlace place,
                                               Result<Block> block) noexcept;

/// Gives everything that the resource keeps for later requests back to its device; the bytes. A resource that throws keeps it.
[[nodiscard]] std::uint64_t trim_all(DeviceResource& resource) noexcept;

/// Waits for all pending frees. Errors: what the resource says.
[[nodiscard]] Result<void> reap_all(DeviceResource& resource) noexcept;

}  // namespace headroom::manager
