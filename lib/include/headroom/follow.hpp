// headroom: a program's memory through time.
// Layer: follow
//
// A Model follows one source (a living process, what a dead one left, a recorded history) and answers what was the case at any
// instant of the past that it keeps: who held what, what failed and what was done about it, what has been alive since when. It is
// what `headroom explain`, `headroom top`, the status page and the viewer have in common. For the figures of this moment alone a
// FlightView is enough, and cheaper.
//
//   auto model = follow::Model::open_flight(path).value();
//   if (auto done = model.catch_up(); !done) …
//   auto state = model.state_at(0, model.last_ticks());
//
// How exact it is. Every operation on a ledger has a number, so a model notices each one that is missing, whether it was
// overwritten before it was read or never written. Allocated bytes come from the operations themselves and are exact at every
// instant outside a gap. Tags and blocks are rebuilt from the live table after a gap; what could not be attributed is told as bytes.
// The instant of an operation is its record's, or that of the operation before it where the records of two threads disagree with
// the order of the ledger.
//
// Memory is bounded by Options::memory_bytes: keyframes make every instant reachable in constant time, and the oldest operations are
// forgotten first. What is live now, and names, come on top, and so do the stories of failures: at most Options::failures of them, with
// at most 65,536 turns of hooks and steps of policy in all.
//
// Ownership: a model owns its source. Thread safety: one thread at a time; models are independent. Errors: as Result, never thrown
// (but for bad_alloc). Cost: see tests/bench/follow_bench.cpp; poll() costs a program that is followed nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/flight_reader.hpp>
#include <headroom/follow_answers.hpp>
#include <headroom/follow_source.hpp>

namespace headroom::follow {

struct Options {
  /// Of the past: operations, keyframes, journal. At least 64 KiB are used.
  std::size_t memory_bytes = std::size_t{64} << 20U;
  /// How long to wait for an operation that others have overtaken, before it counts as missing. A thread that was put to sleep
  /// between its operation and its record is late, not lost.
  std::chrono::milliseconds patience{250};
  /// Failures whose story is kept; fewer where very much was done about each.
  std::size_t failures = 4096;
  /// false: allocations and frees are left out, and with them the past of who held what: state_at() knows the present alone
  /// (Known::not_recorded before), losses() no missing operations. For whoever shows the books, the journal and failures.
  bool operations = true;
};

/// One operation on a ledger, as an event log shows it.
struct Operation {
  std::uint64_t ticks = 0;
  std::uint32_t ledger = 0;
  flight::EventKind kind = flight::EventKind::none;  ///< allocate, free or write_off
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t allocated_after = 0;
  std::uint32_t thread = 0;
  std::uint32_t duration_ns = 0;
  bool recovered = false;  ///< not from a record, but from what the live table of a dead process shows
  std::string_view tag;    ///< valid while the model lives
  std::string_view site;
};

/// Where the kept past of a ledger begins, or goes on: after operations that are missing, or under another owner of its cell.
struct PastStretch {
  std::uint64_t ticks = 0;        ///< of its begin; 0 where nothing of the ledger is before it
  bool from_birth = false;        ///< nothing of the ledger is before it
  bool new_owner = false;         ///< the cell held nothing, and another manager began to use it: nothing is missing
  std::uint64_t missing = 0;      ///< operations lost before it (modulo 2^20); 0 without from_birth or new_owner: not known
  std::uint64_t allocated = 0;    ///< before its first operation
  std::vector<LiveBlock> live{};  ///< then, as far as known; what else `allocated` has belongs to blocks that were never seen
  /// False: another gap was known to follow, and nobody looked at the live table. `live` is then only what was freed before that gap, and
  /// any block that was known before may be live as well.
  bool is_whole = true;
};

/// A place in a ledger's past where operations are missing.
struct PastGap {
  std::uint64_t begin_ticks = 0;  ///< of the last operation before it
  std::uint64_t end_ticks = 0;    ///< of the first one after it; of a gap at the end, 0: none is known
  std::uint64_t missing = 0;      ///< modulo 2^20; 0 = not known
};

class Model {
public:
  explicit Model(std::unique_ptr<Source> source, Options const& options = {});
  /// Errors: those of open_flight_source and open_history_source.
  [[nodiscard]] static Result<Model> open_flight(std::string path, Options const& options = {});
  [[nodiscard]] static Result<Model> open_history(std::string path, Options const& options = {});

  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  /// Reads what is new; true when something was, or when what is known already gives other answers now: an operation that was waited for
  /// counts as missing, the program has ended. Never blocks. Errors: those of the source.
  [[nodiscard]] Result<bool> poll();
  /// Reads until there is nothing more at once, and counts as missing what is missing then: for one look at a file.
  [[nodiscard]] Result<void> catch_up();

  // ── who, when ──

  [[nodiscard]] Source const& source() const noexcept;
  [[nodiscard]] bool ended() const noexcept;                 ///< the program has ended, and everything was read
  [[nodiscard]] std::uint64_t first_ticks() const noexcept;  ///< of the oldest operation or event that is kept; 0 = none
  [[nodiscard]] std::uint64_t last_ticks() const noexcept;   ///< of the newest; 0 = none
  /// What times are told from: the oldest record of the first read that brought any. It stays where it is, however much of the past is
  /// forgotten. 0 = nothing was read yet.
  [[nodiscard]] std::uint64_t origin_ticks() const noexcept;
  [[nodiscard]] std::uint64_t realtime_ns(std::uint64_t ticks) const;
  [[nodiscard]] std::uint64_t monotonic_ns(std::uint64_t ticks) const;
  [[nodiscard]] std::uint64_t duration_ns(std::uint64_t ticks) const;  ///< of a difference of ticks
  [[nodiscard]] Losses losses() const;
  [[nodiscard]] std::size_t memory_bytes() const noexcept;  ///< of the past that is kept

