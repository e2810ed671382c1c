// The static manager, and one more static buffer that was made before main.
#include "two.hpp"

#include <headroom/host_resource.hpp>

headroom::GpuMemoryManager& static_manager() {
  static headroom::GpuMemoryManager manager =
      headroom::GpuMemoryManager::create(headroom::host_device().value(), headroom::MemoryBudget::with_limit(1000)).value();
  return manager;
}

namespace {
const auto held_by_two = static_manager().alloc<std::byte>(kBytesOfTwo).value();
}  // namespace
