#include "device/cuda/cuda_errors.hpp"

#include <bit>
#include <utility>

#include "device/request_checks.hpp"

namespace headroom::device {
namespace {

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

Error unsupported(int code, std::string message) {
  auto error = make_error(ErrorKind::unsupported, Layer::driver, std::move(message));
  error.device_code = code;
  return error;
}

}  // namespace

std::string cuda_address(void const* pointer) { return hexadecimal(std::bit_cast<std::uint64_t>(pointer)); }

std::string cuda_stream(StreamId stream) {
  return stream == StreamId{} ? "the default stream" : "stream " + hexadecimal(stream.value);
}

Error cuda_error(CudaApi& api, int code, std::string_view what) {
  std::string message{what};
  message +=
      code == CudaCode::kUnloading ? ": the CUDA driver has shut down, the process is at its end" : ": " + api.error_text(code);
  auto error = make_error(ErrorKind::driver, Layer::driver, std::move(message));
  error.device_code = code;
  return error;
}

Error cuda_unusable(CudaApi& api, int code, int driver) {
  auto const needed = version_text(api.runtime_version());
  switch (code) {
    case CudaCode::kInsufficientDriver:
      if (driver == 0) {
        return unsupported(code, "no NVIDIA driver on this machine (libcuda.so.1): install one that supports CUDA " + needed +
                                     ", or give the container access to the GPU (docker --gpus)");
      }
      return unsupported(code, "the NVIDIA driver supports CUDA " + version_text(driver) + ", headroom was built with CUDA " +
                                   needed + ": install a newer driver, or build with an older toolkit");
    case CudaCode::kNoDevice:
      return unsupported(code,
                         "the NVIDIA driver is there, but it shows no GPU to this process: look at nvidia-smi and at "
                         "CUDA_VISIBLE_DEVICES, and whether the container was given one");
    case CudaCode::kStubLibrary:
      return unsupported(code,
                         "libcuda.so.1 is the stub of the CUDA toolkit, not the driver: take the stubs directory out of "
                         "LD_LIBRARY_PATH");
    default: return cuda_error(api, code, "looking for CUDA devices");
  }
}

Error built_without_cuda() {
  return make_error(
      ErrorKind::unsupported, Layer::resource,
      "this headroom was built without the CUDA toolkit: build it where CMake finds one (CUDA 12.0 or newer, option "
      "HEADROOM_CUDA)");
}

Error cuda_forked_child() {
  return make_error(ErrorKind::unsupported, Layer::resource,
                    "this process is a forked child: the GPU and its memory belong to its parent; exec, or work there");
}

}  // namespace headroom::device
