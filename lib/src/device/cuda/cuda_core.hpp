// headroom: what both CUDA resources consist of: a device, live blocks, streams, events, the order of uses, writes.
//
// Thread safety: every member, from any thread. No lock is held over a CUDA call.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <headroom/device.hpp>

#include "base/checked.hpp"
#include "device/cuda/cuda_blocks.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_events.hpp"
#include "device/cuda/cuda_streams.hpp"
#include "device/request_checks.hpp"
#include "device/use_tracker.hpp"

namespace headroom::device {

class CudaCore final : public UseEvents {
public:
  explicit CudaCore(CudaDevice opened) noexcept : device(std::move(opened)) {}

  CudaDevice const device;
  CudaBlocks blocks;
  CudaEvents events{device};
  CudaStreams streams{device};
  UseTracker uses{*this};
  // Requested bytes, live and pending. Written by whoever allocates, frees or reaps, read by anyone; relaxed: one figure that stands
  // for itself.
  std::atomic<std::uint64_t> outstanding{0};

  /// The error of a stream that cannot be used: destroyed here, or cudaStreamPerThread.
  [[nodiscard]] std::optional<Error> wrong_stream(StreamId stream) const;
  /// The same without its words, which the fast path never needs.
  [[nodiscard]] bool is_usable(StreamId stream) const noexcept { return stream != kPerThreadStream && !streams.is_ended(stream); }

  /// Memory at the alignment by way of `take(pointer, bytes)` and `give(pointer)`, which return CUDA's codes.
  template <class Take, class Give>
  [[nodiscard]] static int take_aligned(CudaBlocks::Memory& memory, std::uint64_t alignment, Take const& take, Give const& give);
  /// The block of a request that CUDA served, in the table; `undo()` gives the memory back if there is no memory to note it.
  template <class Undo>
  [[nodiscard]] Result<Block> note(AllocRequest const& request, CudaBlocks::Memory const& memory, Undo const& undo);
  /// The block of a request for zero bytes.
  [[nodiscard]] Result<Block> empty_block(AllocRequest const& request) const;
  /// `details` is the resource's, for a refusal for lack of memory.
  [[nodiscard]] Error not_served(AllocRequest const& request, int code, std::string_view call, std::string const& details) const;
  [[nodiscard]] static Error misused(Block const& block, CudaBlocks::Lookup const& found);

  [[nodiscard]] Result<void> fill_zero(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream);
  [[nodiscard]] Result<void> copy_in(Block const& block, std::uint64_t offset, std::span<const std::byte> source,
                                     StreamId stream);
  [[nodiscard]] MemoryInfo memory_info() const noexcept;

  [[nodiscard]] Result<StreamId> create_stream();
  [[nodiscard]] Result<void> destroy_stream(StreamId stream);
  [[nodiscard]] Result<void> synchronize_stream(StreamId stream);
  [[nodiscard]] Result<void> prepare_use(Block const& block, StreamId stream, UseKind kind);
  [[nodiscard]] Result<void> finish_use(Block const& block, StreamId stream, UseKind kind);
  [[nodiscard]] static UsedBlock used(CudaBlocks::Live const& live) noexcept {
    return {.pointer = live.memory.pointer, .generation = live.generation, .allocation_stream = live.stream};
  }

  // UseEvents
  [[nodiscard]] Result<std::optional<Event>> record(StreamId stream) override;
  [[nodiscard]] Result<void> wait(StreamId stream, Event event) override;
  [[nodiscard]] bool done(Event event) noexcept override;
  void give_back(Event event) noexcept override { events.give_back(event); }
  [[nodiscard]] bool is_live(void const* pointer, std::uint64_t generation) noexcept override {
    return blocks.is_live(pointer, generation);
  }

private:
  static constexpr StreamId kPerThreadStream{2};  // cudaStreamPerThread
  /// May this part of the block be written now?
  [[nodiscard]] Result<void> check_write(Block const& block, std::uint64_t offset, std::uint64_t bytes, StreamId stream);
  /// The block as the tracker knows it; nothing for one of zero bytes, which nobody has to wait for.
  [[nodiscard]] Result<std::optional<UsedBlock>> check_use(Block const& block, StreamId stream);
  [[nodiscard]] static Error use_of_misused(Block const& block, CudaBlocks::Lookup found);
};

template <class Take, class Give>
int CudaCore::take_aligned(CudaBlocks::Memory& memory, std::uint64_t alignment, Take const& take, Give const& give) {
  auto code = take(memory.base, memory.bytes);
  memory.pointer = memory.base;
  auto const address = std::bit_cast<std::uint64_t>(memory.base);
  if (code != CudaCode::kSuccess || (address & (alignment - 1)) == 0) [[likely]]
    return code;
  // Small blocks rarely lie right, large ones always do: asking for more at once would waste memory for the large ones.
  if (code = give(memory.base); code != CudaCode::kSuccess) return code;
  auto const padded = checked_add(memory.bytes, alignment - kMinimumAlignment);
  if (!padded || *padded > kLargestRequest) return CudaCode::kOutOfMemory;
  code = take(memory.base, *padded);
  if (code != CudaCode::kSuccess) return code;
  auto const start = std::bit_cast<std::uint64_t>(memory.base);
  memory.pointer = static_cast<std::byte*>(memory.base) + (((start + alignment - 1) & ~(alignment - 1)) - start);
  return code;
}

template <class Undo>
Result<Block> CudaCore::note(AllocRequest const& request, CudaBlocks::Memory const& memory, Undo const& undo) {
  CudaBlocks::Added added;
  try {
    added = blocks.add(memory, request.stream);
  } catch (...) {
    undo();
    throw;
  }
  outstanding.fetch_add(request.bytes - added.replaced_bytes, std::memory_order_relaxed);
  // Made in its place: a block that is made elsewhere and copied costs more than the table does.
  Result<Block> block(tl::in_place, memory.pointer, request.bytes, raised_alignment(request.alignment), request.stream,
                      added.generation, device.ordinal(), request.tag, nullptr);
  return block;
}

}  // namespace headroom::device