  // ── the present, by the books of the last poll ──

  [[nodiscard]] std::span<flight::LedgerSnapshot const> ledgers() const noexcept;
  [[nodiscard]] flight::LedgerSnapshot const* ledger(std::uint32_t cell) const noexcept;

  // ── the past ──

  /// One ledger as it was after all that happened at or before `ticks`.
  [[nodiscard]] LedgerState state_at(std::uint32_t ledger, std::uint64_t ticks) const;
  /// All ledgers that the books know.
  [[nodiscard]] std::vector<LedgerState> states_at(std::uint64_t ticks) const;
  [[nodiscard]] PeakAnswer peak(std::uint32_t ledger) const;
  /// What was live then, oldest first; blocks of unknown age come before all others.
  [[nodiscard]] std::vector<LiveBlock> live_at(std::uint32_t ledger, std::uint64_t ticks) const;
  /// What was allocated before `since` and still live at `ticks`.
  [[nodiscard]] LeakAnswer alive_since(std::uint32_t ledger, std::uint64_t since, std::uint64_t ticks) const;
  /// Of the regions that the source knows; absent when it knows none.
  [[nodiscard]] std::optional<Fragmentation> fragmentation_at(std::uint32_t ledger, std::uint64_t ticks) const;
  /// Bytes of a ledger, or of one of its tags, from `begin` (inclusive) to `end` (exclusive), as min and max of each of `columns`
  /// equal columns. Empty when end ≤ begin or columns = 0.
  [[nodiscard]] std::vector<SeriesColumn> series(std::uint32_t ledger, std::optional<std::string_view> tag, std::uint64_t begin,
                                                 std::uint64_t end, std::size_t columns) const;
  /// The same for several tags, each named once, in their order: one walk over the operations for all of them. Where columns are wider
  /// than about a thousand operations, most of those are not looked at.
  [[nodiscard]] std::vector<std::vector<SeriesColumn>> series_of_tags(std::uint32_t ledger, std::span<std::string const> tags,
                                                                      std::uint64_t begin, std::uint64_t end,
                                                                      std::size_t columns) const;

  // ── events ──

  /// The last `most` of them, oldest first. Those still under way are among them. Each is a copy with all its texts: who shows a few of
  /// them at every turn asks for a few.
  [[nodiscard]] std::vector<FailureStory> failures(std::size_t most = ~std::size_t{0}) const;
  /// Journal events that are kept, between two instants (both inclusive), oldest first: pressure, hooks, budgets, marks, …
  void for_each_journal_event(std::uint64_t begin, std::uint64_t end,
                              std::function<void(flight::Event const&)> const& visit) const;
  /// Operations of a ledger between two instants (both inclusive), in the order of the ledger. `visit` returns false to stop.
  void for_each_operation(std::uint32_t ledger, std::uint64_t begin, std::uint64_t end,
                          std::function<bool(Operation const&)> const& visit) const;

  /// Where operations of a ledger are missing within the kept past, oldest first: all that end at or after `since`. Costs a look at each
  /// chunk of the past from then on, not at each operation.
  [[nodiscard]] std::vector<PastGap> gaps(std::uint32_t ledger, std::uint64_t since) const;

  /// All of a ledger's past that is kept, in order: `begin` where a stretch begins, `operation` for what happened in it.
  void for_each_stretch(std::uint32_t ledger, std::function<void(PastStretch const&)> const& begin,
                        std::function<void(Operation const&)> const& operation) const;

private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Who held what when a request failed.
struct HeldThen {
  std::uint64_t bytes = 0;
  std::vector<TagFigures> tags{};  ///< largest first
  std::uint64_t unattributed_bytes = 0;
};
/// From the records, or from those who wrote the file down; absent: not known any more.
[[nodiscard]] std::optional<HeldThen> held_at(Model const& model, FailureStory const& story);

/// The holes between blocks, within regions. Overlapping blocks and regions are fine: an address is used or free once.
[[nodiscard]] Fragmentation fragmentation_of(std::span<AddressRegion const> regions, std::span<LiveBlock const> blocks);

/// Models of all processes in some folders: the living, and the dead that left a file. Each has a past of its own: `options` are those
/// of one. To list many processes and look into one, open that one only.
class Fleet {
public:
  explicit Fleet(std::vector<std::string> folders, Options const& options = {});

  /// Looks for new files, polls all models, and lets go of those whose file is gone. A file that is there and cannot be read is left
  /// out, and named in problems(). Errors: none of the folders could be read.
  [[nodiscard]] Result<void> poll();

  struct Member {
    std::string path;
    Model model;
  };
  [[nodiscard]] std::span<Member> members() noexcept;  ///< newest first
  [[nodiscard]] std::span<std::string const> problems() const noexcept;

private:
  std::vector<std::string> folders_;
  Options options_;
  std::vector<Member> members_;
  std::vector<std::string> problems_;
};

}  // namespace headroom::follow
