// headroom: the few functions of the driver library that the runtime has no match for, or none as gentle.
//
// The runtime can make a device current only for good: going back by cudaSetDevice makes a context on a device that the program never
// used, and forgets a context of the program's own. The driver's stack of contexts does neither. Queries and pool calls by the driver
// leave the runtime's last error alone, and cost less. Handles of runtime and driver are the same.
//
// libcuda.so.1 is opened at run time, never linked: the runtime has it open already.
// Thread safety: constant after it was made.
#pragma once

#include <cuda.h>

namespace headroom::device {

struct CudaDriverTable {
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) primary_context_retain = nullptr;
  decltype(&cuCtxGetCurrent) context_get_current = nullptr;
  decltype(&cuCtxPushCurrent) context_push = nullptr;
  decltype(&cuCtxPopCurrent) context_pop = nullptr;
  decltype(&cuStreamQuery) stream_query = nullptr;
  decltype(&cuEventQuery) event_query = nullptr;
  decltype(&cuMemAllocFromPoolAsync) malloc_from_pool_async = nullptr;
  decltype(&cuMemFreeAsync) free_async = nullptr;
};

/// Null when there is no driver, or one without these functions. Looked up once.
[[nodiscard]] CudaDriverTable const* cuda_driver_table() noexcept;

}  // namespace headroom::device
