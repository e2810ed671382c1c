// headroom: what a HostResource consists of, shared by its source files.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include <headroom/host_resource.hpp>

#include "device/host_blocks.hpp"
#include "device/host_pool.hpp"
#include "device/host_region.hpp"
#include "device/host_streams.hpp"
#include "device/use_tracker.hpp"

namespace headroom {

struct HostResource::State final : device::UseEvents {
  State(HostOptions const& given, HostRegion reserved);

  HostOptions const options;
  HostRegion const region;
  unsigned const granule_shift;  // log2 of granularity_bytes
  FirstFit::Range const usable;  // in granules from address 0, so that an alignment of granules is one of addresses
  std::uint64_t const salt;      // differs from device to device, see sign
  FaultPlan faults;              // has its own mutex, taken inside `mutex` and never around it

  // Guards what follows up to the atomics. Never held over latency, copies, or the making of messages but that of an injected fault.
  mutable std::mutex mutex;
  HostPool pool;
  HostBlocks blocks;
  HostStreams streams;
  std::uint64_t serial = 0;         // of the last block
  std::uint64_t live_bytes = 0;     // requested
  std::uint64_t pending_bytes = 0;  // requested

  // Written under `mutex` after each change, read by anyone without it. Relaxed: each is one figure that stands for itself.
  std::atomic<std::uint64_t> outstanding_bytes{0};
  std::atomic<std::uint64_t> device_free_bytes{0};

  [[nodiscard]] std::uint64_t granules(std::uint64_t bytes) const noexcept {  // at most 16 TiB, so that nothing wraps
    return (bytes + options.granularity_bytes - 1) >> granule_shift;
  }

  /// The generation of a new block: its number and a checksum over number and place. A block that is not live but carries the
  /// right checksum was handed out here; so double frees are told from foreign pointers without remembering what was freed.
  [[nodiscard]] std::uint64_t sign(std::uint64_t block_serial, std::uint64_t granule) const noexcept;

  struct Lookup {
    HostBlocks::Entry const* entry = nullptr;  // null: misuse, of this kind
    ErrorKind misuse = ErrorKind::unknown_pointer;
    std::uint64_t recorded_bytes = 0;
  };
  [[nodiscard]] Lookup find(Block const& block) const noexcept;  // under mutex
  void publish() noexcept;                                       // under mutex: brings the atomics up to date
  [[nodiscard]] HostUsage usage() const noexcept;                // under mutex

  /// May this part of the block be written now? Counts the operation for the fault plan.
  [[nodiscard]] Result<void> check_write(FaultOperation operation, Block const& block, std::uint64_t offset, std::uint64_t bytes,
                                         StreamId stream);

  // Uses on other streams. Calls into the tracker are made without `mutex`: it comes back through the functions below, which take
  // it. An event is the virtual time at which its stream's work ends.
  device::UseTracker uses{*this};
  [[nodiscard]] Result<std::optional<Event>> record(StreamId stream) override;
  [[nodiscard]] Result<void> wait(StreamId stream, Event event) override;
  [[nodiscard]] bool done(Event event) noexcept override;
  void give_back(Event event) noexcept override;
  [[nodiscard]] bool is_live(void const* pointer, std::uint64_t generation) noexcept override;
  /// The block as the tracker knows it; nothing for one of zero bytes, which nobody has to wait for.
  [[nodiscard]] Result<std::optional<device::UsedBlock>> check_use(Block const& block, StreamId stream);
  /// Under mutex.
  [[nodiscard]] bool has_uses_elsewhere(HostBlocks::Entry const& entry, StreamId freeing) const noexcept {
    return entry.stream != freeing || uses.any();
  }
  [[nodiscard]] static device::UsedBlock used(Block const& block, HostBlocks::Entry const& entry) noexcept {
    return {.pointer = block.pointer, .generation = entry.generation, .allocation_stream = entry.stream};
  }

  // Errors, built after the mutex was given back.
  [[nodiscard]] static tl::unexpected<Error> unknown_stream(StreamId stream);
  [[nodiscard]] static tl::unexpected<Error> misused(Block const& block, Lookup const& found);
  [[nodiscard]] tl::unexpected<Error> no_room(AllocRequest const& request, HostUsage const& usage) const;
};

}  // namespace headroom
