// One form for everything that can be converted: what a source recorded, played once, in order, to a visitor.
//
//   begin    who it is of; then every ledger (ledger), and what was live when the record begins (before)
//   events   operations (operation), places where operations are missing (gap), and everything else (note), in order of time; those
//            of one ledger in the order of the ledger
//   end      the books as they are
//
// The live set is explicit: what was live before, and is allocated, less what is freed, is what is live, block by block. After a gap
// the Timeline compares what it knew with what is known then, and hands out the difference as operations that are `assumed`. What a
// ledger holds in blocks that nobody saw is told as `unattributed`. So for every ledger, at every instant between events:
// allocated = Σ live blocks + unattributed, and at the end allocated is that of the books.
//
// Where one gap follows another, not everything is known of what was live between them (timeline_gaps.hpp): a block that may have gone
// in either stays until the last one that it may have gone in, as long as the ledger holds that much.
//
// A recorded history streams: memory goes with what is live, not with how long it is. (One of several devices comes device after
// device, each in its own order.) Of a flight file or dump everything that its rings hold is put in order first. A living process is
// looked at once.
//
// Ownership: a Timeline owns its source; what a visitor is handed is good for the call, texts as long as the Timeline. Thread safety:
// none. Errors: those of the source; a visitor that fails stops the play and keeps its own error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/flight_reader.hpp>
#include <headroom/follow_source.hpp>

namespace headroom::dump {

class TimelineNames;

struct TimelineThread {
  std::uint64_t id = 0;
  std::string name;  ///< "": none
};

struct TimelineProcess {
  follow::SourceKind kind = follow::SourceKind::flight;
  std::string title;  ///< of the source
  flight::ProcessInfo info;
  flight::Liveness liveness = flight::Liveness::unknown;
  std::optional<std::uint64_t> start_realtime_ns;  ///< of time 0, since 1970; absent: a history without dates
  /// Of a history, what its clock showed at time 0: what to add to get its own times back. Of others 0.
  std::uint64_t start_clock_ns = 0;
  std::vector<TimelineThread> threads;  ///< those that the books name
  TimelineNames const* names = nullptr;
};

/// A manager or device account. `id` is dense and its own: a cell of the file may have had another owner before.
struct TimelineLedger {
  std::uint32_t id = 0;
  std::uint32_t cell = 0;
  std::string name;
  bool is_device_account = false;  ///< has no operations of its own: its managers' are
  bool has_ended = false;          ///< an earlier owner of the cell, of which the books say nothing any more
  std::string device_name, device_uuid;
  std::int64_t device_ordinal = -1;  ///< −1 unknown
  // When its record begins, which counts as time 0:
  std::optional<std::uint64_t> limit;  ///< absent: unlimited, or not known
  std::uint64_t allocated = 0;
  std::uint64_t unattributed = 0;                  ///< … of which no block is known
  bool from_birth = true;                          ///< nothing of it is before
  std::optional<std::uint64_t> operations_before;  ///< lost before its record begins; absent: not known
  std::uint64_t begin_ns = 0;                      ///< when that really was: the time of its first event; 0 without any
  std::uint64_t peak = 0;                          ///< by the books, at the end of what is played; of a history 0
};

struct TimelineBlock {
  std::uint32_t ledger = 0;  ///< TimelineLedger::id
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t tag = 0;   ///< TimelineNames::tag(); 0 = none
  std::uint32_t site = 0;  ///< TimelineNames::site(); 0 = unknown
  std::uint64_t thread = 0;
  std::optional<std::uint64_t> stream;       ///< absent: not recorded
  std::optional<std::int64_t> allocated_ns;  ///< its time, before 0 for what is older than the record; absent: not known
};

struct TimelineOperation {
  flight::EventKind kind = flight::EventKind::none;  ///< allocate, free or write_off
  std::uint64_t time_ns = 0;
  TimelineBlock block;  ///< of a free that of its allocation, but for `thread` and `stream`, which are those of the free
  std::uint64_t allocated_after = 0;
  std::uint64_t unattributed_after = 0;  ///< of an assumed one, after all of them
  std::uint32_t duration_ns = 0;         ///< 0 = not recorded
  bool known = true;                     ///< false: a free of a block that was never seen: it changes no live set
  bool recovered = false;                ///< not from a record, but from the live table
  bool assumed = false;                  ///< it happened somewhere in the gap before: the time is that of the gap's end
};

/// Operations of a ledger that are missing. Assumed ones follow; `allocated_after` is what the ledger holds after all of them.
struct TimelineGap {
  std::uint64_t time_ns = 0;  ///< of its end
  std::uint32_t ledger = 0;
  std::uint64_t missing = 0;  ///< operations (modulo 2^20); 0 = not known how many
  std::uint64_t allocated_after = 0;
  std::uint64_t unattributed_after = 0;  ///< likewise
};

/// Everything else: refusals, pressure, budgets, hooks, policy, marks, failed frees … As recorded: note_figures.hpp decodes it.
struct TimelineNote {
  flight::EventKind kind = flight::EventKind::none;
  std::uint64_t time_ns = 0;
  std::optional<std::uint32_t> ledger;  ///< absent: about none, or one that is not known
  std::uint64_t thread = 0;
  std::uint32_t tag = 0;
  std::uint32_t site = 0;
  std::optional<std::uint64_t> stream;  ///< absent: not recorded
  std::string_view name;                ///< of a hook or mark
  flight::Event const* event = nullptr;
  flight::Event const* tail = nullptr;  ///< second half of a refusal or a hook's end; null: there is none, or it was lost
};

struct TimelineEnd {
  std::uint64_t time_ns = 0;  ///< of the last event
  struct Ledger {
    std::uint32_t id = 0;
    std::uint64_t allocated = 0;  ///< as the books have it
    std::uint64_t unattributed = 0;
    std::uint64_t peak = 0;
  };
  std::vector<Ledger> ledgers;
  std::uint64_t events_lost = 0;  ///< records that were gone before they could be read
};

class TimelineVisitor {
public:
  virtual ~TimelineVisitor() = default;
  TimelineVisitor() = default;
  TimelineVisitor(TimelineVisitor const&) = delete;
  TimelineVisitor& operator=(TimelineVisitor const&) = delete;

