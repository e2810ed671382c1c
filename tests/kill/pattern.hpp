// What victim and driver know together: every figure of a block follows from its size and its serial number, so that a record or
// slot that mixes two blocks contradicts itself.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/test_point.hpp"

namespace headroom::kill {

inline constexpr std::uint64_t kTags = 7;
inline constexpr std::uint64_t kStreams = 5;
inline constexpr std::uint64_t kLimit = 64 * 1024;
inline constexpr std::uint64_t kLargest = 16 * 1024;
inline constexpr std::uint64_t kLargestReservation = 2 * kLargest;

inline std::string tag_name(std::uint64_t bytes) { return "tag-" + std::to_string(bytes % kTags); }
inline std::uint64_t alignment_of(std::uint64_t bytes) { return std::uint64_t{256} << (bytes % 4); }
inline std::uint64_t stream_of(std::uint64_t bytes) { return bytes % kStreams; }

/// Addresses: serial (24) · check (8) · bytes (16) · zeros (11): aligned to 2 KiB. Nothing is behind them.
inline std::uint64_t check_of(std::uint64_t serial, std::uint64_t bytes) {
  return ((serial * 0x9E3779B1U) ^ (bytes * 0x85EBCA6BU)) >> 7 & 0xFF;
}
inline std::uint64_t address_of(std::uint64_t serial, std::uint64_t bytes) {
  serial &= 0xFFFFFF;
  return serial << 35 | check_of(serial, bytes) << 27 | (bytes & 0xFFFF) << 11;
}
inline bool address_fits(std::uint64_t address, std::uint64_t bytes) {
  return address != 0 && address == address_of(address >> 35, bytes);
}
/// Every 6th block's first free fails.
inline bool free_fails_once(std::uint64_t address) { return (address >> 35) % 6 == 0; }

inline constexpr std::uint32_t kMostThreads = 64;
/// Ledger 0 has a limit, and its threads free again what failed; ledger 1 only observes, and its threads write it off.
inline bool is_tight(std::size_t thread) { return thread % 3 != 2; }

/// What a thread of the victim has finished, by its own count; in a file that outlives it.
struct alignas(64) Truth {
  std::atomic<std::uint64_t> thread_id{0};
  std::atomic<std::uint64_t> allocations{0};  ///< granted, returned to the program
  std::atomic<std::uint64_t> frees{0};        ///< accepted
  std::atomic<std::uint64_t> refusals{0};
  std::atomic<std::uint64_t> failed_frees{0};
  std::atomic<std::uint64_t> reservations{0};  ///< granted, returned to the program
  std::atomic<std::uint64_t> drops{0};         ///< reservations that are over
};

struct Truths {
  std::array<Truth, kMostThreads> threads;
  std::atomic<std::uint64_t> standing{0};  ///< 1: the first thread stands at its point, and will until the process is killed
};

}  // namespace headroom::kill
