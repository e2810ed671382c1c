#include "kernels.hpp"

#include <string>
#include <utility>

#include "kernels_ptx.hpp"

namespace headroom::gpu {
namespace {

constexpr dim3 kGrid{64, 1, 1};
constexpr dim3 kBlock{256, 1, 1};

tl::unexpected<Error> failed(char const* call, cudaError_t code) {
  static_cast<void>(cudaGetLastError());
  auto error = make_error(ErrorKind::driver, Layer::driver, std::string{call} + ": " + cudaGetErrorString(code));
  error.device_code = code;
  return tl::make_unexpected(std::move(error));
}

cudaError_t launch(cudaKernel_t kernel, void** arguments, cudaStream_t stream) {
  return cudaLaunchKernel(static_cast<void const*>(kernel), kGrid, kBlock, arguments, 0, stream);
}

}  // namespace

Kernels::Kernels(Library library, cudaKernel_t fill, cudaKernel_t count_wrong) noexcept
    : library_(std::move(library)), fill_(fill), count_wrong_(count_wrong) {}

Result<Kernels> Kernels::load() {
  cudaLibrary_t loaded = nullptr;
  auto code = cudaLibraryLoadData(&loaded, kKernelsPtx, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (code != cudaSuccess) return failed("cudaLibraryLoadData", code);
  Library library{loaded};
  cudaKernel_t fill = nullptr;
  cudaKernel_t count_wrong = nullptr;
  code = cudaLibraryGetKernel(&fill, loaded, "fill");
  if (code == cudaSuccess) code = cudaLibraryGetKernel(&count_wrong, loaded, "count_wrong");
  if (code != cudaSuccess) return failed("cudaLibraryGetKernel", code);
  return Kernels{std::move(library), fill, count_wrong};
}

cudaError_t Kernels::fill(void* words, std::uint64_t count, std::uint64_t value, cudaStream_t stream) const {
  std::array<void*, 3> arguments{static_cast<void*>(&words), &count, &value};
  return launch(fill_, arguments.data(), stream);
}

cudaError_t Kernels::count_wrong(void const* words, std::uint64_t count, std::uint64_t value, void* wrong,
                                 cudaStream_t stream) const {
  std::array<void*, 4> arguments{static_cast<void*>(&words), &count, &value, static_cast<void*>(&wrong)};
  return launch(count_wrong_, arguments.data(), stream);
}

}  // namespace headroom::gpu
