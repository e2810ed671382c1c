// alloc<T> and its free with everything on: budget, peak, tags, live table, histograms, pressure, two events.
#include <memory>
#include <random>
#include <vector>

#include <headroom/device_account.hpp>
#include <headroom/raw_door.hpp>

#include "managers.hpp"
#include "timing.hpp"

namespace headroom::bench {
namespace {

const AllocTag kTag{"bench"};

GpuMemoryManager& shared_manager() {
  static GpuMemoryManager& manager =
      *new GpuMemoryManager{test::null_manager(MemoryBudget::with_limit(std::uint64_t{1} << 40), "bench")};
  return manager;
}

void pair(benchmark::State& state) {
  GpuMemoryManager& manager = shared_manager();
  Sampler sampler;
  for (auto _ : state) {
    sampler.run([&] { benchmark::DoNotOptimize(manager.alloc<std::byte>(1024, kTag)); });
  }
  sampler.report(state);
  target(state, state.threads() == 1 ? 100 : state.threads() == 8 ? 1900 : 0);
}
BENCHMARK(pair)->Apply(all_thread_counts);

/// A NullResource that can stand below an overlay, which wants its uses tracked. As cheap: its calls are not virtual.
class TrackingNullResource final : public DeviceResource {
public:
  [[nodiscard]] Result<Block> allocate(AllocRequest const& request) override { return null_.allocate(request); }
  [[nodiscard]] Result<void> deallocate(Block const& block) override { return null_.deallocate(block); }
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override { return 0; }
  [[nodiscard]] bool tracks_uses() const noexcept override { return true; }
  [[nodiscard]] bool reports_returns() const noexcept override { return true; }
  [[nodiscard]] std::string_view name() const noexcept override { return "tracking-null"; }

private:
  NullResource null_;
};

// A device with a plain manager, one through a runtime over the device's own resource, an overlay of the plain one, and one through a
// budget of the device.
struct Ways {
  Device device = Device::custom("ways", std::make_shared<TrackingNullResource>()).value();
  MemoryBudget budget = MemoryBudget::with_limit(std::uint64_t{1} << 40);
  DeviceRuntime own = DeviceRuntime::create(device).value();
  DeviceRuntime budgeted = DeviceRuntime::create(device, {.stack = GlobalDeviceBudget::create(device, budget).value()}).value();
  GpuMemoryManager plain = GpuMemoryManager::create(device, budget, "ways-plain").value();
  GpuMemoryManager with_runtime = GpuMemoryManager::with_runtime(device, budget, own, "ways-runtime").value();
  GpuMemoryManager overlay = plain.with_runtime_overlay(own).value();
  GpuMemoryManager with_device_budget = GpuMemoryManager::with_runtime(device, budget, budgeted, "ways-budget").value();
};

Ways& ways() {
  static Ways& instance = *new Ways;
  return instance;
}

void run_pairs(benchmark::State& state, GpuMemoryManager& manager) {
  Sampler sampler;
  for (auto _ : state) {
    sampler.run([&] { benchmark::DoNotOptimize(manager.alloc<std::byte>(1024, kTag)); });
  }
  sampler.report(state);
}

// `pair` again, beside the managers that share its device.
void pair_of_plain(benchmark::State& state) { run_pairs(state, ways().plain); }
BENCHMARK(pair_of_plain)->Apply(all_thread_counts);
void pair_with_runtime(benchmark::State& state) { run_pairs(state, ways().with_runtime); }
BENCHMARK(pair_with_runtime)->Apply(all_thread_counts);
// To cost within 10 ns of a plain one, as a reservation's does.
void pair_of_overlay(benchmark::State& state) { run_pairs(state, ways().overlay); }
BENCHMARK(pair_of_overlay)->Apply(all_thread_counts);
void pair_with_device_budget(benchmark::State& state) { run_pairs(state, ways().with_device_budget); }
BENCHMARK(pair_with_device_budget)->Apply(all_thread_counts);

// The same out of a reservation; the freed bytes go to the common budget.
void pair_from_reservation(benchmark::State& state) {
  GpuMemoryManager& manager = shared_manager();
  auto reservation = manager.reserve_bytes(std::uint64_t{1} << 38).value();  // 2^28 pairs
  Sampler sampler;
  for (auto _ : state) {
    sampler.run([&] { benchmark::DoNotOptimize(reservation.alloc<std::byte>(1024, kTag)); });
  }
  sampler.report(state);
}
BENCHMARK(pair_from_reservation)->UseRealTime();

void reserve_and_drop(benchmark::State& state) {
  GpuMemoryManager& manager = shared_manager();
  for (auto _ : state) benchmark::DoNotOptimize(manager.reserve_bytes(1024));
}
BENCHMARK(reserve_and_drop)->UseRealTime();

// The same through the raw door: by pointer, the size given, as an adapter calls it. To be compared with `pair` of the same run.
void raw_door_pair(benchmark::State& state) {
  static RawDoor& door = *new RawDoor{RawDoor::create(shared_manager()).value()};
  Sampler sampler;
  for (auto _ : state) {
    sampler.run([&] {
      auto pointer = door.allocate(1024, kMinimumAlignment, {}, kTag);
      benchmark::DoNotOptimize(pointer);
      benchmark::DoNotOptimize(door.deallocate(*pointer, 1024));
    });
  }
  sampler.report(state);
  target(state, state.threads() == 1 ? 140 : 0);
}
BENCHMARK(raw_door_pair)->Apply(all_thread_counts);

// The same, with others live: the map is no longer in the nearest cache.
void raw_door_pair_with_live_blocks(benchmark::State& state) {
  auto door = RawDoor::create(shared_manager()).value();
  std::vector<void*> held;
  for (std::int64_t i = 0; i < state.range(0); ++i) held.push_back(door.allocate(1024, kMinimumAlignment, {}, kTag).value());
  std::minstd_rand random{1};
  Sampler sampler;
  for (auto _ : state) {
    auto& place = held[random() % held.size()];
    sampler.run([&] {
      benchmark::DoNotOptimize(door.deallocate(place, 1024));
      place = *door.allocate(1024, kMinimumAlignment, {}, kTag);
    });
  }
  sampler.report(state);
  for (void* pointer : held) static_cast<void>(door.deallocate(pointer, 1024));
}
BENCHMARK(raw_door_pair_with_live_blocks)->Arg(64)->Arg(20'000)->UseRealTime();

// Frees a random one of `live` blocks and allocates it anew.
void pair_with_live_blocks(benchmark::State& state) {
  GpuMemoryManager& manager = shared_manager();
  std::vector<TrackedBuffer<std::byte>> held;
  for (std::int64_t i = 0; i < state.range(0); ++i) held.push_back(manager.alloc<std::byte>(1024, kTag).value());
  std::minstd_rand random{static_cast<unsigned>(state.thread_index()) + 1};
  Sampler sampler;
  for (auto _ : state) {
    auto& place = held[random() % held.size()];
    sampler.run([&] {
      place = {};
      place = std::move(*manager.alloc<std::byte>(1024, kTag));
    });
  }
  sampler.report(state);
}
BENCHMARK(pair_with_live_blocks)->Arg(64)->Arg(20'000)->UseRealTime();
BENCHMARK(pair_with_live_blocks)->Arg(64)->Apply(all_thread_counts);

void refusal(benchmark::State& state) {
  auto manager = test::null_manager(MemoryBudget::with_limit(1000), "refusals");
  for (auto _ : state) benchmark::DoNotOptimize(manager.alloc<std::byte>(1001, kTag));
}
BENCHMARK(refusal);

void null_resource_alone(benchmark::State& state) {
  const Device device = null_device().value();
  for (auto _ : state) {
    auto block = device.resource().allocate({.bytes = 1024});
    benchmark::DoNotOptimize(block);
    benchmark::DoNotOptimize(device.resource().deallocate(*block));
  }
}
BENCHMARK(null_resource_alone)->UseRealTime();

}  // namespace
}  // namespace headroom::bench
