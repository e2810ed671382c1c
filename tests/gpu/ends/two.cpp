// The static manager, and one more static buffer that was made before main.
#include "two.hpp"

#include <cstdlib>
#include <string_view>

namespace {

headroom::Result<headroom::Device> make_device() {
  const char* const resource = std::getenv("HEADROOM_ENDS_RESOURCE");
  const bool direct = resource != nullptr && std::string_view{resource} == "direct";
  return headroom::cuda_device(0, {.allocator = direct ? headroom::CudaAllocator::direct : headroom::CudaAllocator::async});
}

}  // namespace

headroom::Result<headroom::Device>& static_device() {
  static headroom::Result<headroom::Device> device = make_device();
  return device;
}

headroom::Result<headroom::GpuMemoryManager>& static_manager() {
  static headroom::Result<headroom::GpuMemoryManager> manager = static_device().and_then([](headroom::Device const& device) {
    return headroom::GpuMemoryManager::create(device, headroom::MemoryBudget::with_limit(1000));
  });
  return manager;
}

namespace {
const auto held_by_two =
    static_manager().and_then([](headroom::GpuMemoryManager manager) { return manager.alloc<std::byte>(kBytesOfTwo); });
}  // namespace
