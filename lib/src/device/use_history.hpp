// headroom: the uses of one block that later ones may have to wait for.
//
//   stream │ newest write │ newest read │ has waited for
//   ───────┼──────────────┼─────────────┼─────────────────────────
//     A    │ #1 (alloc)   │             │
//     B    │              │ #4 event    │ writes up to #1
//     C    │ #9 event     │             │ everything up to #4, so its #9 took #1 and #4 out of the table
//
// A write takes out what its stream had waited for when the write was declared, and nothing else. So a use that another thread
// declares between a write's prepare and its finish stays in the table, and a free waits for both.
//
// Pure data: knows neither locks nor drivers. Events leave it through lists, so that the caller drops them where no lock is held.
// Thread safety: none, the owner locks. Size: at most one write and one read for each stream that used the block. Streams that
// ended leave with their last use, in drop_finished, once that has finished on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "device/use_events.hpp"

namespace headroom::device {

class UseHistory {
public:
  /// `number` is that of the allocation, the first write; it has no event until one is recorded for it.
  UseHistory(StreamId allocation_stream, std::uint64_t number);

  /// Something to wait for. Without an event: the allocation, which has none yet.
  struct Awaited {
    std::uint64_t number = 0;
    EventRef event{};
  };
  /// What a use on `stream` has to wait for and what that stream has not waited for yet.
  [[nodiscard]] std::vector<Awaited> before(StreamId stream, UseKind kind) const;
  /// `stream` has waited for all that `before` said when `number` was the newest.
  void waited(StreamId stream, UseKind kind, std::uint64_t number);
  /// All uses on other streams up to this number are behind `stream`.
  [[nodiscard]] std::uint64_t waited_for_all(StreamId stream) const noexcept;

  struct NewUse {
    StreamId stream;
    UseKind kind = UseKind::read;
    /// Taken after the use was enqueued and before its event was recorded. So of two uses on one stream, the event of the one with
    /// the larger ticket comes after both.
    std::uint64_t ticket = 0;
    std::uint64_t covered = 0;  ///< waited_for_all at that time: the event comes after those uses
    EventRef event{};
  };
  /// Puts a use into the table under a number larger than all before. What it replaces goes to `dropped`. Strong exception safety.
  void add(NewUse const& use, std::uint64_t number, std::vector<EventRef>& dropped);

  /// The allocation's event, unless it has one. Null: nothing needs to wait for the allocation any more.
  void set_allocation_event(EventRef const& event) noexcept;

  /// True when it is time to look for finished uses: twice as many streams as were left the last time, and 8 at least.
  [[nodiscard]] bool crowded() const noexcept { return streams_.size() >= crowded_at_; }
  /// All uses that have an event.
  [[nodiscard]] std::vector<Awaited> recorded() const;
  /// Takes out the uses that `finished` names, and streams without any. The caller holds on to their events.
  void drop_finished(std::vector<Awaited> const& finished) noexcept;

private:
  struct Use {
    std::uint64_t number = 0;  // 0 = none
    std::uint64_t ticket = 0;
    EventRef event{};
  };
  struct Stream {
    StreamId id;
    Use write{};
    Use read{};
    std::uint64_t waited_for_writes = 0;
    std::uint64_t waited_for_all = 0;
  };
  [[nodiscard]] Stream const* find(StreamId stream) const noexcept;
  [[nodiscard]] Stream& at(StreamId stream);
  static void put(Use& slot, NewUse const& use, std::uint64_t number, std::vector<EventRef>& dropped) noexcept;
  static void clear(Use& slot, std::vector<EventRef>& dropped) noexcept;

  std::vector<Stream> streams_;
  std::size_t crowded_at_;
};

}  // namespace headroom::device
