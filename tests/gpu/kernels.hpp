// The kernels of kernels.ptx, compiled by the driver of the machine that they run on.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include <cuda_runtime_api.h>

#include <headroom/error.hpp>

namespace headroom::gpu {

class Kernels {
public:
  /// Errors: driver (with CUDA's code: no compiler in this driver, no memory, …).
  [[nodiscard]] static Result<Kernels> load();

  /// Word i becomes value ^ i.
  [[nodiscard]] cudaError_t fill(void* words, std::uint64_t count, std::uint64_t value, cudaStream_t stream) const;
  /// Adds the number of words that are something else to the 8 bytes at `wrong`.
  [[nodiscard]] cudaError_t count_wrong(void const* words, std::uint64_t count, std::uint64_t value, void* wrong,
                                        cudaStream_t stream) const;

private:
  struct Unload {
    void operator()(cudaLibrary_t library) const noexcept { cudaLibraryUnload(library); }
  };
  using Library = std::unique_ptr<std::remove_pointer_t<cudaLibrary_t>, Unload>;
  Kernels(Library library, cudaKernel_t fill, cudaKernel_t count_wrong) noexcept;

  Library library_;
  cudaKernel_t fill_;
  cudaKernel_t count_wrong_;
};

}  // namespace headroom::gpu
