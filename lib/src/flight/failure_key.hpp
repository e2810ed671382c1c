// headroom: the key of a first-failure cell, packed and unpacked in one place for writer and readers.
//
//   63 … 33  32 … 17  16 … 9  8 … 1   0
//   │ zero   │ tag    │ kind  │ layer │ 1 │   0 = the cell is free
#pragma once

#include <cstdint>

#include <headroom/error.hpp>

namespace headroom::flight {

[[nodiscard]] constexpr std::uint64_t pack_failure_key(std::uint32_t tag, ErrorKind kind, Layer layer) noexcept {
  return (std::uint64_t{tag & 0xFFFFU} << 17) | (std::uint64_t{static_cast<std::uint8_t>(kind)} << 9) |
         (std::uint64_t{static_cast<std::uint8_t>(layer)} << 1) | 1;
}

[[nodiscard]] constexpr std::uint32_t failure_tag(std::uint64_t key) noexcept {
  return static_cast<std::uint32_t>((key >> 17) & 0xFFFFU);
}
/// As stored: compare with kErrorKindCount and kLayerCount before use.
[[nodiscard]] constexpr std::uint8_t failure_kind(std::uint64_t key) noexcept { return static_cast<std::uint8_t>(key >> 9); }
[[nodiscard]] constexpr std::uint8_t failure_layer(std::uint64_t key) noexcept { return static_cast<std::uint8_t>(key >> 1); }

}  // namespace headroom::flight
