// A program whose driver does not come back from an allocation, and whose hook frees less than it says: something to explain.
//
//   slow_driver            asks for 800 MiB under a budget of 1 GiB, of which 700 MiB are held, then hangs in the driver with 64 MiB;
//                          "hanging" on stdout says that it does
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <headroom/guard.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/resource_decorator.hpp>

namespace {

using namespace headroom;  // NOLINT(google-build-using-namespace): a program of one file

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

class SlowDriver final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "slow";
  explicit SlowDriver(InnerResource inner) noexcept : ResourceDecorator(std::move(inner)) {}

  [[nodiscard]] Result<Block> allocate(AllocRequest const& request) override {
    if (!hangs) return ResourceDecorator::allocate(request);
    std::puts("hanging");
    std::fflush(stdout);
    while (true) ::pause();
  }
  [[nodiscard]] std::string_view name() const noexcept override { return kName; }

  bool hangs = false;
};

}  // namespace

int main() {
  auto host = HostResource::create({.touch_memory = false}).value();
  auto driver = decorate<SlowDriver>(host).value();
  auto device = Device::custom("made-up GPU", driver).value();
  auto manager = GpuMemoryManager::create(device, MemoryBudget::with_limit(1024 * kMiB), "train").value();
  auto guard = MemoryGuardBuilder(manager).build().value();
  std::vector<TrackedBuffer<std::byte>> weights;
  for (int i = 0; i < 5; ++i) weights.push_back(manager.alloc<std::byte>(100 * kMiB, AllocTag{"weights"}).value());
  std::vector<TrackedBuffer<std::byte>> cache;
  for (int i = 0; i < 4; ++i) cache.push_back(manager.alloc<std::byte>(50 * kMiB, AllocTag{"kv-cache"}).value());
  const bool registered = guard
                              .register_hook({.name = "evict",
                                              .priority = 1,
                                              .estimated_free_bytes = 200 * kMiB,
                                              .callback =
                                                  [&](HookContext const&) {
                                                    if (!cache.empty()) cache.pop_back();
                                                    return 200 * kMiB;  // it believes so
                                                  }})
                              .has_value();
  if (!registered || guard.safe_alloc_with_hooks<std::byte>(800 * kMiB, AllocTag{"activations"})) return 1;
  driver->hangs = true;
  return manager.alloc<std::byte>(64 * kMiB, AllocTag{"late"}) ? 0 : 1;
}
