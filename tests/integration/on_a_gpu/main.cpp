// A program on a GPU that is not there, so that somebody can see which labels its metrics have.
//
//   on_a_gpu UUID
//
// Device 0 has that UUID and a budget of 24 GiB for all managers. "serve" holds 14 GiB of weights and 4 of kv-cache under 20 GiB of its
// own. "ready" is printed; it ends when it is killed.
#include <cstdint>
#include <cstdio>
#include <string>

#include <unistd.h>

#include <headroom/device_account.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>

namespace {

using headroom::AllocTag;
using headroom::Device;
using headroom::GpuMemoryManager;
using headroom::MemoryBudget;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  headroom::HostOptions options;
  options.total_bytes = 80 * kGiB;
  options.touch_memory = false;
  auto const gpu = Device::custom("made-up GPU", headroom::HostResource::create(options).value(), 0, arguments[1]).value();
  auto const account = headroom::GlobalDeviceBudget::create(gpu, MemoryBudget::with_limit(24 * kGiB)).value();
  auto const device = Device::custom("made-up GPU", account, 0, arguments[1]).value();
  auto manager = GpuMemoryManager::create(device, MemoryBudget::with_limit(20 * kGiB), "serve").value();
  auto const weights = manager.alloc<std::byte>(14 * kGiB, AllocTag{"weights"}).value();
  auto const cache = manager.alloc<std::byte>(4 * kGiB, AllocTag{"kv-cache"}).value();
  std::puts("ready");
  std::fflush(stdout);
  while (true) ::pause();
}
