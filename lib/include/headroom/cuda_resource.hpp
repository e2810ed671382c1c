// headroom: the memory of an NVIDIA GPU, through the CUDA runtime.
// Layer: device
//
// Use cuda_device() and hand it to a manager; take a resource of its own to set its options, to read its pool, or to build a stack
// on it. Needs no CUDA headers. headroom compiles without the CUDA toolkit and starts without a driver: what is missing is then an
// error, of kind `unsupported`, that says so and what to do.
//
//   AsyncCudaResource   its own cudaMemPool, stream ordered: about 1 µs a pair. The one to use.
//   DirectCudaResource  cudaMalloc and cudaFree: each free waits for the whole device. To compare with, and for memory that must
//                       not come from a pool (IPC handles, GPUDirect).
//
// Streams: StreamId::value is the value of a cudaStream_t. Streams made by create_stream cost least, and their end is known. A
// stream of the program's own is taken as it is, since CUDA cannot tell whether a value is a stream: it must exist when it is named,
// and until the blocks allocated on it are freed. Frees may be pending on it after its end. cudaStreamPerThread (2) means another
// stream on each thread and is refused. Streams under graph capture are not supported.
//
// Uses on other streams than a block's own are ordered by events, recorded only then (see DeviceResource::tracks_uses). An
// allocation and its use and free on one stream record none.
//
// Alignment: CUDA aligns to 256 bytes at least. For a larger one a block is asked for as it is and kept if it happens to lie right,
// else one of `bytes + alignment − 256` is taken. bytes_outstanding counts requested bytes; the difference is rounding, as within
// CUDA itself.
//
// The calling thread's current device and context are as before after each call, and no context is made on another device. A thread
// that has chosen this device (if only by default) and used nothing yet gets its context bound, as by any runtime call.
//
// CUDA keeps one last error for each thread, and a failing runtime call replaces it. Pool allocations, their frees, and queries leave
// it alone. Errors of headroom's other calls are cleared; where one of the program's was pending, nothing is cleared:
// cudaGetLastError then still reports a failure, perhaps with headroom's code.
//
// At the end of the process, once the driver has shut down, frees succeed and do nothing: the memory is gone. In a forked child the
// GPU is the parent's: every call is refused as `unsupported`, and destructors do nothing.
//
// Ownership: shared; blocks do not keep the resource alive. Its destructor waits for pending frees; blocks that are left then are
// freed, after waiting for the device.
// Thread safety: every member may be called from any thread. Locks are held for some dozen instructions, never over a CUDA call.
// Cost beside CUDA's own: one short lock at an allocation, two at a free; an event for every 64 frees on a stream of create_stream or
// the default stream, and for each free on a stream of the program's own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <headroom/device.hpp>

namespace headroom {

namespace device {
class CudaApi;
struct CudaAccess;
}  // namespace device

/// CUDA devices that this process can use (CUDA_VISIBLE_DEVICES has its say). Makes no context.
/// Errors: unsupported, with CUDA's code and what to do: headroom was built without CUDA, no driver or one too old (35), no device
/// (100), the toolkit's stub in place of the driver (34); driver (anything else); unsupported in a forked child.
[[nodiscard]] Result<std::int32_t> cuda_device_count();

struct AsyncCudaOptions {
  /// Unused memory that the pool keeps when something waits for the device, in bytes. The default keeps everything: trim() gives it
  /// back. 0 is CUDA's own default, and returns all of it to the system at each wait.
  std::uint64_t release_threshold_bytes = UINT64_MAX;
};

/// What CUDA says of the pool, in bytes. `used` is rounded up by CUDA; `reserved` includes what the pool keeps for later.
struct PoolUsage {
  std::uint64_t used = 0;
  std::uint64_t used_high = 0;
  std::uint64_t reserved = 0;
  std::uint64_t reserved_high = 0;
};

class AsyncCudaResource final : public DeviceResource {
public:
  /// `ordinal` is the index among the devices that this process can see. Makes the device's primary context if there is none.
  /// Errors: invalid_argument (no such ordinal), unsupported (as cuda_device_count, and a device without memory pools), driver.
  [[nodiscard]] static Result<std::shared_ptr<AsyncCudaResource>> create(std::int32_t ordinal,
                                                                         AsyncCudaOptions const& options = {});
  ~AsyncCudaResource() override;

