// A device's name in the flight file's directory.
#pragma once

#include <cstdint>

#include <headroom/device.hpp>

namespace headroom::device {

/// The directory id of a device: the same one for all managers and accounts of one identity and name. A UUID is written whole or not
/// at all: a long name is cut to make room for it. The recorder must be up.
[[nodiscard]] std::uint32_t directory_entry(Device const& device);

}  // namespace headroom::device
