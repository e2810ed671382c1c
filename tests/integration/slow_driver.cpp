// A program that gets into trouble and stays there until it is killed: something to explain.
//
//   slow_driver            asks for 800 MiB under a budget of 1 GiB, of which 700 MiB are held; its hook frees less than it says. Then
//                          it hangs in the driver with 64 MiB
//   slow_driver worker     the same, but the hook lets a thread of its own free what it promised
//   slow_driver waits      the same without a hook, and with a policy that waits for an hour
//   slow_driver busy       its hook never comes back; another thread asks for 800 MiB too, and does not wait for it for long
//   slow_driver device     two managers share a device budget of 1 GiB, of which the first holds 700 MiB when the second asks for 400
//   slow_driver shared     its hook runs until another thread's request waits for that run, and frees nothing
//   slow_driver stuck      its hook never comes back
//   slow_driver inside     its hook asks for 900 MiB, which is refused, and then frees what is needed: the request is granted
//   slow_driver many       six threads hang in the driver
//
// "hanging" on stdout says that it is in trouble.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <semaphore>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <headroom/device_account.hpp>
#include <headroom/flight_reader.hpp>
#include <headroom/guard.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/resource_decorator.hpp>

namespace {

using namespace headroom;  // NOLINT(google-build-using-namespace): a program of one file
using namespace std::chrono_literals;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::string_view kActivations = "activations";

using Buffers = std::vector<TrackedBuffer<std::byte>>;

[[noreturn]] void hang() {
  std::puts("hanging");
  std::fflush(stdout);
  while (true) ::pause();
}

class SlowDriver final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "slow";
  explicit SlowDriver(InnerResource inner) noexcept : ResourceDecorator(std::move(inner)) {}

  [[nodiscard]] Result<Block> allocate(AllocRequest const& request) override {
    if (!hangs) return ResourceDecorator::allocate(request);
    if (callers.fetch_sub(1) == 1) hang();
    while (true) ::pause();
  }
  [[nodiscard]] std::string_view name() const noexcept override { return kName; }

  bool hangs = false;
  std::atomic<int> callers{1};  // written by those who hang: the last says so
};

void fill(GpuMemoryManager& manager, Buffers& into, int count, std::uint64_t bytes, AllocTag tag) {
  for (int i = 0; i < count; ++i) into.push_back(manager.alloc<std::byte>(bytes, tag).value());
}

/// Frees one block of 50 MiB, or all four on another thread, and says 200 MiB.
int run_hook_that_frees(std::string_view scene, SlowDriver& driver, GpuMemoryManager& manager, MemoryGuard& guard,
                        Buffers& cache) {
  auto const free_some = [&](HookContext const&) {
    if (scene == "worker") {
      std::thread{[&] { cache.clear(); }}.join();
    } else if (!cache.empty()) {
      cache.pop_back();
    }
    return 200 * kMiB;
  };
  auto const hook =
      guard.register_hook({.name = "evict", .priority = 1, .estimated_free_bytes = 200 * kMiB, .callback = free_some});
  if (!hook || guard.safe_alloc_with_hooks<std::byte>(800 * kMiB, AllocTag{kActivations})) return 1;
  driver.hangs = true;
  return manager.alloc<std::byte>(64 * kMiB, AllocTag{"late"}) ? 0 : 1;
}

int run_hook_that_hangs(MemoryGuard& guard) {
  std::binary_semaphore runs{0};
  auto const hook = guard.register_hook({.name = "evict",
                                         .priority = 1,
                                         .estimated_free_bytes = 200 * kMiB,
                                         .callback = [&](HookContext const&) -> std::uint64_t {
                                           runs.release();
                                           while (true) ::pause();
                                         },
                                         .time_limit = 10ms});
  if (!hook) return 1;
  std::thread first{[&] { static_cast<void>(guard.safe_alloc_with_hooks<std::byte>(900 * kMiB, AllocTag{kActivations})); }};
  runs.acquire();
  if (guard.safe_alloc_with_hooks<std::byte>(800 * kMiB, AllocTag{kActivations})) return 1;
  hang();
}

/// Returns once a thread has written down that it waits for another one's run of a hook.
void see_somebody_wait() {
  flight::EventReader reader{*flight::FlightView::of_this_process()};
  std::vector<flight::Event> events;
  std::vector<flight::Gap> gaps;
  auto const waits = [](flight::Event const& event) {
    return event.kind == flight::EventKind::policy && event.policy_step() == flight::PolicyStep::begun &&
           event.policy_begins() == flight::PolicyStep::none;
  };
  while (std::ranges::none_of(events, waits)) {
    std::this_thread::yield();
    reader.poll(events, gaps);
  }
}

