// headroom: what an AsyncCudaResource consists of, shared by its source files.
#pragma once

#include <string>

#include <headroom/cuda_resource.hpp>

#include "device/cuda/cuda_core.hpp"
#include "device/cuda/cuda_pending.hpp"

namespace headroom {

struct AsyncCudaResource::State {
  State(device::CudaDevice opened, AsyncCudaOptions const& given) noexcept;
  State(State const&) = delete;
  State& operator=(State const&) = delete;
  ~State();

  AsyncCudaOptions const options;
  device::CudaCore core;
  device::CudaPending pending;
  device::CudaApi::Pool pool = 0;  // 0 only while it is made

  [[nodiscard]] Result<PoolUsage> pool_usage() const;
  /// "; the pool uses 1 GiB of 2 GiB reserved", for a refusal; empty when CUDA does not tell.
  [[nodiscard]] std::string pool_words() const;
};

}  // namespace headroom
