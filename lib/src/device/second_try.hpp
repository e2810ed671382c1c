// What is done before a device's "no" is believed: pending frees are reaped and waited for, caches are trimmed, and it is asked again.
//
// Frees first, since they cost nothing but time; what is then still missing may lie in a cache of the resource, where it cannot join the
// holes around it. A refusal is believed when nothing is pending, nothing is cached, and the device's figures stand still.
#pragma once

#include <cstdint>
#include <optional>

#include <headroom/device.hpp>
#include <headroom/error.hpp>

namespace headroom::device {

/// How a request is asked for again, and who hears of it. Called with no lock held.
class SecondTry {
public:
  SecondTry() = default;
  SecondTry(SecondTry const&) = delete;
  SecondTry& operator=(SecondTry const&) = delete;
  virtual ~SecondTry() = default;

  [[nodiscard]] virtual Result<Block> ask() noexcept = 0;
  /// A cache gave bytes back, before the next ask().
  virtual void trimmed(std::uint64_t bytes) noexcept = 0;
  /// Bytes that the request may count on now; compared with the device_free of its refusal. Absent: unknown.
  [[nodiscard]] virtual std::optional<std::uint64_t> free_now() const noexcept = 0;
};

/// `block` is a refusal. If it says that the device had no room, room is made below `resource` as far as that can be done, and it is
/// asked again; bounded. The result is the block, or the last refusal with what was tried.
[[nodiscard]] Result<Block> ask_again_if_short(DeviceResource& resource, AllocRequest const& request, Result<Block> block,
                                               SecondTry& again) noexcept;

}  // namespace headroom::device