int share_a_run(MemoryGuard& guard) {
  std::binary_semaphore runs{0};
  auto const run_once = [&](HookContext const&) -> std::uint64_t {
    runs.release();
    see_somebody_wait();
    return 0;
  };
  auto const hook = guard.register_hook({.name = "evict", .callback = run_once, .time_limit = 1h});
  if (!hook) return 1;
  std::thread first{[&] { static_cast<void>(guard.safe_alloc_with_hooks<std::byte>(900 * kMiB, AllocTag{kActivations})); }};
  runs.acquire();
  auto const granted = guard.safe_alloc_with_hooks<std::byte>(800 * kMiB, AllocTag{kActivations});
  first.join();
  if (granted) return 1;
  hang();
}

int hang_in_hook(MemoryGuard& guard) {
  auto const hook = guard.register_hook({.name = "evict", .callback = [](HookContext const&) -> std::uint64_t { hang(); }});
  return hook && guard.safe_alloc_with_hooks<std::byte>(800 * kMiB, AllocTag{kActivations}) ? 0 : 1;
}

int ask_inside_hook(GpuMemoryManager& manager, MemoryGuard& guard, Buffers& cache) {
  auto const free_some = [&](HookContext const&) {
    if (manager.alloc<std::byte>(900 * kMiB, AllocTag{"scratch"})) return std::uint64_t{0};
    cache.clear();
    return 200 * kMiB;
  };
  auto const hook = guard.register_hook({.name = "evict", .callback = free_some});
  auto const granted = guard.safe_alloc_with_hooks<std::byte>(400 * kMiB, AllocTag{kActivations});
  if (!hook || !granted) return 1;
  hang();
}

int hang_in_many_threads(GpuMemoryManager& manager, SlowDriver& driver) {
  constexpr int kThreads = 6;
  driver.callers = kThreads;
  driver.hangs = true;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] { static_cast<void>(manager.alloc<std::byte>(10 * kMiB, AllocTag{"late"})); });
  }
  for (auto& thread : threads) thread.join();
  return 1;
}

int wait_for_room(MemoryGuard& guard) {
  std::thread watcher{[] {
    auto const view = flight::FlightView::of_this_process();
    while (view && std::ranges::all_of(view->ledgers(), [](auto const& ledger) { return ledger.waiters == 0; }))
      std::this_thread::yield();
    hang();
  }};
  auto const granted = guard.safe_alloc_with_hooks<std::byte>(800 * kMiB, AllocTag{kActivations});
  watcher.join();
  return granted ? 0 : 1;
}

int share_a_device() {
  auto device = Device::custom("made-up GPU", HostResource::create({.touch_memory = false}).value()).value();
  auto const budget = MemoryBudget::with_limit(1024 * kMiB);
  auto first_device = Device::custom("made-up GPU", GlobalDeviceBudget::create(device, budget).value()).value();
  auto second_device = Device::custom("made-up GPU", GlobalDeviceBudget::create(device, budget).value()).value();
  auto first = GpuMemoryManager::create(first_device, MemoryBudget::unlimited(), "serve").value();
  auto second = GpuMemoryManager::create(second_device, MemoryBudget::unlimited(), "train").value();
  Buffers weights;
  fill(first, weights, 7, 100 * kMiB, AllocTag{"weights"});
  if (second.alloc<std::byte>(400 * kMiB, AllocTag{kActivations})) return 1;
  hang();
}

}  // namespace

int main(int count, char** arguments) {
  std::string_view const scene = count > 1 ? arguments[1] : "";
  if (scene == "device") return share_a_device();
  auto host = HostResource::create({.touch_memory = false}).value();
  auto driver = decorate<SlowDriver>(host).value();
  auto device = Device::custom("made-up GPU", driver).value();
  auto manager = GpuMemoryManager::create(device, MemoryBudget::with_limit(1024 * kMiB), "train").value();
  auto builder = MemoryGuardBuilder(manager);
  if (scene == "waits") builder.oom_policy(OomPolicy::wait_and_retry(1h));
  auto guard = builder.build().value();
  Buffers weights;
  fill(manager, weights, 5, 100 * kMiB, AllocTag{"weights"});
  Buffers cache;
  fill(manager, cache, 4, 50 * kMiB, AllocTag{"kv-cache"});
  if (scene == "waits") return wait_for_room(guard);
  if (scene == "busy") return run_hook_that_hangs(guard);
  if (scene == "shared") return share_a_run(guard);
  if (scene == "stuck") return hang_in_hook(guard);
  if (scene == "inside") return ask_inside_hook(manager, guard, cache);
  if (scene == "many") return hang_in_many_threads(manager, *driver);
  return run_hook_that_frees(scene, *driver, manager, guard, cache);
}