  virtual void begin(TimelineProcess const& /*process*/) {}
  /// Before it is named anywhere else. Of a history more may come after the begin.
  virtual void ledger(TimelineLedger const& /*ledger*/) {}
  virtual void before(TimelineBlock const& /*block*/) {}
  virtual void operation(TimelineOperation const& /*operation*/) {}
  virtual void gap(TimelineGap const& /*gap*/) {}
  virtual void note(TimelineNote const& /*note*/) {}
  virtual void end(TimelineEnd const& /*end*/) {}
  /// Asked after each event: true ends the play at once.
  [[nodiscard]] virtual bool stopped() const noexcept { return false; }
};

/// Texts of tags and sites by dense numbers; 0 is "".
class TimelineNames {
public:
  virtual ~TimelineNames() = default;
  TimelineNames() = default;
  TimelineNames(TimelineNames const&) = delete;
  TimelineNames& operator=(TimelineNames const&) = delete;
  [[nodiscard]] virtual std::string_view tag(std::uint32_t number) const noexcept = 0;
  [[nodiscard]] virtual std::string_view site(std::uint32_t number) const noexcept = 0;
  /// Outermost frame first, joined by ';'; the site alone where no more is known.
  [[nodiscard]] virtual std::string stack(std::uint32_t site) const = 0;
};

struct TimelineOptions {
  std::optional<std::string> manager;  ///< only ledgers of this name
  /// Only ledgers on this device: its number, UUID or name.
  std::optional<std::string> device;
};

/// What was played, and what could not be.
struct TimelineTotals {
  std::uint64_t events = 0;  ///< operations and notes, without assumed ones
  std::uint64_t assumed = 0;
  std::uint64_t before = 0;  ///< blocks that were live before
  std::uint64_t gaps = 0;
  std::uint64_t operations_missing = 0;  ///< in gaps (each modulo 2^20), where it is known how many
  std::uint64_t events_lost = 0;         ///< of records, whatever they were about
  std::uint64_t unknown_frees = 0;       ///< of blocks that were never seen
  std::uint64_t unattributed_bytes = 0;  ///< at the end, of all ledgers
};

class Timeline {
public:
  explicit Timeline(std::unique_ptr<follow::Source> source, TimelineOptions options = {});
  Timeline(Timeline const&) = delete;
  Timeline& operator=(Timeline const&) = delete;
  ~Timeline();

  /// Once. Errors: those of the source; invalid_argument: no manager or device of that name (with those that there are).
  [[nodiscard]] Result<void> play(TimelineVisitor& visitor);

  [[nodiscard]] TimelineNames const& names() const noexcept;
  /// After, or during, the play: what is live, in no particular order. `allocated_ns` is each block's own.
  void for_each_live(std::function<void(TimelineBlock const&)> const& visit) const;
  [[nodiscard]] TimelineTotals const& totals() const noexcept;

private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom::dump
