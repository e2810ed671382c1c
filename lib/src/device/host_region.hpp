// headroom: the addresses of a host device: reserved memory, or numbers only.
//
// Thread safety: immutable after make. Cost: one mmap, no page is committed before it is written.
#pragma once

#include <cstddef>
#include <cstdint>

#include <headroom/error.hpp>

namespace headroom {

class HostRegion {
public:
  /// A region of `bytes` that starts at a multiple of `alignment` (a power of two). Errors: io (the system has no room for it).
  [[nodiscard]] static Result<HostRegion> make(std::uint64_t bytes, std::uint64_t alignment, bool touchable);
  HostRegion(HostRegion&& other) noexcept;
  HostRegion& operator=(HostRegion&&) = delete;
  ~HostRegion();

  [[nodiscard]] std::uint64_t start() const noexcept { return start_; }

private:
  HostRegion(std::uint64_t start, void* mapping, std::size_t mapped_bytes) noexcept
      : start_(start), mapping_(mapping), mapped_bytes_(mapped_bytes) {}
  std::uint64_t start_;
  void* mapping_;  // null: numbers only
  std::size_t mapped_bytes_;
};

}  // namespace headroom
