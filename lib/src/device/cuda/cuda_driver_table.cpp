#include "device/cuda/cuda_driver_table.hpp"

#include <dlfcn.h>

#include <optional>
#include <type_traits>

namespace headroom::device {
namespace {

template <class Function>
bool find(void* library, char const* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// The names are those that cuda.h of CUDA 12 and 13 gives these functions: a type and a name of different versions must not meet.
std::optional<CudaDriverTable> look_up() noexcept {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  CudaDriverTable table;
  auto const all =
      find(library, "cuDeviceGet", table.device_get) && find(library, "cuDevicePrimaryCtxRetain", table.primary_context_retain) &&
      find(library, "cuCtxGetCurrent", table.context_get_current) && find(library, "cuCtxPushCurrent_v2", table.context_push) &&
      find(library, "cuCtxPopCurrent_v2", table.context_pop) && find(library, "cuStreamQuery", table.stream_query) &&
      find(library, "cuEventQuery", table.event_query) &&
      find(library, "cuMemAllocFromPoolAsync", table.malloc_from_pool_async) && find(library, "cuMemFreeAsync", table.free_async);
  if (!all) return std::nullopt;
  return table;  // the library stays open: its functions are called until the process ends
}

}  // namespace

CudaDriverTable const* cuda_driver_table() noexcept {
  static_assert(std::is_trivially_destructible_v<CudaDriverTable>, "used at any time of the process's end");
  static std::optional<CudaDriverTable> const table = look_up();
  return table ? &*table : nullptr;
}

}  // namespace headroom::device
