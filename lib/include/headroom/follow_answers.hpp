// headroom: what a model of the past answers.
// Layer: follow
//
// Plain values, each of which says how far it may be trusted: `Known` is exact, or names what is missing and how much of it.
// Nothing is interpolated: a figure that cannot be worked out is absent. Times are ticks of the source; Model::realtime_ns() and
// Model::monotonic_ns() turn them into time, and a wall clock that was set in between moves no tick.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/flight_format.hpp>
#include <headroom/pressure.hpp>

namespace headroom::follow {

/// How far an answer about an instant may be trusted.
enum class Known : std::uint8_t {
  exact,         ///< every byte is accounted for
  partial,       ///< `allocated` is exact; `unattributed_bytes` of it belong to blocks that were never seen
  gap,           ///< the instant lies among records that are lost, or not read yet: the figures are those just before them
  forgotten,     ///< before the kept past: no figures
  not_recorded,  ///< a device account has no records of its own, and a model may keep none: only present figures are known
  no_ledger,     ///< there is no such ledger
};
[[nodiscard]] std::string_view to_string(Known known) noexcept;

struct TagFigures {
  std::string name{};  ///< "" = untagged
  std::uint64_t bytes = 0;
  std::uint64_t allocations = 0;
};

/// One ledger at one instant.
struct LedgerState {
  std::uint32_t ledger = 0;  ///< its cell
  std::string name{};
  Known known = Known::no_ledger;
  std::uint64_t as_of_ticks = 0;  ///< of the last operation that counts; 0 = none
  std::optional<std::uint64_t> limit{};
  bool limit_known = true;  ///< false: a change of the budget may have been lost; an absent limit is then no "unlimited"
  bool enforcing = true;
  std::uint64_t allocated = 0;
  std::optional<std::uint64_t> claimed{};  ///< without requests under way; absent while reservations were, or may have been, open
  std::optional<std::uint64_t> peak{};     ///< absent: reached before the kept past, to a height that is not known
  std::uint64_t live_allocations = 0;      ///< of blocks that were seen
  PressureLevel pressure = PressureLevel::none;
  std::vector<TagFigures> tags{};        ///< largest first; their bytes + unattributed_bytes = allocated
  std::uint64_t unattributed_bytes = 0;  ///< live, but in blocks that were never seen
  std::uint64_t missing_operations = 0;  ///< in a gap: how many operations are missing in it (modulo 2^20); 0 = not known
};

/// Who held what when the peak was reached.
struct PeakAnswer {
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> ticks{};  ///< absent: before the kept past; the tags then are those that the books noted
  bool from_books = false;               ///< exact for one thread; `unattributed_bytes` says how far the sum is off
  std::vector<TagFigures> tags{};        ///< largest first; allocations only from the past
  std::uint64_t unattributed_bytes = 0;
};

struct LiveBlock {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> ticks{};  ///< of its allocation; absent: before the kept past
  std::string tag{};
  std::string site{};  ///< "" = unknown
  std::uint32_t thread = 0;
};

/// Blocks that outlived an instant, by tag and site.
struct LeakGroup {
  std::string tag{};
  std::string site{};
  std::uint64_t bytes = 0;
  std::uint64_t allocations = 0;
  std::optional<std::uint64_t> oldest_ticks{};  ///< absent: older than the kept past
};

struct LeakAnswer {
  Known known = Known::no_ledger;
  std::uint64_t bytes = 0;
  std::uint64_t allocations = 0;
  std::vector<LeakGroup> groups{};       ///< by bytes, largest first
  std::uint64_t unattributed_bytes = 0;  ///< live blocks that were never seen may be among them
};

/// fragmentation = 1 − largest hole ÷ all holes: 0 when everything free lies in one piece, near 1 when it lies in splinters.
struct Fragmentation {
  std::uint64_t region_bytes = 0;
  std::uint64_t free_bytes = 0;    ///< of the regions, in no block
  std::uint64_t largest_hole = 0;  ///< the largest request that still fits, before rounding
  std::uint64_t holes = 0;
  std::uint64_t bytes_outside = 0;        ///< of blocks that lie in no region: shown, and not counted as used
  std::optional<double> fragmentation{};  ///< absent when nothing is free
};

/// One pixel column of a plot.
struct SeriesColumn {
  std::uint64_t low = 0;  ///< smallest and largest value at any instant of the column
  std::uint64_t high = 0;
  bool has_value = false;          ///< false: no instant of it is known
  Known known = Known::forgotten;  ///< of the worst instant in it, as far as that is kept
};

// Failures ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

enum class HookResult : std::uint8_t {
  ran,
  threw,
  skipped_large,  ///< it needs more memory for itself than there was
  skipped_busy,   ///< another thread's run of it was waited for, and did not end in time
  running,        ///< no end of its run is recorded
  elsewhere,      ///< another thread's run of it was waited for, and ended: it stood for a run of its own
};
[[nodiscard]] std::string_view to_string(HookResult result) noexcept;

/// One hook that was asked about one request.
struct HookTurnStory {
  std::string name{};
  HookResult result = HookResult::ran;
  std::uint64_t begin_ticks = 0;
  std::uint64_t shortfall = 0;
  std::uint64_t estimate = 0;    ///< what it thought it could free
  std::uint64_t reported = 0;    ///< what it said it freed
  std::uint64_t freed = 0;       ///< what it freed
  std::int64_t ledger_fell = 0;  ///< by how much the ledger's claimed bytes fell meanwhile, whoever did it
  /// Of its run, or of the wait for another thread's. Of one that is running: how long it had run when that was last noticed; 0 = never.
  std::uint64_t duration_ns = 0;
  std::uint64_t limit_ns = 0;  ///< its time limit; 0 = not known
  std::uint64_t overhead = 0;  ///< of a hook skipped because it needs more than there is
  bool overran = false;        ///< it took longer than its limit, or is running for longer
};

struct PolicyStory {
  flight::PolicyStep step = flight::PolicyStep::none;
  std::uint8_t policy = 0;  ///< 0 fail, 1 retry after free, 2 wait and retry, 3 checkpoint and fail
  std::uint64_t ticks = 0;
  std::uint64_t duration_ns = 0;
  std::uint64_t bytes = 0;  ///< see PolicyStep
};

enum class FailureEnd : std::uint8_t {
  failed,     ///< at once: there was nothing to try
  recovered,  ///< granted after all
  gave_up,    ///< failed for good after something was tried
  under_way,  ///< the records end while it was being dealt with (`doing`), or have a gap there (`incomplete`)
  observed,   ///< no failure: an observing budget let the request pass
};
[[nodiscard]] std::string_view to_string(FailureEnd end) noexcept;

/// A request that was refused, with everything that was done about it. Who held what then: Model::state_at(ledger, ticks).
struct FailureStory {
  std::uint64_t number = 0;  ///< in this model, from 1
  std::uint64_t ticks = 0;
  std::uint64_t end_ticks = 0;
  std::uint32_t ledger = 0;
  std::string ledger_name{};
  std::string tag{};
  std::string site{};
  std::uint32_t thread = 0;
  std::uint64_t requested = 0;
  std::optional<ErrorKind> kind{};  ///< absent: of a later version
  std::optional<Layer> layer{};     ///< which layer said no
  std::uint64_t allocated = 0;
  // Of the second record; absent figures when that was lost.
  std::optional<std::uint64_t> claimed, limit, peak, unspent, device_free;
  bool enforcing = true;
  std::int32_t device_code = 0;
  // A later try met another error than the refusal: what no memory can mend. Absent: none did.
  std::optional<ErrorKind> later_kind{};
  std::optional<Layer> later_layer{};
  std::int32_t later_code = 0;  ///< of the device; 0 = none
  std::vector<HookTurnStory> hooks{};
  std::vector<PolicyStory> policy{};
  bool inside_hook = false;  ///< asked by a hook or callback, while another request was being dealt with
  /// Largest first, without numbers of allocations: only of a post-mortem's own failure. Otherwise state_at() tells.
  std::vector<TagFigures> holders{};
  FailureEnd end = FailureEnd::failed;
  /// What was begun last and has not ended, since `doing_since` (0 = not known): `waited` a wait for room, `checkpoint` the callback, or
  /// a wait for another thread's run of it, `none` a wait for another thread's run of a hook. A hook that runs here stands in `hooks`.
  std::optional<flight::PolicyStep> doing{};
  std::uint64_t doing_since = 0;
  bool incomplete = false;  ///< records of its thread were lost before its end: hooks, policy and end may be missing
};

/// What a model read, and what it could not.
struct Losses {
  std::uint64_t events_read = 0;
  std::uint64_t events_lost = 0;           ///< overwritten before they were read
  std::uint64_t events_refused = 0;        ///< by the program: no lane, re-entrant, early
  std::uint64_t operations_missing = 0;    ///< of all ledgers, in gaps that were noticed (each modulo 2^20)
  std::uint64_t gaps = 0;                  ///< … in how many places
  std::uint64_t late_events = 0;           ///< arrived after their place was given up
  std::uint64_t waiting_events = 0;        ///< read, but waiting for one before them
  std::uint64_t forgotten_operations = 0;  ///< fell out of the bounded past
  std::uint64_t forgotten_failures = 0;
  std::uint64_t unmatched_frees = 0;  ///< of blocks that were never seen, where they could not be added to the past
};

}  // namespace headroom::follow
