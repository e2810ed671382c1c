// headroom: what CUDA says, as errors of headroom.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <headroom/device.hpp>

#include "device/cuda/cuda_api.hpp"

namespace headroom::device {

/// The driver has shut down, or the context is gone: so is the memory, and there is nothing left to free.
[[nodiscard]] constexpr bool is_gone(int code) noexcept {
  return code == CudaCode::kUnloading || code == CudaCode::kContextDestroyed;
}

/// "<what>: <CUDA's name and text>", of kind driver, with the code.
[[nodiscard]] Error cuda_error(CudaApi& api, int code, std::string_view what);
/// `code` came of the first calls into CUDA, which say whether there is a GPU to work with: a sentence on what is missing and what
/// to do. `driver` is the version that the driver supports, 0 = none.
[[nodiscard]] Error cuda_unusable(CudaApi& api, int code, int driver);
[[nodiscard]] Error built_without_cuda();
[[nodiscard]] Error cuda_forked_child();

/// "0x7f…"
[[nodiscard]] std::string cuda_address(void const* pointer);
/// "the default stream", "stream 0x55…"
[[nodiscard]] std::string cuda_stream(StreamId stream);

}  // namespace headroom::device
