// headroom: the calls into CUDA that the resources make, as an interface: the runtime behind it in a program, a fake in tests.
//
// Knows no CUDA header; handles are numbers. Each call returns CUDA's own code, 0 = success, and touches its out-parameters only
// then. The codes that are decided by stand in CudaCode.
//
// Last error: calls behave as the runtime does, that is, one that fails replaces the calling thread's last error; whoever calls
// clears it (CudaDevice). The calls marked (q) never touch it.
// Current device: calls marked (d) act on the calling thread's current device, so they stand between `enter` and `leave`.
//
// Thread safety: every member, from any thread. Objects are never destroyed before the process ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace headroom::device {

/// Numbers of cudaError_t, which are those of CUresult where both have a name.
struct CudaCode {
  static constexpr int kSuccess = 0;
  static constexpr int kInvalidValue = 1;
  static constexpr int kOutOfMemory = 2;
  static constexpr int kUnloading = 4;  ///< the driver has shut down: the process is at its end
  static constexpr int kStubLibrary = 34;
  static constexpr int kInsufficientDriver = 35;
  static constexpr int kNoDevice = 100;
  static constexpr int kInvalidDevice = 101;
  static constexpr int kInvalidHandle = 400;
  static constexpr int kNotReady = 600;
  static constexpr int kContextDestroyed = 709;
  static constexpr int kNotSupported = 801;
};

enum class CudaPoolFigure : std::uint8_t { used, used_high, reserved, reserved_high };

struct CudaProperties {
  std::string name;
  std::array<std::uint8_t, 16> uuid{};
  std::string pci_bus_id;  ///< empty = unknown
  std::uint64_t total_bytes = 0;
  bool has_memory_pools = false;
};

class CudaApi {
public:
  using Stream = std::uint64_t;  ///< value of a cudaStream_t; 0 = the legacy default stream
  using Event = std::uint64_t;
  using Pool = std::uint64_t;
  using Context = std::uint64_t;

  CudaApi() = default;
  CudaApi(CudaApi const&) = delete;
  CudaApi& operator=(CudaApi const&) = delete;

  // ── before any device: make no context ──
  /// Version that the driver supports, as 13000 for 13.0; 0 = there is no driver.
  [[nodiscard]] virtual int driver_version(int& version) noexcept = 0;
  /// Version that headroom was built with.
  [[nodiscard]] virtual int runtime_version() noexcept = 0;
  [[nodiscard]] virtual int device_count(int& count) noexcept = 0;
  [[nodiscard]] virtual int properties(int device, CudaProperties& found) = 0;

  // ── the current device ──
  /// Makes the device's primary context unless it exists. Must have succeeded before the first `enter`.
  [[nodiscard]] virtual int init_device(int device) noexcept = 0;
  /// Makes the device's primary context current. `previous` is for `leave`; 0 = there is nothing to go back to. (q)
  [[nodiscard]] virtual int enter(int device, Context& previous) noexcept = 0;
  /// After an `enter` that succeeded: makes current what was current before. (q)
  virtual void leave(Context previous) noexcept = 0;

  // ── last error of the calling thread ──
  [[nodiscard]] virtual int peek_last_error() noexcept = 0;
  virtual void clear_last_error() noexcept = 0;
  [[nodiscard]] virtual std::string error_text(int code) = 0;  ///< "cudaErrorNoDevice: no CUDA-capable device is detected" (q)

  // ── memory (d) ──
  [[nodiscard]] virtual int malloc(void*& pointer, std::size_t bytes) noexcept = 0;
  [[nodiscard]] virtual int free(void* pointer) noexcept = 0;
  [[nodiscard]] virtual int pool_create(int device, Pool& pool) noexcept = 0;
  [[nodiscard]] virtual int pool_destroy(Pool pool) noexcept = 0;
  [[nodiscard]] virtual int pool_set_release_threshold(Pool pool, std::uint64_t bytes) noexcept = 0;
  [[nodiscard]] virtual int pool_trim(Pool pool, std::size_t bytes_to_keep) noexcept = 0;
  [[nodiscard]] virtual int pool_figure(Pool pool, CudaPoolFigure figure, std::uint64_t& bytes) noexcept = 0;
  /// Lets a high-water mark fall to the present figure; `used_high` or `reserved_high`.
  [[nodiscard]] virtual int pool_reset_high(Pool pool, CudaPoolFigure figure) noexcept = 0;
  [[nodiscard]] virtual int malloc_async(void*& pointer, std::size_t bytes, Pool pool, Stream stream) noexcept = 0;  ///< (q)
  [[nodiscard]] virtual int free_async(void* pointer, Stream stream) noexcept = 0;                                   ///< (q)
  [[nodiscard]] virtual int memset_async(void* pointer, int value, std::size_t bytes, Stream stream) noexcept = 0;
  [[nodiscard]] virtual int copy_to_device_async(void* to, void const* from, std::size_t bytes, Stream stream) noexcept = 0;
  [[nodiscard]] virtual int memory_info(std::uint64_t& free_bytes, std::uint64_t& total_bytes) noexcept = 0;
  [[nodiscard]] virtual int device_synchronize() noexcept = 0;

  // ── streams and events (d) ──
  [[nodiscard]] virtual int stream_create(Stream& stream) noexcept = 0;  ///< does not wait for the legacy default stream
  [[nodiscard]] virtual int stream_destroy(Stream stream) noexcept = 0;
  [[nodiscard]] virtual int stream_synchronize(Stream stream) noexcept = 0;
  [[nodiscard]] virtual int stream_query(Stream stream) noexcept = 0;  ///< kNotReady while work is left (q)
  [[nodiscard]] virtual int stream_wait(Stream stream, Event event) noexcept = 0;
  [[nodiscard]] virtual int event_create(Event& event) noexcept = 0;  ///< without timing
  [[nodiscard]] virtual int event_destroy(Event event) noexcept = 0;
  [[nodiscard]] virtual int event_record(Event event, Stream stream) noexcept = 0;
  [[nodiscard]] virtual int event_query(Event event) noexcept = 0;  ///< kNotReady until it has come (q)
  [[nodiscard]] virtual int event_synchronize(Event event) noexcept = 0;

protected:
  ~CudaApi() = default;
};

/// The CUDA runtime; null where headroom was built without the toolkit.
[[nodiscard]] CudaApi* cuda_runtime_api() noexcept;

}  // namespace headroom::device
