// Every resource that the conformance suite runs over. To add one: write its make function, say what it can do, append it to
// all_resources(). A factory that returns an error (no GPU on this machine) skips its tests.
//
// The suite's source compiles a second time with HEADROOM_GPU_TESTS, and runs over the GPU's resources then: gpu_resources().
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <headroom/device_account.hpp>
#include <headroom/fault_resource.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/logging_resource.hpp>
#include <headroom/null_resource.hpp>

#include "cuda_resources.hpp"

namespace headroom::testing {

/// What a resource promises beyond the contract that all share.
struct ResourceTraits {
  bool keeps_books = true;     ///< bytes_outstanding counts
  bool detects_misuse = true;  ///< double free, unknown pointer, … are told apart
  bool owns_ranges = true;     ///< blocks never overlap (not only their first bytes)
  bool knows_memory = true;    ///< memory_info has figures
  bool checks_streams = true;  ///< an unknown stream is refused
  bool writes = true;          ///< fill_zero and copy_in succeed
  bool frees_are_pending = false;
  bool refills_gaps = true;     ///< the lowest place that fits, once its free was reaped
  bool alone_on_device = true;  ///< nobody else, nor the driver, changes what memory_info says
};

struct MadeResource {
  std::shared_ptr<DeviceResource> resource;
  std::function<Result<StreamId>()> create_stream;  ///< empty: the resource knows only stream 0, or takes any
};

struct ResourceFactory {
  std::string name;  ///< letters and digits only: part of the test's name
  std::function<Result<MadeResource>()> make;
  ResourceTraits traits;
  friend std::ostream& operator<<(std::ostream& out, ResourceFactory const& factory) { return out << factory.name; }
};

/// Total memory of every host device below.
inline constexpr std::uint64_t kSuiteTotalBytes = std::uint64_t{1} << 30;

inline Result<MadeResource> make_host(HostOptions const& options) {
  return HostResource::create(options).map(
      [](std::shared_ptr<HostResource> host) { return MadeResource{host, [raw = host.get()] { return raw->create_stream(); }}; });
}

/// A device budget over a host device, on a fault layer with nothing to fail.
inline Result<MadeResource> make_budget(HostOptions const& options, MemoryBudget budget) {
  auto host = HostResource::create(options);
  if (!host) return tl::make_unexpected(std::move(host.error()));
  const auto device = Device::custom("suite", *host).value();
  return GlobalDeviceBudget::create(device, budget, FaultResource::create(*host).value()).map([&](auto stack) {
    return MadeResource{stack, [raw = host->get()] { return raw->create_stream(); }};
  });
}

/// A LoggingResource over the host: streams come from the device below, through the log.
inline Result<MadeResource> make_logged(HostOptions const& options) {
  return HostResource::create(options).and_then([](std::shared_ptr<HostResource> host) {
    return LoggingResource::create(std::move(host)).map([](std::shared_ptr<LoggingResource> log) {
      return MadeResource{log, [raw = log.get()] { return raw->create_stream(); }};
    });
  });
}

inline Result<MadeResource> over_fake(Result<OverFakeCuda<AsyncCudaResource>> made) {
  return std::move(made).map(
      [](auto both) { return MadeResource{both.resource, [raw = both.resource.get()] { return raw->create_stream(); }}; });
}
inline Result<MadeResource> over_fake(Result<OverFakeCuda<DirectCudaResource>> made) {
  return std::move(made).map(
      [](auto both) { return MadeResource{both.resource, [raw = both.resource.get()] { return raw->create_stream(); }}; });
}

template <class Resource>
Result<MadeResource> over_gpu(Result<std::shared_ptr<Resource>> made) {
  return std::move(made).map([](auto resource) {
    auto* const raw = resource.get();
    return MadeResource{std::move(resource), [raw] { return raw->create_stream(); }};
  });
}

/// A device budget over a CUDA resource, and a log between them.
template <class Resource>
Result<MadeResource> budget_over_cuda(std::shared_ptr<Resource> const& resource, MemoryBudget budget) {
  return GlobalDeviceBudget::create(cuda_device_over(resource).value(), budget, LoggingResource::create(resource).value())
      .map([&](auto stack) { return MadeResource{stack, [raw = resource.get()] { return raw->create_stream(); }}; });
}

/// Over the first GPU of this machine; errors, so that tests are skipped, where there is none.
inline std::vector<ResourceFactory> gpu_resources() {
  // CUDA takes any stream's value for one, and has its own ideas of where memory lies.
  constexpr ResourceTraits kGpu{.checks_streams = false, .refills_gaps = false, .alone_on_device = false};
  constexpr ResourceTraits kGpuPending{
      .checks_streams = false, .frees_are_pending = true, .refills_gaps = false, .alone_on_device = false};
  return {
      {"CudaDirect", [] { return over_gpu(DirectCudaResource::create(0)); }, kGpu},
      {"CudaAsync", [] { return over_gpu(AsyncCudaResource::create(0)); }, kGpuPending},
      {"CudaAsyncKeepingNothing", [] { return over_gpu(AsyncCudaResource::create(0, {.release_threshold_bytes = 0})); },
       kGpuPending},
      {"BudgetOverCudaAsync",
       [] {
         return AsyncCudaResource::create(0).and_then(
             [](auto const& resource) { return budget_over_cuda(resource, MemoryBudget::with_limit(kLargestRequest)); });
       },
       kGpuPending},
  };
}

inline std::vector<ResourceFactory> all_resources() {
  return {
      {"HostTouch", [] { return make_host({.total_bytes = kSuiteTotalBytes}); }, {}},
      {"HostAddressesOnly", [] { return make_host({.total_bytes = kSuiteTotalBytes, .touch_memory = false}); }, {}},
      {"HostStreamOrdered",
       [] { return make_host({.total_bytes = kSuiteTotalBytes, .stream_ordered = true}); },
       {.frees_are_pending = true}},
      {"HostCached",
       [] { return make_host({.total_bytes = kSuiteTotalBytes, .release_threshold_bytes = kSuiteTotalBytes / 4}); },
       {}},
      {"HostCoarse",
       [] { return make_host({.total_bytes = kSuiteTotalBytes, .granularity_bytes = 65536, .touch_memory = false}); },
       {}},
      {"LoggedHost",
       [] { return make_logged({.total_bytes = kSuiteTotalBytes, .stream_ordered = true}); },
       {.frees_are_pending = true}},
      {"Null",
       []() -> Result<MadeResource> { return MadeResource{std::make_shared<NullResource>(), {}}; },
       {.keeps_books = false, .detects_misuse = false, .owns_ranges = false, .knows_memory = false, .checks_streams = false}},
      {"Fault",
       []() -> Result<MadeResource> {
         return make_host({.total_bytes = kSuiteTotalBytes}).map([](MadeResource made) {
           return MadeResource{FaultResource::create(made.resource).value(), made.create_stream};
         });
       },
       {}},
      {"BudgetUnlimited", [] { return make_budget({.total_bytes = kSuiteTotalBytes}, MemoryBudget::unlimited()); }, {}},
      // The context's memory lies between the limit and what the device has, so that the device, not the budget, says that it is full.
      {"BudgetOfWholeDevice",
       [] {
         return make_budget(
             {.total_bytes = kSuiteTotalBytes, .context_overhead_bytes = kSuiteTotalBytes / 16, .stream_ordered = true},
             MemoryBudget::with_limit(kSuiteTotalBytes));
       },
       {.frees_are_pending = true}},
      {"FakeCudaDirect", [] { return over_fake(make_fake_direct({.bytes = kSuiteTotalBytes})); }, {.checks_streams = false}},
      {"FakeCudaAsync",
       [] { return over_fake(make_fake_async({.bytes = kSuiteTotalBytes})); },
       {.checks_streams = false, .frees_are_pending = true}},
      {"FakeCudaAsyncOfSecondDevice",
       [] { return over_fake(make_fake_async({.devices = 2, .bytes = kSuiteTotalBytes}, 1)); },
       {.checks_streams = false, .frees_are_pending = true}},
      {"BudgetOverFakeCudaAsync",
       [] {
         return make_fake_async({.bytes = kSuiteTotalBytes}).and_then([](auto const& both) {
           return budget_over_cuda(both.resource, MemoryBudget::unlimited());
         });
       },
       {.checks_streams = false, .frees_are_pending = true}},
      {"BudgetOverNull",
       []() -> Result<MadeResource> {
         return GlobalDeviceBudget::create(null_device().value(), MemoryBudget::observe(kSuiteTotalBytes)).map([](auto stack) {
           return MadeResource{stack, {}};
         });
       },
       {.keeps_books = false, .detects_misuse = false, .owns_ranges = false, .knows_memory = false, .checks_streams = false}},
  };
}

/// What this binary's suite runs over.
inline std::vector<ResourceFactory> suite_resources() {
#ifdef HEADROOM_GPU_TESTS
  return gpu_resources();
#else
  return all_resources();
#endif
}

}  // namespace headroom::testing
