// headroom: streams, virtual clock and pending frees of a host device.
//
// A stream is only the virtual time at which its work ends. A pending free is a range with the time at which its stream reaches
// it; it outlives the stream, as on CUDA, where a destroyed stream still finishes its work.
//
// Stream id = earlier uses of the slot · 2^16 + slot: slots are reused, ids never, so a destroyed stream stays unknown for good.
//
// Thread safety: none, the owner locks. Cost: streams O(1), pending frees O(log n).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include <headroom/device.hpp>

#include "device/first_fit.hpp"

namespace headroom {

struct PendingFree {
  std::chrono::nanoseconds ready{};
  std::uint64_t order = 0;  // among frees of the same time: as they were made
  FirstFit::Range range;    // in granules
  std::uint64_t bytes = 0;  // as requested
  ReturnSink* returns_to = nullptr;
};

class HostStreams {
public:
  HostStreams();

  [[nodiscard]] std::optional<StreamId> create();  ///< nothing when 65,535 exist
  [[nodiscard]] bool destroy(StreamId stream);     ///< false: unknown, or the default stream
  [[nodiscard]] bool valid(StreamId stream) const noexcept;

  // `stream` is valid in all calls below.
  [[nodiscard]] std::chrono::nanoseconds busy_until(StreamId stream) const noexcept;
  /// Adds work behind what the stream has; returns the time at which it ends.
  std::chrono::nanoseconds enqueue(StreamId stream, std::chrono::nanoseconds duration) noexcept;

  /// Work that is enqueued later starts no sooner than `time`.
  void wait_until(StreamId stream, std::chrono::nanoseconds time) noexcept;

  [[nodiscard]] std::chrono::nanoseconds now() const noexcept { return now_; }
  void advance_to(std::chrono::nanoseconds time) noexcept;      ///< the clock never goes back
  void advance_by(std::chrono::nanoseconds duration) noexcept;  ///< negative = 0

  void reserve_pending();  ///< room for one more; may throw bad_alloc
  void add_pending(StreamId stream, std::chrono::nanoseconds duration, FirstFit::Range range, std::uint64_t bytes,
                   ReturnSink* returns_to = nullptr) noexcept;
  [[nodiscard]] PendingFree const* next_pending() const noexcept;  ///< the one that is ready first; null when none
  void pop_pending() noexcept;
  [[nodiscard]] std::size_t pending_frees() const noexcept { return pending_.size(); }

private:
  struct Slot {
    std::uint64_t id = 0;
    bool live = false;
    std::chrono::nanoseconds busy_until{};
  };
  std::vector<Slot> slots_;  // slot 0 is the default stream
  std::vector<std::uint32_t> free_slots_;
  std::chrono::nanoseconds now_{};
  std::vector<PendingFree> pending_;  // a heap, the first to be ready in front
  std::uint64_t next_order_ = 0;
};

}  // namespace headroom
