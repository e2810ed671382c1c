// CudaApi over the static CUDA runtime, and over the driver where that is gentler (cuda_driver_table.hpp).
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <type_traits>

#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_driver_table.hpp"

namespace headroom::device {
namespace {

static_assert(CudaCode::kOutOfMemory == cudaErrorMemoryAllocation && CudaCode::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(CudaCode::kUnloading == cudaErrorCudartUnloading && CudaCode::kUnloading == CUDA_ERROR_DEINITIALIZED);
static_assert(CudaCode::kNotReady == cudaErrorNotReady && CudaCode::kNotReady == CUDA_ERROR_NOT_READY);
static_assert(CudaCode::kContextDestroyed == cudaErrorContextIsDestroyed &&
              CudaCode::kContextDestroyed == CUDA_ERROR_CONTEXT_IS_DESTROYED);
static_assert(CudaCode::kInvalidHandle == cudaErrorInvalidResourceHandle && CudaCode::kInvalidDevice == cudaErrorInvalidDevice);
static_assert(CudaCode::kInsufficientDriver == cudaErrorInsufficientDriver && CudaCode::kNoDevice == cudaErrorNoDevice);
static_assert(CudaCode::kStubLibrary == cudaErrorStubLibrary && CudaCode::kNotSupported == cudaErrorNotSupported);
static_assert(CudaCode::kInvalidValue == cudaErrorInvalidValue && sizeof(CUdeviceptr) == sizeof(void*));

cudaStream_t stream_of(CudaApi::Stream value) noexcept { return std::bit_cast<cudaStream_t>(value); }
cudaEvent_t event_of(CudaApi::Event value) noexcept { return std::bit_cast<cudaEvent_t>(value); }
cudaMemPool_t pool_of(CudaApi::Pool value) noexcept { return std::bit_cast<cudaMemPool_t>(value); }

cudaMemPoolAttr attribute(CudaPoolFigure figure) noexcept {
  switch (figure) {
    case CudaPoolFigure::used: return cudaMemPoolAttrUsedMemCurrent;
    case CudaPoolFigure::used_high: return cudaMemPoolAttrUsedMemHigh;
    case CudaPoolFigure::reserved: return cudaMemPoolAttrReservedMemCurrent;
    case CudaPoolFigure::reserved_high: break;
  }
  return cudaMemPoolAttrReservedMemHigh;
}

class CudaRuntimeApi final : public CudaApi {
public:
  int driver_version(int& version) noexcept override { return cudaDriverGetVersion(&version); }

  int runtime_version() noexcept override { return CUDART_VERSION; }

  int device_count(int& count) noexcept override { return cudaGetDeviceCount(&count); }

  int properties(int device, CudaProperties& found) override {
    cudaDeviceProp properties{};
    if (auto const code = cudaGetDeviceProperties(&properties, device); code != cudaSuccess) return code;
    found.name = properties.name;
    static_assert(sizeof(properties.uuid.bytes) == sizeof(found.uuid));
    std::ranges::transform(properties.uuid.bytes, found.uuid.begin(), [](char byte) { return static_cast<std::uint8_t>(byte); });
    found.total_bytes = properties.totalGlobalMem;
    int pools = 0;
    if (auto const code = cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device); code != cudaSuccess)
      return code;
    found.has_memory_pools = pools != 0;
    std::array<char, 32> address{};
    if (cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device) == cudaSuccess) {
      found.pci_bus_id = address.data();
    } else {
      found.pci_bus_id.clear();
    }
    return cudaSuccess;
  }

  int init_device(int device) noexcept override {
    if (device < 0 || static_cast<std::size_t>(device) >= contexts_.size()) return CudaCode::kInvalidDevice;
    if (auto const code = cudaInitDevice(device, 0, 0); code != cudaSuccess) return code;
    auto const* const driver = cuda_driver_table();
    if (driver == nullptr) return CudaCode::kNotSupported;
    driver_.store(driver, std::memory_order_release);  // before the context: who finds that one may call
    CUdevice handle = 0;
    if (auto const code = driver->device_get(&handle, device); code != CUDA_SUCCESS) return code;
    // Never released: the runtime keeps it until the process ends, too. Retained anew each time, since the program may have reset the
    // device meanwhile.
    CUcontext primary = nullptr;
    if (auto const code = driver->primary_context_retain(&primary, handle); code != CUDA_SUCCESS) return code;
    contexts_[static_cast<std::size_t>(device)].store(primary, std::memory_order_release);
    return cudaSuccess;
  }

