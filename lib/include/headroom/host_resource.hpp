// headroom: the embedded default device, a stand-in for a GPU's memory on the host.
// Layer: device
//
// Use it to run headroom without a GPU, to replay histories larger than the machine, and to test what a program does when its
// device is full, fragmented, slow, late or broken. Everything it does is deterministic: the same calls in the same order give
// the same addresses, the same failures and the same figures.
//
//   device memory = [ context overhead | blocks, pending frees, cache, holes … ]     addresses run from low to high
//
// * A block takes whole granules at the lowest address that holds it (exact first fit): first in the cache, then in the holes.
//   So holes stay behind, and a request can fail although enough bytes are free in all.
// * Stream-ordered frees are *pending*: they keep their bytes until the virtual clock has passed the work before them and
//   reap_pending has taken them. The clock moves only by `advance`, `synchronize_stream`, a synchronising reap, and frees that
//   take effect at once of blocks in use on other streams, as cudaFree waits; nothing sleeps.
// * Uses are tracked always: an event is a virtual time, a wait moves the time at which the next work of a stream can start.
// * Freed memory stays in the cache up to the release threshold. It serves later requests, but the device counts it as used, and
//   it does not merge with holes: a request may need a `trim` first.
// * With `touch_memory` there is real memory behind the addresses (reserved, not committed: a page costs memory once it is
//   written). Without, addresses are only numbers; fill_zero and copy_in check their arguments and succeed.
//
// Errors: the device's own refusals and injected faults have Layer::driver, misuse and bad arguments Layer::resource. Misuse
// (double free, unknown pointer, wrong size, stale generation) is detected before anything changes.
//
// Ownership: shared; blocks do not keep the resource alive. Blocks left at destruction vanish with it.
// Thread safety: every member may be called from any thread. One mutex guards address maps and clock for the tens of nanoseconds
// that they take; latency and copies run outside it.
// Cost: allocate and deallocate O(log holes): about 100 ns a pair in order, 250 ns at random among 1,000 live blocks. Memory: 32
// bytes for a live block, about 25 for a hole, a few times that by growth. Memory of its own is taken before anything changes, so
// std::bad_alloc leaves the resource as it was.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include <headroom/device.hpp>
#include <headroom/fault_plan.hpp>

namespace headroom {

/// How the device is built. All sizes in bytes.
struct HostOptions {
  std::uint64_t total_bytes = std::uint64_t{64} << 30;  ///< the device's memory; at most 16 TiB
  std::uint64_t context_overhead_bytes = 0;             ///< used from the start by no block, as a CUDA context is
  std::uint64_t granularity_bytes = 256;                ///< what a block takes is rounded up to it; a power of two, 256 to 1 GiB
  std::uint64_t release_threshold_bytes = 0;            ///< freed memory that the cache may keep; 0 = no cache
  bool touch_memory = true;                             ///< real memory behind the addresses, or numbers only
  bool stream_ordered = false;                          ///< frees are pending until reaped, or take effect at once
  std::chrono::nanoseconds free_delay{1000};            ///< virtual time that a stream-ordered free takes on its stream
  std::chrono::nanoseconds allocate_latency{0};         ///< real time that each allocation takes, before the memory is taken
  std::chrono::nanoseconds free_latency{0};             ///< real time that each free takes, after the memory was given back
  std::int32_t ordinal = 0;                             ///< the device's index, as blocks carry it
};

/// One consistent look at the device, in bytes (counts where the name says so).
/// free_on_device = total_bytes − context_overhead_bytes − live − pending − rounding − cached, where total was rounded down to
/// granules and the overhead up.
struct HostUsage {
  std::uint64_t live = 0;            ///< requested bytes of live blocks
  std::uint64_t pending = 0;         ///< requested bytes of frees not yet reaped
  std::uint64_t rounding = 0;        ///< what live and pending take beyond that
  std::uint64_t cached = 0;          ///< kept by the cache
  std::uint64_t free_on_device = 0;  ///< in the holes
  std::uint64_t largest_hole = 0;    ///< the longest of them
  std::uint64_t holes = 0;           ///< how many there are
  std::uint64_t live_blocks = 0;
  std::uint64_t pending_frees = 0;
  std::uint64_t tracked_blocks = 0;  ///< live blocks with uses on other streams than their own

  /// 1 − largest hole ÷ free bytes: 0 = one hole, towards 1 = splinters; 0 when nothing is free.
  [[nodiscard]] double fragmentation() const noexcept;
};

class HostResource final : public DeviceResource {
public:
  /// Errors: invalid_argument (an option out of its range, named with its value), io (no address space for total_bytes).
  [[nodiscard]] static Result<std::shared_ptr<HostResource>> create(HostOptions const& options);
  ~HostResource() override;

  /// As DeviceResource. Zero bytes succeed with a null pointer and reach neither latency nor faults. An alignment below 256 is
  /// raised.
  /// Errors: device_out_of_memory (with requested, device_free, device_code 2; the message has largest hole, cache and
  /// fragmentation), overflow (above 16 TiB − 1), invalid_argument (alignment no power of two), stream_misuse (unknown stream),
  /// injected ones.
  [[nodiscard]] Result<Block> allocate(AllocRequest const& request) override;

