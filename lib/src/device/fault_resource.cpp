#include <headroom/fault_resource.hpp>

#include "device/request_checks.hpp"

namespace headroom {

Result<std::shared_ptr<FaultResource>> FaultResource::create(std::shared_ptr<DeviceResource> inner) {
  return decorate<FaultResource>(std::move(inner));
}

FaultResource::FaultResource(InnerResource inner) noexcept : ResourceDecorator(std::move(inner)) {}

Result<Block> FaultResource::allocate(AllocRequest const& request) {
  if (request.bytes != 0 && acceptable(request)) {
    if (auto fault = faults_.next(FaultOperation::allocate, request.bytes, request.tag)) {
      fault->device_free = memory_info().free;
      return tl::make_unexpected(*std::move(fault));
    }
  }
  return ResourceDecorator::allocate(request);
}

Result<void> FaultResource::deallocate(Block const& block) {
  if (block.bytes != 0) {
    if (auto fault = faults_.next(FaultOperation::deallocate, block.bytes, block.tag)) {
      return tl::make_unexpected(*std::move(fault));
    }
  }
  return ResourceDecorator::deallocate(block);
}

Result<void> FaultResource::fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) {
  if (bytes != 0 && within(block, offset, bytes)) {
    if (auto fault = faults_.next(FaultOperation::fill, bytes, block.tag)) return tl::make_unexpected(*std::move(fault));
  }
  return ResourceDecorator::fill_zero(block, offset, bytes, stream);
}

Result<void> FaultResource::copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source,
                                    StreamId stream) {
  if (!source.empty() && within(block, offset, source.size())) {
    if (auto fault = faults_.next(FaultOperation::copy, source.size(), block.tag)) return tl::make_unexpected(*std::move(fault));
  }
  return ResourceDecorator::copy_in(block, offset, source, stream);
}

std::string_view FaultResource::name() const noexcept { return kName; }

}  // namespace headroom
