// A program whose exporter is looked at from outside.
//
//   served [none]
//
// It serves on any free port of loopback and prints the port once everything below is done; it ends when stdin does. `none`: without a
// manager, until a line comes on stdin; then it makes them and prints "made".
//
// Manager "model" has a budget of 1000 MiB. 600 MiB of weights, 200 MiB of kv-cache and 150 MiB of cache are allocated; 100 MiB more do
// not fit until the hook "evict cache" has given the cache up; 2000 MiB never fit, and 500 MiB are asked for past the guard. So 900 MiB
// are in use, and were 950 MiB at the peak. Manager "staging" has no budget and 8 MiB; the third has a name that a careless page would
// obey, and 1 MiB of a tag with another such name.
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/exporter.hpp>
#include <headroom/guard.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>

namespace {

using headroom::AllocTag;
using headroom::GpuMemoryManager;
using headroom::MemoryBudget;
using Buffer = headroom::TrackedBuffer<std::byte>;

constexpr std::size_t kMiB = std::size_t{1} << 20U;
constexpr char kHostileManager[] = "<img src=x onerror=bad()>\"'&\xE2\x80\xAE\x1B[31m\xFF";
constexpr char kHostileTag[] = "</script><script>bad()</script>";

struct Managers {
  std::vector<GpuMemoryManager> all;
  std::vector<Buffer> held;
  std::optional<Buffer> cache;
  std::optional<headroom::MemoryGuard> guard;

  void make() {
    headroom::HostOptions options;
    options.total_bytes = std::uint64_t{64} << 30U;
    options.touch_memory = false;
    const auto device = headroom::host_device(options).value();
    auto model = GpuMemoryManager::create(device, MemoryBudget::with_limit(1000 * kMiB), "model").value();
    auto staging = GpuMemoryManager::create(device, MemoryBudget::unlimited(), "staging").value();
    auto hostile = GpuMemoryManager::create(device, MemoryBudget::with_limit(2 * kMiB), kHostileManager).value();
    held.push_back(model.alloc<std::byte>(600 * kMiB, AllocTag{"weights"}).value());
    held.push_back(model.alloc<std::byte>(200 * kMiB, AllocTag{"kv-cache"}).value());
    cache = model.alloc<std::byte>(150 * kMiB, AllocTag{"cache"}).value();
    held.push_back(staging.alloc<std::byte>(8 * kMiB).value());
    held.push_back(hostile.alloc<std::byte>(kMiB, AllocTag{kHostileTag}).value());

    guard = headroom::MemoryGuardBuilder(model).build().value();
    headroom::OomHook evict{.name = "evict cache", .callback = [this](headroom::HookContext const&) -> std::uint64_t {
                              if (!cache) return 0;
                              cache.reset();
                              return 150 * kMiB;
                            }};
    if (!guard->register_hook(std::move(evict))) throw std::runtime_error{"no hook"};
    held.push_back(guard->safe_alloc_with_hooks<std::byte>(100 * kMiB, AllocTag{"kv-cache"}).value());
    static_cast<void>(guard->safe_alloc_with_hooks<std::byte>(2000 * kMiB, AllocTag{"kv-cache"}));
    static_cast<void>(model.alloc<std::byte>(500 * kMiB, AllocTag{"weights"}));
    all = {model, staging, hostile};
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bool waits = argc > 1 && std::string_view{argv[1]} == "none";
  auto exporter = headroom::Exporter::start({.listen = "127.0.0.1:0", .policy = headroom::BindPolicy::fail}).value();
  Managers managers;
  if (!waits) managers.make();
  std::cout << exporter.port() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    managers.make();
    std::cout << "made" << std::endl;
  }
}
