// The bounds of a pickle. Each is checked before anything of that size exists.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headroom::trace::pickle {

inline constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 48U;          ///< of a pickle, decompressed
inline constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 20U;      ///< of one text, or of bytes
inline constexpr std::uint64_t kMaxIntegerBytes = 255;                       ///< of an integer, however small its value
inline constexpr std::size_t kMaxStack = std::size_t{1} << 20U;              ///< values and marks at one time
inline constexpr std::uint8_t kMaxDepth = 64;                                ///< containers in containers
inline constexpr std::uint64_t kMaxMemoEntries = std::uint64_t{1} << 31U;    ///< their numbers are below 2^32
inline constexpr std::uint64_t kMaxFetchCounts = std::uint64_t{1} << 26U;    ///< a byte each (fetch_counts.hpp)
inline constexpr std::uint64_t kMaxContainers = std::uint64_t{1} << 31U;     ///< lists and dicts in a pickle
inline constexpr std::uint64_t kMaxRetainedBytes = std::uint64_t{1} << 30U;  ///< of all values that are alive, and the memo
/// More bytes behind the end than this are not counted.
inline constexpr std::size_t kMaxCountedRest = std::size_t{1} << 16U;

}  // namespace headroom::trace::pickle
