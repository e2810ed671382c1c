// Compiled in place of cuda_runtime_api.cpp where CMake found no CUDA toolkit.
#include "device/cuda/cuda_api.hpp"

namespace headroom::device {

CudaApi* cuda_runtime_api() noexcept { return nullptr; }

}  // namespace headroom::device