  /// As DeviceResource. Where there is no room it waits for pending frees, one after the other, before it says so.
  /// Errors: device_out_of_memory (with requested, device_free, device_code 2; the message has the pool's figures), overflow,
  /// invalid_argument (alignment), stream_misuse (a stream that was destroyed here, cudaStreamPerThread), driver.
  [[nodiscard]] Result<Block> allocate(AllocRequest const& request) override;
  /// As DeviceResource; stream ordered, after the work on block.stream and all declared uses. The bytes are pending until they are
  /// reaped: by reap_pending, or by later frees on the stream. Errors: double_free, use_after_free, unknown_pointer, wrong_size,
  /// stream_misuse, driver.
  [[nodiscard]] Result<void> deallocate(Block const& block) override;
  /// Enqueued on the stream.
  [[nodiscard]] Result<void> fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) override;
  /// Waits for the stream, whatever memory `source` is: only so may it be reused at once.
  [[nodiscard]] Result<void> copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source,
                                     StreamId stream) override;
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override;
  /// Records one event for each stream with new frees. `synchronize_next` waits for whichever of them finishes first.
  [[nodiscard]] Result<std::uint64_t> reap_pending(ReapMode mode) override;
  [[nodiscard]] bool reports_returns() const noexcept override;  ///< true
  /// `free` is cudaMemGetInfo's (about 5 µs): what the pool keeps is not free there, although this resource can use it; `slack` is
  /// what the pool has reserved beyond the blocks.
  [[nodiscard]] MemoryInfo memory_info() const noexcept override;
  /// Whole pieces of 32 MiB: what the pool grows by.
  [[nodiscard]] std::uint64_t footprint(std::uint64_t bytes) const noexcept override;

  /// Streams do not wait for the legacy default stream, nor it for them. Their handles are kept for the next create_stream.
  [[nodiscard]] Result<StreamId> create_stream() override;
  /// Errors: stream_misuse (not made by create_stream, or destroyed before).
  [[nodiscard]] Result<void> destroy_stream(StreamId stream) override;
  [[nodiscard]] Result<void> synchronize_stream(StreamId stream) override;

  [[nodiscard]] bool tracks_uses() const noexcept override;  ///< true
  [[nodiscard]] Result<void> prepare_use(Block const& block, StreamId stream, UseKind kind) override;
  [[nodiscard]] Result<void> finish_use(Block const& block, StreamId stream, UseKind kind) override;
  [[nodiscard]] Result<void> record_use(Block const& block, StreamId stream, UseKind kind) override;

  [[nodiscard]] std::string_view name() const noexcept override;         ///< "cuda-async"
  [[nodiscard]] std::string_view device_uuid() const noexcept override;  ///< "GPU-…", as nvidia-smi shows it

  [[nodiscard]] std::int32_t ordinal() const noexcept;
  [[nodiscard]] std::string const& device_name() const noexcept;  ///< such as "NVIDIA H200"
  [[nodiscard]] std::string const& pci_bus_id() const noexcept;   ///< such as "0000:1b:00.0"; empty = unknown
  [[nodiscard]] AsyncCudaOptions const& options() const noexcept;

  /// Errors: driver, unsupported (forked child).
  [[nodiscard]] Result<PoolUsage> pool_usage() const;
  /// Begins a new measuring window: both high-water marks fall to the present figures. Errors: as pool_usage.
  [[nodiscard]] Result<void> reset_pool_high_water();
  /// Gives unused memory of the pool back to the system until at most `bytes_to_keep` are reserved. Frees that have not finished
  /// stay: reap first. Returns the bytes given back. Errors: as pool_usage.
  [[nodiscard]] Result<std::uint64_t> trim(std::uint64_t bytes_to_keep) override;

private:
  friend struct device::CudaAccess;
  struct State;
  explicit AsyncCudaResource(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

class DirectCudaResource final : public DeviceResource {
public:
  /// Errors: as AsyncCudaResource::create.
  [[nodiscard]] static Result<std::shared_ptr<DirectCudaResource>> create(std::int32_t ordinal);
  ~DirectCudaResource() override;

  /// Usable at once on every stream. Errors: as AsyncCudaResource::allocate.
  [[nodiscard]] Result<Block> allocate(AllocRequest const& request) override;
  /// Waits for all work of the device, declared or not, then frees: nothing is ever pending. Errors: as AsyncCudaResource.
  [[nodiscard]] Result<void> deallocate(Block const& block) override;
  [[nodiscard]] Result<void> fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) override;
  [[nodiscard]] Result<void> copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source,
                                     StreamId stream) override;
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override;
  [[nodiscard]] bool reports_returns() const noexcept override;    ///< true, at once
  [[nodiscard]] MemoryInfo memory_info() const noexcept override;  ///< cudaMemGetInfo's, about 5 µs
  /// Whole pages of 2 MiB. Small blocks share one.
  [[nodiscard]] std::uint64_t footprint(std::uint64_t bytes) const noexcept override;

  [[nodiscard]] Result<StreamId> create_stream() override;
  [[nodiscard]] Result<void> destroy_stream(StreamId stream) override;
  [[nodiscard]] Result<void> synchronize_stream(StreamId stream) override;

  /// True: uses are ordered among each other. The free needs no such help.
  [[nodiscard]] bool tracks_uses() const noexcept override;
  [[nodiscard]] Result<void> prepare_use(Block const& block, StreamId stream, UseKind kind) override;
  [[nodiscard]] Result<void> finish_use(Block const& block, StreamId stream, UseKind kind) override;
  [[nodiscard]] Result<void> record_use(Block const& block, StreamId stream, UseKind kind) override;

  [[nodiscard]] std::string_view name() const noexcept override;  ///< "cuda"
  [[nodiscard]] std::string_view device_uuid() const noexcept override;

  [[nodiscard]] std::int32_t ordinal() const noexcept;
  [[nodiscard]] std::string const& device_name() const noexcept;
  [[nodiscard]] std::string const& pci_bus_id() const noexcept;

  /// Nothing is kept: 0.
  [[nodiscard]] Result<std::uint64_t> trim(std::uint64_t bytes_to_keep) override;

private:
  friend struct device::CudaAccess;
  struct State;
  explicit DirectCudaResource(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

enum class CudaAllocator : std::uint8_t { async, direct };

struct CudaDeviceOptions {
  CudaAllocator allocator = CudaAllocator::async;
  AsyncCudaOptions async{};  ///< of no effect with `direct`
};

/// A GPU as a device, named as CUDA names it, with a resource of its own. Two calls for one GPU make two devices with the same UUID;
/// a GlobalDeviceBudget holds for both. Errors: as AsyncCudaResource::create.
[[nodiscard]] Result<Device> cuda_device(std::int32_t ordinal, CudaDeviceOptions const& options = {});
/// The same over a resource that you keep a hand on. Errors: invalid_argument (null).
[[nodiscard]] Result<Device> cuda_device_over(std::shared_ptr<AsyncCudaResource> resource);
[[nodiscard]] Result<Device> cuda_device_over(std::shared_ptr<DirectCudaResource> resource);

}  // namespace headroom
