#include <headroom/headroom.hpp>

#include <cstdio>

int main() {
  // [readme]
  auto device = headroom::host_device().value();  // a stand-in for a GPU; any DeviceResource will do
  auto manager = headroom::GpuMemoryManager::create(device, headroom::MemoryBudget::with_limit(1 << 20), "example").value();

  static const headroom::AllocTag kWeights{"weights"};
  auto weights = manager.alloc<float>(200'000, kWeights);  // 800,000 bytes: fits
  auto cache = manager.alloc<float>(100'000);              // 400,000 more: does not
  if (!cache) std::puts(cache.error().to_string().c_str());

  weights = {};  // given back: first to the device, then to the budget
  std::puts(manager.audit().to_string().c_str());
  // [readme]
  return cache || manager.allocated_bytes() != 0 ? 1 : 0;
}
