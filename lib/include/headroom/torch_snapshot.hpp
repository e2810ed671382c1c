// headroom: what a memory snapshot of PyTorch holds besides its history.
// Layer: trace
//
// torch.cuda.memory._snapshot() gives a dict of plain values, which programs keep as a pickle: `segments`, the state of the caching
// allocator when it was taken, and `device_traces`, what it did before. TraceReader opens such a file like any other history;
// TraceReader::snapshot() is the state. Nothing in the pickle is ever executed.
//
// Two kinds of sizes stand in it, and they are never mixed: a history's are those that the program requested, a segment's are what the
// allocator made of them (blocks rounded up to 512 bytes or more). What headroom counts as live, as peak and under a budget are
// requested bytes; the map of segments, what is reserved, and fragmentation are in the allocator's.
//
// How entries become records of a history:
//   alloc           allocate
//   free_completed  free: PyTorch counts a block's requested bytes until then, since no other may use it before
//   free_requested  nothing, but in traces that have no free_completed at all, where it is the free
//   oom             allocate failure
//   segment_*       no record: the memory moves between the driver and the cache
//   others          no record (snapshot, annotations)
// A history that begins in the middle (it was switched on late, or its oldest entries were overwritten) says nothing of what was
// allocated before. Two things do: frees without an allocation, and blocks that are active in the segments and that no entry allocated.
// They come first, as allocations marked from_before. So peak and end are right.
// A record's tag is the entry's `category` where a profiler recorded one, else its `user_metadata`.
//
// Ownership: plain values. Thread safety: const values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

enum class TorchBlockState : std::uint8_t {
  active_allocated,
  active_pending_free,  ///< freed by the program, while a stream may still use it; in newer files active_awaiting_free
  inactive,             ///< the cache's: free for the next request that fits
};
[[nodiscard]] std::string_view to_string(TorchBlockState state) noexcept;

struct TorchBlock {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;                         ///< rounded: the blocks of a segment tile it
  std::optional<std::uint64_t> requested_bytes{};  ///< absent: not recorded
  TorchBlockState state = TorchBlockState::inactive;
  std::uint32_t site = 0;  ///< TraceReader::name_of(); 0 = unknown
  std::uint32_t tag = 0;   ///< likewise
};

struct TorchSegment {
  std::uint32_t device = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t stream = 0;
  bool large = false;                ///< segment_type "large"
  bool expandable = false;           ///< false where not recorded
  std::vector<TorchBlock> blocks{};  ///< by address
};

/// A span of a program, such as a step of an optimiser: an entry of external_annotations.
struct TorchAnnotation {
  std::uint32_t device = 0;
  std::uint64_t time_us = 0;
  bool begins = false;  ///< stage START; else END
  std::string name{};
};

/// Where the trace of a device begins.
struct TorchBeginning {
  std::uint32_t device = 0;
  std::uint64_t time_us = 0;  ///< of its first entry, which is also that of what is from before; 0 without one
};

/// The caching allocator's figures of one device, in its own, rounded bytes, when the snapshot was taken. Sums end at 2^64 - 1.
struct TorchCacheFigures {
  std::uint32_t device = 0;
  std::uint64_t segments = 0;
  std::uint64_t reserved_bytes = 0;   ///< of all segments
  std::uint64_t allocated_bytes = 0;  ///< of blocks in active_allocated
  std::uint64_t active_bytes = 0;     ///< … and those that are pending
  std::uint64_t active_blocks = 0;
  std::uint64_t inactive_blocks = 0;
  std::uint64_t largest_inactive_bytes = 0;  ///< the largest request that fits without asking the driver
  /// 1 − largest inactive block ÷ all inactive bytes; absent when nothing is inactive.
  std::optional<double> fragmentation{};
};

/// What was taken together at the end.
struct TorchSnapshot {
  std::vector<TorchSegment> segments{};        ///< by device and address
  std::vector<TorchAnnotation> annotations{};  ///< in the order of the file; at most kMostAnnotations, the first ones
  std::uint64_t annotations_left_out = 0;
  std::vector<TorchBeginning> beginnings{};  ///< of the devices that have records, by device
  std::string allocator_settings{};          ///< the text of PYTORCH_CUDA_ALLOC_CONF, "" where not recorded
  // What the history did not say, or said twice. Each is counted, none is fatal.
  std::uint64_t entries = 0;              ///< of all devices, of whatever action
  std::uint64_t free_requests = 0;        ///< free_requested entries
  std::uint64_t segment_allocations = 0;  ///< segment_alloc and segment_map
  std::uint64_t segment_frees = 0;        ///< segment_free and segment_unmap
  std::uint64_t from_before_allocations = 0;
  std::uint64_t from_before_bytes = 0;   ///< requested; rounded for blocks whose request is not recorded
  std::uint64_t rounded_blocks = 0;      ///< … of which there are so many
  std::uint64_t unexplained_blocks = 0;  ///< active at an address that the history has freed: of no history, and left out of it
  std::uint64_t unknown_actions = 0;
  std::uint64_t names_left_out =
      0;  ///< records and blocks that have no tag or site for lack of room; grows while the history is read
  static constexpr std::size_t kMostAnnotations = std::size_t{1} << 16U;
};

/// One for each device that has segments, by device.
[[nodiscard]] std::vector<TorchCacheFigures> cache_figures(TorchSnapshot const& snapshot);

}  // namespace headroom
