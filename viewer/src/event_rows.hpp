// headroom: the rows of the event log: operations of all ledgers or of one, what the journal says between them, and gaps.
//
// Kept, not made anew at every frame: when the model read something, only what is new is looked at. A living process's journal comes up
// to one read late, and operations of a ledger wait for one that is missing, so the last rows are put in order again each time.
// Names in rows are good for as long as the model and the rows' keeper live. No ImGui. Thread safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/follow.hpp>

#include "plain_table.hpp"
#include "state.hpp"

namespace headroom::viewer {

struct EventRow {
  enum class What : std::uint8_t { operation, journal, gap };
  What what = What::operation;
  flight::EventKind kind = flight::EventKind::none;
  bool is_recovered = false;  ///< from the live table of a dead process, not from a record
  std::uint32_t ledger = 0;
  std::uint64_t thread = 0;  ///< as the program or history numbers it
  std::uint32_t duration_ns = 0;
  std::uint64_t ticks = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;                    ///< of a gap: how many operations are missing, 0 = unknown
  std::optional<std::uint64_t> used_after{};  ///< what the ledger held then
  std::string_view tag{};
  std::string_view site{};
  std::string_view device{};  ///< of its ledger; "" where it has none
  std::string text{};         ///< of the journal: what it says
};

struct EventQuery {
  std::optional<std::uint32_t> ledger{};  ///< absent: of all
  TickRange range{};
  Filter filter{};
  std::size_t most = 100'000;  ///< rows that are kept: the newest
  friend bool operator==(EventQuery const&, EventQuery const&) = default;
};

class EventFilter;

class EventRows {
public:
  EventRows();
  EventRows(EventRows const&) = delete;
  EventRows& operator=(EventRows const&) = delete;
  ~EventRows();

  /// Looks at what is new since the last call; at everything when the query is another one. True when rows changed.
  bool update(follow::Model const& model, EventQuery const& query, std::uint64_t revision);
  void forget();

  /// Oldest first; at most EventQuery::most.
  [[nodiscard]] std::span<EventRow const> rows() const noexcept;
  /// How many the query fits, of which rows() are the newest.
  [[nodiscard]] std::uint64_t matching() const noexcept { return matching_; }
  /// What in the filter was not understood.
  [[nodiscard]] std::string const& complaint() const noexcept;
  /// Place of the last row at or before `ticks`; nothing when all are after it.
  [[nodiscard]] std::optional<std::size_t> row_at(std::uint64_t ticks) const noexcept;
  /// Raised when rows are another list, not only a longer one.
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
  /// How many operations and journal events were looked at so far: for tests of what is idle.
  [[nodiscard]] std::uint64_t looked_at() const noexcept { return looked_at_; }

private:
  struct Stream {                 // of one ledger
    std::uint64_t next = 0;       // operations before this instant were seen
    std::uint64_t seen_then = 0;  // … and so many of this very instant
    std::uint64_t gap = 0;        // the end of the last gap that was seen
  };
  void take_operations(follow::Model const& model, std::uint32_t cell, std::vector<EventRow>& fresh);
  void take_journal(follow::Model const& model, std::vector<EventRow>& fresh);
  void drop_unsettled_journal();
  void merge(std::vector<EventRow> fresh);
  void keep(std::vector<EventRow>& rows, EventRow row);
  [[nodiscard]] std::string_view kept(std::string_view name);
  [[nodiscard]] std::string_view name_of(follow::Model const& model, std::uint32_t id);
  [[nodiscard]] std::string_view device_of(follow::Model const& model, std::uint32_t cell);

  EventQuery query_;
  std::unique_ptr<EventFilter> filter_;
  std::uint64_t revision_ = 0;
  bool is_empty_ = true;  // nothing was asked yet
  std::map<std::uint32_t, Stream> streams_;
  std::uint64_t journal_from_ = 0;  // rows of the journal from here on are not settled
  std::uint64_t last_ticks_ = 0;
  std::vector<EventRow> rows_;
  std::uint64_t matching_ = 0;
  std::uint64_t looked_at_ = 0;
  std::uint64_t generation_ = 0;
  std::set<std::string, std::less<>> names_;
};

/// The ledger that an event of the journal is about; nothing of those that are about a thread, or about the whole program.
[[nodiscard]] std::optional<std::uint32_t> ledger_of(flight::Event const& event) noexcept;

/// Whether the row's event is about bytes, be it 0 of them.
[[nodiscard]] bool tells_bytes(EventRow const& row) noexcept;

/// The manager or account that had the row's ledger then; "" where that was another one than has it now, or where there is none.
[[nodiscard]] std::string_view owner_of(follow::Model const& model, EventRow const& row);

/// How many operations are missing, of a gap: "3 operations", or "operations" where their number is not known.
[[nodiscard]] std::string missing_in_words(EventRow const& row);

[[nodiscard]] std::vector<std::string> plain_event_columns();
/// For other programs: times in nanoseconds since the model's origin.
[[nodiscard]] PlainRow plain_event(follow::Model const& model, EventRow const& row);
/// Those rows that `is_wanted`.
[[nodiscard]] PlainTable plain_events(follow::Model const& model, std::span<EventRow const> rows,
                                      std::function<bool(std::size_t row)> const& is_wanted);

}  // namespace headroom::viewer