  int enter(int device, Context& previous) noexcept override {
    previous = 0;
    auto const* const driver = driver_.load(std::memory_order_acquire);
    auto* const ours = contexts_[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
    CUcontext now = nullptr;
    if (auto const code = driver->context_get_current(&now); code != CUDA_SUCCESS) [[unlikely]]
      return code;
    if (now == ours) [[likely]]
      return cudaSuccess;
    if (now == nullptr && is_device_of_thread(device)) {
      // The thread has chosen this device, if only by default, and used nothing yet. Any runtime call of its own would bind the
      // context; so do we, once, instead of switching at each call.
      auto const pending = cudaPeekAtLastError();
      auto const code = cudaSetDevice(device);
      if (code != cudaSuccess && pending == cudaSuccess) static_cast<void>(cudaGetLastError());
      return code;
    }
    if (auto const code = driver->context_push(ours); code != CUDA_SUCCESS) return code;
    previous = 1;
    return cudaSuccess;
  }

  void leave(Context /*previous*/) noexcept override {
    CUcontext ours = nullptr;
    static_cast<void>(driver_.load(std::memory_order_acquire)->context_pop(&ours));
  }

  int peek_last_error() noexcept override { return cudaPeekAtLastError(); }
  void clear_last_error() noexcept override { static_cast<void>(cudaGetLastError()); }

  std::string error_text(int code) override {
    auto const error = static_cast<cudaError_t>(code);
    return std::string{cudaGetErrorName(error)} + ": " + cudaGetErrorString(error);
  }

  int malloc(void*& pointer, std::size_t bytes) noexcept override { return cudaMalloc(&pointer, bytes); }
  int free(void* pointer) noexcept override { return cudaFree(pointer); }

  int pool_create(int device, Pool& pool) noexcept override {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = cudaMemHandleTypeNone;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    cudaMemPool_t made = nullptr;
    auto const code = cudaMemPoolCreate(&made, &properties);
    if (code == cudaSuccess) pool = std::bit_cast<Pool>(made);
    return code;
  }

  int pool_destroy(Pool pool) noexcept override { return cudaMemPoolDestroy(pool_of(pool)); }

  int pool_set_release_threshold(Pool pool, std::uint64_t bytes) noexcept override {
    return cudaMemPoolSetAttribute(pool_of(pool), cudaMemPoolAttrReleaseThreshold, &bytes);
  }

  int pool_trim(Pool pool, std::size_t bytes_to_keep) noexcept override {
    return cudaMemPoolTrimTo(pool_of(pool), bytes_to_keep);
  }

  int pool_figure(Pool pool, CudaPoolFigure figure, std::uint64_t& bytes) noexcept override {
    return cudaMemPoolGetAttribute(pool_of(pool), attribute(figure), &bytes);
  }

  int pool_reset_high(Pool pool, CudaPoolFigure figure) noexcept override {
    std::uint64_t zero = 0;  // the only value that CUDA takes
    return cudaMemPoolSetAttribute(pool_of(pool), attribute(figure), &zero);
  }

  int malloc_async(void*& pointer, std::size_t bytes, Pool pool, Stream stream) noexcept override {
    CUdeviceptr address = 0;
    auto const code = driver_.load(std::memory_order_acquire)
                          ->malloc_from_pool_async(&address, bytes, std::bit_cast<CUmemoryPool>(pool), stream_of(stream));
    if (code == CUDA_SUCCESS) pointer = std::bit_cast<void*>(address);
    return code;
  }

  int free_async(void* pointer, Stream stream) noexcept override {
    return driver_.load(std::memory_order_acquire)->free_async(std::bit_cast<CUdeviceptr>(pointer), stream_of(stream));
  }

  int memset_async(void* pointer, int value, std::size_t bytes, Stream stream) noexcept override {
    return cudaMemsetAsync(pointer, value, bytes, stream_of(stream));
  }

  int copy_to_device_async(void* to, void const* from, std::size_t bytes, Stream stream) noexcept override {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_of(stream));
  }

  int memory_info(std::uint64_t& free_bytes, std::uint64_t& total_bytes) noexcept override {
    std::size_t free_now = 0;
    std::size_t total = 0;
    auto const code = cudaMemGetInfo(&free_now, &total);
    if (code == cudaSuccess) {
      free_bytes = free_now;
      total_bytes = total;
    }
    return code;
  }

  int device_synchronize() noexcept override { return cudaDeviceSynchronize(); }

  int stream_create(Stream& stream) noexcept override {
    cudaStream_t made = nullptr;
    auto const code = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    if (code == cudaSuccess) stream = std::bit_cast<Stream>(made);
    return code;
  }

  int stream_destroy(Stream stream) noexcept override { return cudaStreamDestroy(stream_of(stream)); }
  int stream_synchronize(Stream stream) noexcept override { return cudaStreamSynchronize(stream_of(stream)); }

  int stream_query(Stream stream) noexcept override {
    return driver_.load(std::memory_order_acquire)->stream_query(stream_of(stream));
  }

  int stream_wait(Stream stream, Event event) noexcept override {
    return cudaStreamWaitEvent(stream_of(stream), event_of(event), 0);
  }

  int event_create(Event& event) noexcept override {
    cudaEvent_t made = nullptr;
    auto const code = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
    if (code == cudaSuccess) event = std::bit_cast<Event>(made);
    return code;
  }

  int event_destroy(Event event) noexcept override { return cudaEventDestroy(event_of(event)); }
  int event_record(Event event, Stream stream) noexcept override { return cudaEventRecord(event_of(event), stream_of(stream)); }
  int event_query(Event event) noexcept override { return driver_.load(std::memory_order_acquire)->event_query(event_of(event)); }
  int event_synchronize(Event event) noexcept override { return cudaEventSynchronize(event_of(event)); }

private:
  // A thread without a context has a device all the same: the runtime's choice.
  static bool is_device_of_thread(int device) noexcept {
    auto const pending = cudaPeekAtLastError();
    int current = -1;
    auto const code = cudaGetDevice(&current);
    if (code != cudaSuccess && pending == cudaSuccess) static_cast<void>(cudaGetLastError());
    return code == cudaSuccess && current == device;
  }

  static constexpr std::size_t kMostDevices = 256;
  // By ordinal: the primary context, null until init_device. Written by init_device (release), read at each call (acquire), so that
  // whoever finds it also finds what the driver made before.
  std::array<std::atomic<CUcontext>, kMostDevices> contexts_{};
  // Written by init_device (release), always to the same value, before the context; read at each call after it (acquire).
  std::atomic<CudaDriverTable const*> driver_{nullptr};
};

}  // namespace

CudaApi* cuda_runtime_api() noexcept {
  static_assert(std::is_trivially_destructible_v<CudaRuntimeApi>, "buffers with static storage are freed at any time");
  static CudaRuntimeApi instance;
  return &instance;
}

}  // namespace headroom::device
