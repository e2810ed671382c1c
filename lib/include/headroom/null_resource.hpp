// headroom: a resource that does nothing, for measuring what stands above it.
// Layer: device
//
// Hands out distinct, aligned addresses with no memory behind them: never dereference one. Distinct means that no two blocks of
// the process share an address until 2^36 of them were made (then they repeat); the ranges behind the addresses may overlap. It
// keeps no books: deallocate accepts anything, bytes_outstanding is always 0, memory_info unknown, every stream is valid. Prefer
// HostResource with touch_memory = false wherever a mistake should be noticed.
//
// Thread safety: any thread, any time; threads share nothing but one counter touched every 4 million allocations.
// Cost: a few nanoseconds, most of them for returning the block.
#pragma once

#include <headroom/device.hpp>

namespace headroom {

class NullResource final : public DeviceResource {
public:
  NullResource() = default;

  /// Zero bytes: a null pointer. Errors: invalid_argument (alignment no power of two, or above 1 GiB), overflow (above 16 TiB −
  /// 1).
  [[nodiscard]] Result<Block> allocate(AllocRequest const& request) override;
  /// Always succeeds; the memory is the device's again at once.
  [[nodiscard]] Result<void> deallocate(Block const& block) override;
  /// Check the range and do nothing. Errors: invalid_argument.
  [[nodiscard]] Result<void> fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) override;
  [[nodiscard]] Result<void> copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source,
                                     StreamId stream) override;
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override;  ///< always 0: nothing is counted
  [[nodiscard]] bool reports_returns() const noexcept override;             ///< true
  [[nodiscard]] std::string_view name() const noexcept override;            ///< "null"
};

/// A device named "null" over a NullResource.
[[nodiscard]] Result<Device> null_device();

}  // namespace headroom
