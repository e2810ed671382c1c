// A device's name in the flight file's directory.
#pragma once

#include <cstdint>

#include <headroom/device.hpp>

namespace headroom::device {

/// The directory id of a device: the same one for all managers and accounts of one (ordinal, name, uuid). The recorder must be up.
[[nodiscard]] std::uint32_t directory_entry(Device const& device);
[[nodiscard]] std::uint32_t directory_entry(std::int32_t ordinal, std::string_view name, std::string_view uuid, DeviceKind kind);

}  // namespace headroom::device
