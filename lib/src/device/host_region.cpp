#include "device/host_region.hpp"

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <sys/mman.h>

#include <headroom/byte_size.hpp>

namespace headroom {
namespace {

// Numbers that look like addresses, below 2^47 so that they fit wherever addresses are packed, and away from where Linux puts
// heap, programs and mappings. Two devices get different ones, so that a block of one is unknown to the other, until the window
// of 48 TiB is used up and begins again.
constexpr std::uint64_t kWindowStart = std::uint64_t{0x1000} << 32;
constexpr std::uint64_t kWindowBytes = std::uint64_t{0x3000} << 32;

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

// Written and read by any thread that makes a device; relaxed, nothing is published with it.
std::atomic<std::uint64_t> window_used{0};

std::uint64_t take_numbers(std::uint64_t bytes, std::uint64_t alignment) noexcept {
  auto used = window_used.load(std::memory_order_relaxed);
  std::uint64_t begin = 0;
  do {
    begin = align_up(used, alignment);
    if (begin + bytes > kWindowBytes) begin = 0;
  } while (!window_used.compare_exchange_weak(used, begin + bytes, std::memory_order_relaxed));
  return kWindowStart + begin;
}

}  // namespace

Result<HostRegion> HostRegion::make(std::uint64_t bytes, std::uint64_t alignment, bool touchable) {
  if (!touchable) return HostRegion(take_numbers(bytes, alignment), nullptr, 0);
  auto const mapped = bytes + alignment;  // mmap aligns to pages only
  void* const mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return fail(ErrorKind::io, Layer::resource,
                "cannot reserve " + format_bytes(mapped) + " of address space for the host device: " + std::strerror(errno) +
                    " (a smaller total_bytes, or touch_memory = false, needs less)");
  }
  return HostRegion(align_up(std::bit_cast<std::uint64_t>(mapping), alignment), mapping, mapped);
}

HostRegion::HostRegion(HostRegion&& other) noexcept
    : start_(other.start_), mapping_(std::exchange(other.mapping_, nullptr)), mapped_bytes_(other.mapped_bytes_) {}

HostRegion::~HostRegion() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

}  // namespace headroom
