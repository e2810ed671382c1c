// What is live, ledger by ledger, while a timeline is played: each event passes through here on its way to the visitor, and gets what
// follows from those before it (whose block a free frees, how much belongs to blocks that were never seen).
//
// Thread safety: none. Memory: proportional to what is live.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "dump/timeline.hpp"
#include "trace/live_blocks.hpp"

namespace headroom::dump {

class TimelineBooks {
public:
  explicit TimelineBooks(TimelineTotals& totals) : totals_{totals} {}
  void set_visitor(TimelineVisitor& visitor) noexcept { visitor_ = &visitor; }

  /// Tells the visitor; `info.allocated` and `.unattributed` are what it holds before its first event. Returns its id.
  std::uint32_t add_ledger(TimelineLedger info);
  /// Part of what the ledger held before.
  void add_before(TimelineBlock const& block);
  /// A free's block needs ledger, address, bytes, thread and stream only. `unattributed_after` and `known` are filled in here.
  void apply(TimelineOperation operation);
  /// `live`: every block that is known to be live after it. `unattributed_after` is filled in here.
  void apply_gap(TimelineGap gap, std::vector<TimelineBlock> live);
  void note(TimelineNote const& note);
  void end(TimelineEnd end);

  [[nodiscard]] TimelineLedger const& info(std::uint32_t id) const noexcept { return ledgers_[id].info; }
  [[nodiscard]] std::size_t ledger_count() const noexcept { return ledgers_.size(); }
  [[nodiscard]] std::uint64_t allocated(std::uint32_t id) const noexcept { return ledgers_[id].allocated; }
  [[nodiscard]] std::uint64_t unattributed(std::uint32_t id) const noexcept { return ledgers_[id].unattributed(); }
  [[nodiscard]] std::vector<TimelineBlock> live_of(std::uint32_t id) const;
  void for_each_live(std::function<void(TimelineBlock const&)> const& visit) const;
  [[nodiscard]] bool stopped() const noexcept { return visitor_->stopped(); }

private:
  struct Held {
    std::uint64_t thread = 0;
    std::optional<std::uint64_t> stream;
    std::optional<std::int64_t> allocated_ns;
    std::uint32_t tag = 0;
    std::uint32_t site = 0;
  };
  using Live = trace::LiveBlocks<Held>;
  struct Ledger {
    TimelineLedger info;
    Live live;
    std::uint64_t allocated = 0;
    std::uint64_t known = 0;  // Σ live
    [[nodiscard]] std::uint64_t unattributed() const noexcept { return allocated > known ? allocated - known : 0; }
  };

  static TimelineBlock to_block(std::uint32_t ledger, std::uint64_t address, Live::Live const& live);
  static void insert(Ledger& ledger, TimelineBlock const& block);

  TimelineTotals& totals_;
  TimelineVisitor* visitor_ = nullptr;
  std::deque<Ledger> ledgers_;  // by id
};

}  // namespace headroom::dump
