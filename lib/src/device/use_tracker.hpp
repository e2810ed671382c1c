// headroom: who uses which block on which stream, for resources that keep cross-stream order.
//
// An allocation is the first write, on its own stream. A read waits for the last write; a write and the free wait for the last
// write and for all reads on other streams; on one stream nothing waits. What a stream has waited for once it does not wait for
// again.
//
// * A block used only on the stream it was allocated on has no entry here and no event. The first wait on another stream makes the
//   entry and then records the allocation's event, so that the event comes after every own-stream use that saw no entry.
// * Once there is an entry, every use records its event when it is finished, so that others wait for no more than it.
// * Order is promised by what returned before what: a use comes after all uses whose finish had returned when its prepare was
//   called. Two threads that declare conflicting uses at the same time get no order between the two, as two launches without any
//   order have none; but whatever comes after both (later uses, the free) waits for both. Two threads that need the allocation's
//   event at the same time may each record one; one of them is kept.
// * Uses declared without prepare are kept beside each other: nobody knows what they came after.
//
// The resource checks pointer, size and streams before it asks; the tracker itself asks is_live only after it made an entry, so
// that a free in between leaves none behind. It knows a block by pointer and generation, so a reused address is another block.
//
// Bounds: entries ≤ live blocks that were used on a second stream; per entry see use_history.hpp. An ended stream's last event is
// kept until it has come.
// Thread safety: every member may be called from any thread. Locks guard the tables only: what to wait for is decided under a
// shard's lock, event operations run without any, and the outcome is entered under the lock again.
// Cost: one relaxed load for own-stream uses while no block has an entry, else a lock and a look-up; an event and a few waits
// otherwise.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include <headroom/device.hpp>

#include "device/use_events.hpp"
#include "device/use_history.hpp"

namespace headroom::device {

/// A block as the resource knows it: the stream is that of the allocation, whatever the caller's copy says.
struct UsedBlock {
  void const* pointer = nullptr;
  std::uint64_t generation = 0;
  StreamId allocation_stream{};
};

class UseTracker {
public:
  /// `events` must outlive the tracker.
  explicit UseTracker(UseEvents& events) noexcept : events_(events) {}
  UseTracker(UseTracker const&) = delete;
  UseTracker& operator=(UseTracker const&) = delete;

  /// Before a launch: makes `stream` wait for what the use comes after. After an error a repeated call does what is still missing.
  /// Errors: use_after_free (freed meanwhile), what the event operations say.
  [[nodiscard]] Result<void> prepare(UsedBlock const& block, StreamId stream, UseKind kind);
  /// After a launch, prepared or not. After an error the use is not recorded: the caller must order the free itself, or repeat the
  /// call. Errors: as prepare, stream_misuse (the stream was ended).
  [[nodiscard]] Result<void> finish(UsedBlock const& block, StreamId stream, UseKind kind);

  /// Makes the stream of a free wait as a write would. True when the block was used, or allocated, on another stream.
  [[nodiscard]] Result<bool> prepare_free(UsedBlock const& block, StreamId stream);
  /// After a free that was accepted, and after is_live has become false.
  void forget(UsedBlock const& block) noexcept;

  /// Before a stream is destroyed: keeps the event that stands for its work. Does nothing for a stream that does not exist.
  [[nodiscard]] Result<void> stream_ends(StreamId stream);
  /// After a stream was made, where values are reused: makes it wait for the work of the stream that had its value before.
  [[nodiscard]] Result<void> stream_made(StreamId stream);

  /// False: no block has an entry, so none needs to be forgotten.
  [[nodiscard]] bool any() const noexcept { return blocks_.load(std::memory_order_relaxed) != 0; }
  [[nodiscard]] std::uint64_t tracked_blocks() const noexcept { return blocks_.load(std::memory_order_relaxed); }

private:
  struct Key {
    void const* pointer = nullptr;
    std::uint64_t generation = 0;
    friend bool operator==(Key, Key) = default;
  };
  struct Hash {
    std::size_t operator()(Key key) const noexcept;
  };
  struct alignas(64) Shard {
    std::mutex mutex;  // guards what follows
    std::unordered_map<Key, UseHistory, Hash> blocks;
    std::uint64_t clock = 0;  // the last ticket or number given out
  };
  struct Plan {
    std::vector<UseHistory::Awaited> waits;
    std::uint64_t number = 0;  // the newest when it was made
  };
  static constexpr std::size_t kShards = 16;

  [[nodiscard]] Shard& shard_of(Key key) noexcept { return shards_[Hash{}(key) % kShards]; }
  /// Under the shard's lock. True when the entry is new; then is_live must be asked without the lock.
  bool find_or_make(Shard& shard, UsedBlock const& block, UseHistory*& history);
  [[nodiscard]] Result<void> still_live(UsedBlock const& block);
  [[nodiscard]] Result<void> carry_out(Plan plan, UsedBlock const& block, StreamId stream, UseKind kind);
  /// An event after the stream's work so far; null when the stream was ended.
  [[nodiscard]] Result<EventRef> record(StreamId stream);
  /// The same, and for an ended stream the event it left; null when that has come.
  [[nodiscard]] Result<EventRef> end_of(StreamId stream);
  void tidy(UsedBlock const& block);
  void tidy_ended();

  UseEvents& events_;
  std::array<Shard, kShards> shards_;
  // Entries of all shards. Written under a shard's lock, read by anyone without it. Relaxed, for three readers:
  // * A free: whoever may free a block was told so by the threads that declared its uses, and that telling orders the load; for a
  //   declaration that races with the free, the lock under which the resource makes is_live false does.
  // * An own-stream use: if it reads 0 although an entry is being made, its launch was enqueued before that entry's event was
  //   recorded on the same stream. For had it come later, the stream's own order would have shown it the new count.
  // * Statistics.
  std::atomic<std::uint64_t> blocks_{0};

  std::mutex ended_mutex_;                             // guards what follows
  std::unordered_map<std::uint64_t, EventRef> ended_;  // by stream
  std::size_t ended_crowded_at_ = 8;
};

}  // namespace headroom::device
