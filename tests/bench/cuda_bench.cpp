// What a manager costs over the driver's own calls, in one run: bare pairs of a pool, the same through alloc<T> with everything on, with
// a budget of the device as well, and cudaMalloc beside them. Blocks of 1 MiB, a stream for each thread. A program of its own
// (headroom_cuda_bench), since the others need no GPU; tests/gpu/run runs it and works out the ratios.
#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>

#include <headroom/cuda_resource.hpp>
#include <headroom/device_account.hpp>
#include <headroom/manager.hpp>

#include "timing.hpp"

namespace headroom::bench {
namespace {

constexpr std::uint64_t kBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kLimit = std::uint64_t{16} << 30;
constexpr std::uint64_t kThreshold = UINT64_MAX;  // both pools keep what they have
const AllocTag kTag{"bench"};

/// A pool as AsyncCudaResource has one, without anything around it.
cudaMemPool_t bare_pool() {
  static cudaMemPool_t const pool = [] {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = 0;
    cudaMemPool_t made = nullptr;
    auto threshold = kThreshold;
    if (cudaMemPoolCreate(&made, &properties) != cudaSuccess ||
        cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &threshold) != cudaSuccess) {
      return cudaMemPool_t{};
    }
    return made;
  }();
  return pool;
}

struct Managed {
  Device device = cuda_device(0, {.async = {.release_threshold_bytes = kThreshold}}).value();
  MemoryBudget budget = MemoryBudget::with_limit(kLimit);
  DeviceRuntime runtime = DeviceRuntime::create(device, {.stack = GlobalDeviceBudget::create(device, budget).value()}).value();
  GpuMemoryManager plain = GpuMemoryManager::create(device, budget, "cuda-bench").value();
  GpuMemoryManager with_device_budget = GpuMemoryManager::with_runtime(device, budget, runtime, "cuda-bench-budget").value();
};
Managed& managed() {
  static Managed& instance = *new Managed;  // NOLINT(cppcoreguidelines-owning-memory): outlives all threads
  return instance;
}

/// A pair is warm before it is timed: the pool has its memory, and what is made once is made.
template <class Pair>
void time_pairs(benchmark::State& state, Pair pair) {
  for (int i = 0; i < 100; ++i) {
    if (!pair()) return state.SkipWithError("the device refused a block of 1 MiB");
  }
  Sampler sampler;
  bool good = true;
  for (auto _ : state) sampler.run([&] { good = pair() && good; });
  if (!good) state.SkipWithError("the device refused a block of 1 MiB");
  sampler.report(state);
}

void bare_async(benchmark::State& state) {
  cudaStream_t stream = nullptr;
  if (bare_pool() == nullptr || cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
    return state.SkipWithError("no pool, or no stream");
  }
  time_pairs(state, [&] {
    void* block = nullptr;
    return cudaMallocFromPoolAsync(&block, kBytes, bare_pool(), stream) == cudaSuccess &&
           cudaFreeAsync(block, stream) == cudaSuccess;
  });
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
}

void bare_direct(benchmark::State& state) {
  time_pairs(state, [] {
    void* block = nullptr;
    return cudaMalloc(&block, kBytes) == cudaSuccess && cudaFree(block) == cudaSuccess;
  });
}

void of_manager(benchmark::State& state, GpuMemoryManager& manager) {
  auto& resource = managed().device.resource();
  const auto stream = resource.create_stream();
  if (!stream) return state.SkipWithError(stream.error().to_string().c_str());
  const AllocOptions options{.tag = kTag, .stream = *stream};
  time_pairs(state, [&] {
    auto block = manager.alloc<std::byte>(kBytes, options);
    benchmark::DoNotOptimize(block);
    return block.has_value();
  });
  benchmark::DoNotOptimize(resource.synchronize_stream(*stream));
  benchmark::DoNotOptimize(resource.destroy_stream(*stream));
}
void alloc_plain(benchmark::State& state) { of_manager(state, managed().plain); }
void alloc_with_device_budget(benchmark::State& state) { of_manager(state, managed().with_device_budget); }

void register_all() {
  constexpr std::array<std::pair<char const*, void (*)(benchmark::State&)>, 4> kBenchmarks{
      {{"cuda_malloc_async_and_free", bare_async},
       {"alloc_async", alloc_plain},
       {"alloc_async_with_device_budget", alloc_with_device_budget},
       {"cuda_malloc_and_free", bare_direct}}};
  // By threads first, so that what is compared runs close together.
  for (int const threads : {1, 2, 4, 8}) {
    for (auto const& [name, run] : kBenchmarks) benchmark::RegisterBenchmark(name, run)->Threads(threads)->UseRealTime();
  }
}

}  // namespace
}  // namespace headroom::bench

int main(int count, char** arguments) {
  const auto device = headroom::cuda_device(0);
  if (!device) {
    std::fprintf(stderr, "headroom_cuda_bench: %s\n", device.error().to_string().c_str());
    return 77;
  }
  headroom::bench::register_all();
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 2;
  benchmark::AddCustomContext("device", device->name());
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
