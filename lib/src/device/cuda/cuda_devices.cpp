// GPUs as devices.
#include <utility>

#include <headroom/cuda_resource.hpp>

#include "device/cuda/cuda_device.hpp"

namespace headroom {
namespace {

template <class Resource>
Result<Device> device_over(std::shared_ptr<Resource> resource) {
  if (resource == nullptr) return Device::custom("cuda", nullptr, DeviceIdentity{}, DeviceKind::cuda);
  auto name = resource->device_name();
  DeviceIdentity identity{
      .ordinal = resource->ordinal(), .uuid = std::string{resource->device_uuid()}, .pci_address = resource->pci_bus_id()};
  return Device::custom(std::move(name), std::move(resource), std::move(identity), DeviceKind::cuda);
}

}  // namespace

Result<std::int32_t> cuda_device_count() { return device::count_cuda_devices(device::cuda_runtime_api()); }

Result<Device> cuda_device_over(std::shared_ptr<AsyncCudaResource> resource) { return device_over(std::move(resource)); }
Result<Device> cuda_device_over(std::shared_ptr<DirectCudaResource> resource) { return device_over(std::move(resource)); }

Result<Device> cuda_device(std::int32_t ordinal, CudaDeviceOptions const& options) {
  if (options.allocator == CudaAllocator::direct) {
    return DirectCudaResource::create(ordinal).and_then(device_over<DirectCudaResource>);
  }
  return AsyncCudaResource::create(ordinal, options.async).and_then(device_over<AsyncCudaResource>);
}

}  // namespace headroom
