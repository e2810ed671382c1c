// A program whose threads are all busy for ever, so that somebody can look at what they do; it ends when it is killed.
//
//   at_work
//
// One thread asks the device for 2 GiB, another gives 3 MiB back, both at a device that does not answer; a third runs the hook "evict",
// which never comes back; the first one waits for the end. "ready" is printed once all is set up: what the threads then do is seen a
// moment later.
#include <chrono>
#include <cstdio>
#include <thread>

#include <pthread.h>
#include <unistd.h>

#include <headroom/guard.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>

namespace {

using headroom::GpuMemoryManager;
using headroom::HostOptions;
using headroom::MemoryBudget;

constexpr auto kForEver = std::chrono::hours{1'000};
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

[[nodiscard]] GpuMemoryManager manager_on(HostOptions options, MemoryBudget budget, std::string_view name) {
  options.total_bytes = std::uint64_t{16} << 30U;
  options.touch_memory = false;
  return GpuMemoryManager::create(headroom::host_device(options).value(), budget, name).value();
}

void name_this_thread(const char* name) { static_cast<void>(::pthread_setname_np(::pthread_self(), name)); }

}  // namespace

int main() {
  HostOptions slow_to_give;
  slow_to_give.allocate_latency = kForEver;
  auto asked = manager_on(slow_to_give, MemoryBudget::unlimited(), "asked");
  HostOptions slow_to_take;
  slow_to_take.free_latency = kForEver;
  auto given_back = manager_on(slow_to_take, MemoryBudget::unlimited(), "given back");
  auto block = given_back.alloc<std::byte>(3 * kMiB).value();
  auto guarded = manager_on({}, MemoryBudget::with_limit(kMiB), "guarded");
  auto const guard = headroom::MemoryGuardBuilder(guarded).build().value();
  headroom::OomHook evict{.name = "evict", .callback = [](headroom::HookContext const&) -> std::uint64_t {
                            std::this_thread::sleep_for(kForEver);
                            return 0;
                          }};
  if (!guard.register_hook(std::move(evict))) return 1;

  std::jthread const asking{[&asked] {
    name_this_thread("asker");
    static_cast<void>(asked.alloc<std::byte>(2'048 * kMiB));
  }};
  std::jthread const freeing{[&block] {
    name_this_thread("giver");
    static_cast<void>(block.release());
  }};
  std::jthread const hooked{[&guard] {
    name_this_thread("hooked");
    static_cast<void>(guard.safe_alloc_with_hooks<std::byte>(2 * kMiB));
  }};
  std::puts("ready");
  std::fflush(stdout);
  while (true) ::pause();
}
