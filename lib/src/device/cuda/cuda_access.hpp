// headroom: CUDA resources over any CudaApi, for the product as for tests with a fake. `api` may be null: an error.
#pragma once

#include <memory>

#include <headroom/cuda_resource.hpp>

#include "device/cuda/cuda_api.hpp"

namespace headroom::device {

struct CudaAccess {
  [[nodiscard]] static Result<std::shared_ptr<AsyncCudaResource>> async(CudaApi* api, std::int32_t ordinal,
                                                                        AsyncCudaOptions const& options);
  [[nodiscard]] static Result<std::shared_ptr<DirectCudaResource>> direct(CudaApi* api, std::int32_t ordinal);
  /// The pool that it allocates from.
  [[nodiscard]] static CudaApi::Pool pool(AsyncCudaResource const& resource) noexcept;
  /// Blocks with uses on a second stream.
  [[nodiscard]] static std::uint64_t tracked_blocks(AsyncCudaResource const& resource) noexcept;
};

}  // namespace headroom::device
