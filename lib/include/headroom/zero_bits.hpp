// headroom: types for which memory full of zeros is a value.
// Layer: manager
//
// What zeroes memory for you needs to be told that zeros make sense in it: a type with a reference to something, or an enumeration
// without a 0, has none. Numbers, std::byte, and arrays of what qualifies do; say so for a type of your own by
//
//   template <> inline constexpr bool headroom::valid_as_zero_bits<Particle> = true;
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include <headroom/buffer.hpp>

namespace headroom {

// NOLINTBEGIN(readability-identifier-naming): a trait, named as the standard's are
template <class T>
inline constexpr bool valid_as_zero_bits = std::is_arithmetic_v<T> || std::is_same_v<T, std::byte>;
template <class T, std::size_t N>
inline constexpr bool valid_as_zero_bits<std::array<T, N>> = valid_as_zero_bits<T>;
// NOLINTEND(readability-identifier-naming)

/// Plain device data of which all-zero bits are a valid value.
template <class T>
concept ValidAsZeroBits = DeviceRepr<T> && valid_as_zero_bits<T>;

}  // namespace headroom
