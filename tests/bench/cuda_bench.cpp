// What a manager costs over the driver's own calls, in one run: bare pairs of a pool, the same through the resource alone, through
// alloc<T> with everything on, with a budget of the device as well, and cudaMalloc beside them. Blocks of 1 MiB, a stream for each thread. A program of its own
// (headroom_cuda_bench), since the others need no GPU; tests/gpu/run runs it and works out the ratios.
#include <array>
#include <bit>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>

#include <headroom/cuda_resource.hpp>
#include <headroom/device_account.hpp>
#include <headroom/manager.hpp>

#include "device/cuda/cuda_access.hpp"
#include "timing.hpp"

namespace headroom::bench {
namespace {

constexpr std::uint64_t kBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kLimit = std::uint64_t{16} << 30;
constexpr std::uint64_t kThreshold = UINT64_MAX;  // the pool keeps what it has
const AllocTag kTag{"bench"};

struct Managed {
  std::shared_ptr<AsyncCudaResource> resource = AsyncCudaResource::create(0, {.release_threshold_bytes = kThreshold}).value();
  Device device = cuda_device_over(resource).value();
  MemoryBudget budget = MemoryBudget::with_limit(kLimit);
  DeviceRuntime runtime = DeviceRuntime::create(device, {.stack = GlobalDeviceBudget::create(device, budget).value()}).value();
  GpuMemoryManager plain = GpuMemoryManager::create(device, budget, "cuda-bench").value();
  GpuMemoryManager with_device_budget = GpuMemoryManager::with_runtime(device, budget, runtime, "cuda-bench-budget").value();
};
Managed& managed() {
  static Managed& instance = *new Managed;  // NOLINT(cppcoreguidelines-owning-memory): outlives all threads
  return instance;
}

/// The resource's own pool, without anything around it. The same one for all: a pair can cost the driver twice as much in one pool as in
/// another, for as long as the process lives.
cudaMemPool_t pool() { return std::bit_cast<cudaMemPool_t>(device::CudaAccess::pool(*managed().resource)); }

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
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return state.SkipWithError("no stream");
  time_pairs(state, [&] {
    void* block = nullptr;
    return cudaMallocFromPoolAsync(&block, kBytes, pool(), stream) == cudaSuccess && cudaFreeAsync(block, stream) == cudaSuccess;
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

/// Without a manager: what the table of live blocks, the notes of pending frees and the way into the context cost.
void resource_alone(benchmark::State& state) {
  auto& resource = managed().device.resource();
  const auto stream = resource.create_stream();
  if (!stream) return state.SkipWithError(stream.error().to_string().c_str());
  const AllocRequest request{.bytes = kBytes, .stream = *stream};
  time_pairs(state, [&] {
    auto const block = resource.allocate(request);
    return block.has_value() && resource.deallocate(*block).has_value();
  });
  benchmark::DoNotOptimize(resource.synchronize_stream(*stream));
  benchmark::DoNotOptimize(resource.destroy_stream(*stream));
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

/// A processor that was idle runs at half its speed for the first part of a second, and a new pool has all its memory to map.
void warm_up() {
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return;
  auto const end = std::chrono::steady_clock::now() + std::chrono::seconds{2};
  while (std::chrono::steady_clock::now() < end) {
    void* block = nullptr;
    if (cudaMallocFromPoolAsync(&block, kBytes, pool(), stream) != cudaSuccess) break;
    cudaFreeAsync(block, stream);
  }
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
}

void register_all() {
  constexpr std::array<std::pair<char const*, void (*)(benchmark::State&)>, 5> kBenchmarks{
      {{"cuda_malloc_async_and_free", bare_async},
       {"async_resource", resource_alone},
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
  headroom::bench::warm_up();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
