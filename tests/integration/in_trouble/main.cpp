// A program in all the trouble that dashboards show and rules tell of, at once and for ever; it ends when it is killed.
//
//   in_trouble
//
// Device 0 has a UUID and a budget that managers share. Each kind of trouble has a manager of its own:
//   full      970 of 1000 MiB are held, of its own budget and of the device's. Ten times a second it is asked for 64 MiB more: hooks run,
//             of which one has nothing to give, one throws, one takes longer than it may and one is passed over, and the request fails.
//             So does a free, for its size
//   growing   holds 90 % of a budget that grows by 1 % a second, as what it holds does
//   over      holds 200 MiB under a budget that was lowered to 100
//   broken    the driver refuses to take 8 MiB back
//   waiting   a request waits for room for as long as it takes
//   stuck     a request is with a driver that does not answer
//   evicting  a hook does not come back
// "in trouble" is printed once all of that has begun; requests that hang are seen a moment later.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <headroom/device_account.hpp>
#include <headroom/fault_plan.hpp>
#include <headroom/guard.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>
#include <headroom/raw_door.hpp>

namespace {

using headroom::AllocTag;
using headroom::GpuMemoryManager;
using headroom::HookContext;
using headroom::HostOptions;
using headroom::HostResource;
using headroom::MemoryBudget;
using headroom::MemoryGuard;
using headroom::MemoryGuardBuilder;
using Buffers = std::vector<headroom::TrackedBuffer<std::byte>>;
using namespace std::chrono_literals;

constexpr auto kForEver = 10'000h;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

HostOptions large() {
  HostOptions options;
  options.total_bytes = std::uint64_t{16} << 40U;
  options.touch_memory = false;
  return options;
}

GpuMemoryManager manager_on(HostOptions const& options, std::uint64_t budget, std::string_view name) {
  return GpuMemoryManager::create(headroom::host_device(options).value(), MemoryBudget::with_limit(budget), name).value();
}

void must(bool holds, char const* what) {
  if (!holds) throw std::runtime_error{what};
}

class Full {
public:
  Full()
      : manager_(make_manager()),
        guard_(MemoryGuardBuilder(manager_).build().value()),
        door_(headroom::RawDoor::create(manager_).value()) {
    held_.push_back(manager_.alloc<std::byte>(686 * kMiB, AllocTag{"weights"}).value());
    for (int layer = 1; layer <= 14; ++layer) {
      held_.push_back(manager_.alloc<std::byte>(kMiB, AllocTag{"layer " + std::to_string(layer)}).value());
    }
    held_.push_back(manager_.alloc<std::byte>(270 * kMiB, AllocTag{"kv-cache"}).value());
    add_hook({.name = "nothing to give", .callback = [](HookContext const&) -> std::uint64_t { return 0; }});
    add_hook({.name = "throws", .priority = 1, .callback = [](HookContext const&) -> std::uint64_t {
                throw std::runtime_error{"the cache is gone"};
              }});
    auto const slow = [](HookContext const&) -> std::uint64_t {
      std::this_thread::sleep_for(5ms);
      return 0;
    };
    add_hook({.name = "slow", .priority = 2, .callback = slow, .time_limit = 1ms});
    add_hook({.name = "needs room itself", .priority = 3, .execution_overhead_bytes = 500 * kMiB, .callback = slow});
    block_ = door_.allocate(4096, 256, {}).value();
  }

  void ask() {
    must(!guard_.safe_alloc_with_hooks<std::byte>(64 * kMiB, AllocTag{"activations"}), "there was room");
    must(!door_.deallocate(block_, 4095), "4095 of 4096 bytes were freed");
  }

private:
  void add_hook(headroom::OomHook hook) { must(guard_.register_hook(std::move(hook)).has_value(), "no hook"); }

  static GpuMemoryManager make_manager() {
    auto account =
        headroom::GlobalDeviceBudget::create(headroom::host_device(large()).value(), MemoryBudget::with_limit(1000 * kMiB));
    auto device = headroom::Device::custom("made-up GPU", account.value(), 0, "GPU-0badf00d-1111-2222-3333-444444444444").value();
    return GpuMemoryManager::create(device, MemoryBudget::with_limit(1000 * kMiB), "full").value();
  }

  GpuMemoryManager manager_;
  MemoryGuard guard_;
  headroom::RawDoor door_;
  void* block_ = nullptr;
  Buffers held_;
};

/// By what the clock says, so that a machine without time makes it no slower.
class Growing {
public:
  void grow() {
    constexpr auto kLargest = static_cast<double>(std::uint64_t{8} << 40U);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - began_;
    const double bytes = 900.0 * static_cast<double>(kMiB) * std::pow(1.01, passed.count());
    const auto wanted = static_cast<std::uint64_t>(std::min(bytes, kLargest));
    manager_.set_budget(MemoryBudget::with_limit(wanted / 9 * 10));
    if (wanted > bytes_)
      held_.push_back(manager_.alloc<std::byte>(wanted - std::exchange(bytes_, wanted), AllocTag{"leak"}).value());
  }

private:
  GpuMemoryManager manager_ = manager_on(large(), 1000 * kMiB, "growing");
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::uint64_t bytes_ = 0;
  Buffers held_;
};

}  // namespace

int main() {
  auto over = manager_on(large(), 200 * kMiB, "over");
  auto const held_over = over.alloc<std::byte>(200 * kMiB).value();
  over.set_budget(MemoryBudget::with_limit(100 * kMiB));

  auto host = HostResource::create(large()).value();
  host->faults().add({.operation = headroom::FaultOperation::deallocate,
                      .times = headroom::kFaultForever,
                      .kind = headroom::ErrorKind::driver,
                      .device_code = 700});
  auto broken =
      GpuMemoryManager::create(headroom::Device::custom("broken", host).value(), MemoryBudget::unlimited(), "broken").value();
  auto refused = broken.alloc<std::byte>(8 * kMiB).value();
  must(!refused.release(), "the broken driver took memory back");

  auto waiting = manager_on(large(), 100 * kMiB, "waiting");
  auto const held_waiting = waiting.alloc<std::byte>(60 * kMiB).value();
  auto const patient = MemoryGuardBuilder(waiting).oom_policy(headroom::OomPolicy::wait_and_retry(kForEver)).build().value();
  HostOptions silent = large();
  silent.allocate_latency = kForEver;
  auto stuck = manager_on(silent, 100 * kMiB, "stuck");
  auto evicting = manager_on(large(), kMiB, "evicting");
  auto const stubborn = MemoryGuardBuilder(evicting).build().value();
  auto const never_ends = [](HookContext const&) -> std::uint64_t {
    std::this_thread::sleep_for(kForEver);
    return 0;
  };
  must(stubborn.register_hook({.name = "evict", .callback = never_ends}).has_value(), "no hook that hangs");

  std::jthread const waits{[&] { static_cast<void>(patient.safe_alloc<std::byte>(50 * kMiB)); }};
  std::jthread const hangs{[&] { static_cast<void>(stuck.alloc<std::byte>(kMiB)); }};
  std::jthread const evicts{[&] { static_cast<void>(stubborn.safe_alloc_with_hooks<std::byte>(2 * kMiB)); }};

  Full full;
  Growing growing;
  for (bool said = false;; said = true) {
    full.ask();
    growing.grow();
    if (!said) {
      std::puts("in trouble");
      std::fflush(stdout);
    }
    std::this_thread::sleep_for(100ms);
  }
}