  /// As DeviceResource. A null block of zero bytes succeeds, as often as you like. Any thread and any live stream may free: to
  /// free on another stream than the block's, set block.stream. Errors: double_free (was handed out here and is not live),
  /// use_after_free (its address lives again as another block), unknown_pointer, wrong_size, stream_misuse, injected ones.
  /// The free comes after the block's allocation and uses on all streams.
  [[nodiscard]] Result<void> deallocate(Block const& block) override;

  /// Writes at once: the host has no queue of work. Errors: invalid_argument (range), use_after_free, unknown_pointer,
  /// wrong_size, stream_misuse, injected ones.
  [[nodiscard]] Result<void> fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream) override;
  [[nodiscard]] Result<void> copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source,
                                     StreamId stream) override;

  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override;  ///< requested bytes, live and pending; no lock
  /// total_bytes, what the holes hold, and cache and rounding; no lock. Exact while no other thread is at work.
  [[nodiscard]] MemoryInfo memory_info() const noexcept override;
  /// `query` takes the frees whose time has come, the others move the virtual clock. Returns requested bytes.
  /// Errors: io (no host memory to note another hole: what came back until then did, and was reported; the rest stays pending).
  [[nodiscard]] Result<std::uint64_t> reap_pending(ReapMode mode) override;
  /// True: at once, or by the thread that reaps; pending frees that are left at destruction are reported then.
  [[nodiscard]] bool reports_returns() const noexcept override;
  [[nodiscard]] std::string_view name() const noexcept override;  ///< "host"
  [[nodiscard]] bool host_accessible() const noexcept override;   ///< touch_memory

  [[nodiscard]] HostOptions const& options() const noexcept;
  [[nodiscard]] HostUsage usage() const;
  /// The longest request that would succeed now, in bytes: the longest hole of device and cache.
  [[nodiscard]] std::uint64_t largest_free_block() const;

  /// Gives cached memory back to the device, lowest addresses first, until at most `bytes_to_keep` (rounded up to granules) are
  /// cached. Returns the bytes given back. Never fails.
  [[nodiscard]] Result<std::uint64_t> trim(std::uint64_t bytes_to_keep) override;
  /// `bytes` rounded up to granules.
  [[nodiscard]] std::uint64_t footprint(std::uint64_t bytes) const noexcept override;

  /// A new stream. At most 65,535 exist at a time. Errors: stream_misuse (one more).
  [[nodiscard]] Result<StreamId> create_stream() override;
  /// Ends a stream; its pending frees finish all the same, uses of its blocks elsewhere still come after its work, and its id is
  /// never given out again. Errors: stream_misuse (unknown, or 0), injected ones.
  [[nodiscard]] Result<void> destroy_stream(StreamId stream) override;
  /// Enqueues work of that much virtual time, as a kernel would be: frees behind it wait for it. Negative = 0. Errors:
  /// stream_misuse.
  [[nodiscard]] Result<void> enqueue_work(StreamId stream, std::chrono::nanoseconds duration);
  /// Moves the virtual clock to the end of the stream's work. Reaps nothing. Errors: stream_misuse.
  [[nodiscard]] Result<void> synchronize_stream(StreamId stream) override;
  /// True when all work of the stream has finished. Errors: stream_misuse.
  [[nodiscard]] Result<bool> stream_idle(StreamId stream) const;

  /// Moves the virtual clock forward; negative = 0. Reaps nothing.
  void advance(std::chrono::nanoseconds duration);
  [[nodiscard]] std::chrono::nanoseconds now() const;  ///< virtual time since creation

  [[nodiscard]] bool tracks_uses() const noexcept override;  ///< true
  /// As DeviceResource; the block's stream is that of its allocation, whatever the copy says. Zero-byte blocks are never waited
  /// for. Errors: use_after_free (freed, or its address lives again as another block), unknown_pointer, wrong_size, stream_misuse
  /// (a stream that this device does not have; ids are numbers, so one of another device can be mistaken), injected ones.
  [[nodiscard]] Result<void> prepare_use(Block const& block, StreamId stream, UseKind kind) override;
  [[nodiscard]] Result<void> finish_use(Block const& block, StreamId stream, UseKind kind) override;
  [[nodiscard]] Result<void> record_use(Block const& block, StreamId stream, UseKind kind) override;

  /// Failures on purpose; see fault_plan.hpp.
  [[nodiscard]] FaultPlan& faults() noexcept;

private:
  struct State;
  explicit HostResource(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> const state_;
};

/// The host as a device, named "host". Errors: as HostResource::create.
[[nodiscard]] Result<Device> host_device(HostOptions const& options = {});
/// The same over a resource that you keep a hand on, to advance its clock or break it. Errors: invalid_argument (null).
[[nodiscard]] Result<Device> host_device_over(std::shared_ptr<HostResource> resource);

}  // namespace headroom
