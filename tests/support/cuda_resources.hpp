// CUDA resources for tests: over a fake that lives as long as they do, and over the GPU of this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <headroom/cuda_resource.hpp>

#include "device/cuda/cuda_access.hpp"
#include "fake_cuda.hpp"

namespace headroom::testing {

/// True where this program can use a GPU. Makes no context.
[[nodiscard]] inline bool real_cuda_available() { return cuda_device_count().value_or(0) > 0; }

/// A resource over a fake of its own, which ends after it and then fails the test if CUDA was misused.
template <class Resource>
struct OverFakeCuda {
  std::shared_ptr<FakeCuda> cuda;
  std::shared_ptr<Resource> resource;
};

template <class Resource>
Result<OverFakeCuda<Resource>> with_its_fake(std::shared_ptr<FakeCuda> cuda, Result<std::shared_ptr<Resource>> made) {
  return std::move(made).map([&](std::shared_ptr<Resource> resource) {
    struct Both {
      std::shared_ptr<FakeCuda> cuda;  // outlives what follows
      std::shared_ptr<Resource> resource;
    };
    auto both = std::make_shared<Both>(Both{cuda, std::move(resource)});
    auto* const raw = both->resource.get();
    return OverFakeCuda<Resource>{std::move(cuda), std::shared_ptr<Resource>(std::move(both), raw)};
  });
}

inline Result<OverFakeCuda<AsyncCudaResource>> make_fake_async(FakeCudaOptions const& options = {}, std::int32_t ordinal = 0,
                                                               AsyncCudaOptions const& async = {}) {
  auto cuda = std::make_shared<FakeCuda>(options);
  auto made = device::CudaAccess::async(cuda.get(), ordinal, async);
  return with_its_fake(std::move(cuda), std::move(made));
}

inline Result<OverFakeCuda<DirectCudaResource>> make_fake_direct(FakeCudaOptions const& options = {}, std::int32_t ordinal = 0) {
  auto cuda = std::make_shared<FakeCuda>(options);
  auto made = device::CudaAccess::direct(cuda.get(), ordinal);
  return with_its_fake(std::move(cuda), std::move(made));
}

}  // namespace headroom::testing
