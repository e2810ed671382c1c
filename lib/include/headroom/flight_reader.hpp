// headroom: reading flight files, of the living and the dead.
// Layer: flight
//
// A FlightView is a read-only look at one flight file: of another process, of one that was killed, or of this process itself.
// Figures come from the books, so they are exact even when events were missed; an EventReader tells the story and counts exactly
// what it could not read. Nothing here writes to the file, takes a lock that a writer knows, or trusts a number it read.
//
// Use FlightView::open for a file, FlightView::of_this_process inside a program, find_flights to see what lies on a machine.
// Thread safety: a FlightView may be read from many threads; an EventReader belongs to one. Cost: an open maps ≤ 16 MiB.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/flight_format.hpp>
#include <headroom/pressure.hpp>

namespace headroom::flight {

/// Who wrote the file. Texts are valid UTF-8 whatever the file says.
struct ProcessInfo {
  std::uint64_t pid = 0;
  std::uint64_t uid = 0;
  std::uint64_t run = 0;
  std::string program, host, version, command, boot_id;
  std::uint64_t start_realtime_ns = 0;
  ProcessState state = ProcessState::starting;
  Backing backing = Backing::file;
  bool was_shrunk = false;  ///< rings and table were halved to fit the tmpfs
  bool events_off = false;
  ExporterState exporter_state = ExporterState::none;
  std::uint16_t exporter_port = 0;
  std::uint64_t refused_no_lane = 0, refused_reentrant = 0, refused_early = 0;
  std::uint64_t tags_folded = 0, sites_folded = 0, ledgers_without_cell = 0;
  std::uint64_t events_recorded = 0;  ///< sum of all heads
  std::uint32_t lanes_in_use = 0;
  std::uint64_t last_activity_realtime_ns = 0;  ///< newest clock sync
};

/// `run` in the short form of labels: the first 8 hex digits.
[[nodiscard]] std::string short_run(std::uint64_t run);

enum class Liveness : std::uint8_t { living, dead, unknown };

/// Converts ticks to nanoseconds with the clock syncs of the file.
class ClockMap {
public:
  struct Sync {
    std::uint64_t ticks, monotonic_ns, realtime_ns;
  };
  ClockMap(std::uint64_t ticks_per_second, std::vector<Sync> syncs);  ///< syncs in any order, at least the start triple
  [[nodiscard]] std::uint64_t realtime_ns(std::uint64_t ticks) const noexcept;
  [[nodiscard]] std::uint64_t monotonic_ns(std::uint64_t ticks) const noexcept;
  [[nodiscard]] std::uint64_t duration_ns(std::uint64_t ticks) const noexcept;

private:
  [[nodiscard]] std::uint64_t convert(std::uint64_t ticks, std::uint64_t Sync::* clock) const noexcept;
  std::uint64_t ticks_per_second_;
  std::vector<Sync> syncs_;
};

struct DirectoryName {
  EntryKind kind = EntryKind::none;
  EntryState state = EntryState::free;
  std::uint32_t generation = 0;
  std::uint32_t parent = 0;
  std::uint64_t number = 0;
  std::uint64_t payload = 0;
  std::string label;
};

/// What one tag holds; sums over all lanes. Bytes are signed only while threads are at work: shown never below 0.
struct TagSnapshot {
  std::uint32_t id = 0;  ///< directory id
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t at_peak_bytes = 0;
  std::uint64_t allocations = 0;
};

/// Plain sums of LedgerCounters over lanes and overflow, less the base of a reused ledger.
struct CounterSums {
  std::uint64_t allocations = 0, frees = 0, allocation_bytes = 0, deallocation_bytes = 0;
  std::uint64_t typed_requests = 0, raw_requests = 0, allocation_ns = 0, free_ns = 0, zero_byte_requests = 0;
  std::array<std::uint64_t, kSizeBuckets> size_histogram{};
  std::array<std::uint64_t, kDurationBuckets> duration_histogram{};
  std::array<std::uint64_t, kUseBuckets> use_histogram{};
};

/// What the ledgers counted that had this one's cell before it. Counters of a cell only grow: these and the present ledger's are all that
/// was ever counted in it.
struct EarlierSums {
  std::uint64_t allocations = 0, frees = 0, allocation_bytes = 0, deallocation_bytes = 0;
};

/// What the guards of a ledger did; zeros where there is none, and in files of an earlier minor version.
struct GuardTallies {
  std::array<std::uint64_t, kOomPolicyCount> policy_runs{};  ///< by policy: requests about which it was asked
  std::array<std::uint64_t, kOomPolicyCount> recoveries{};   ///< by policy in force: refused, and granted after hooks or policy
  std::uint64_t gave_up = 0;                                 ///< … and failed for good after something was tried
  std::uint64_t hook_runs = 0, hook_freed_bytes = 0;
  std::uint64_t policy_waits = 0, policy_wait_ns = 0;
  std::uint64_t checkpoints = 0;  ///< runs of the on_oom callback
};

/// One ledger at one reading. allocated ≤ claimed and allocated ≤ peak always hold here.
struct LedgerSnapshot {
  std::uint32_t cell = 0;
  std::uint32_t directory_id = 0;
  std::uint64_t generation = 0;
  std::uint64_t created_ticks = 0;     ///< when this manager or account began: what is older in its cell is another's; 0 unknown
  std::uint64_t operation_number = 0;  ///< of the operation that made `allocated` what it is, as in its record; 0 unknown
  LedgerState state = LedgerState::free;
  bool is_device_account = false;
  bool is_namesake = false;  ///< another had this name on this device as it opened: tell them apart by directory_id
  std::optional<std::uint32_t> parent_cell;  ///< the device account above a manager; absent: none
  std::string name;                          ///< of the manager or account
  std::string device_name;                   ///< empty when unknown
  std::string device_uuid;                   ///< empty when unknown, as the next
  std::string device_pci_address;            ///< `0000:65:00.0`
  std::int64_t device_ordinal = -1;          ///< −1 unknown
  std::uint64_t claimed = 0, allocated = 0, peak = 0;
  std::optional<std::uint64_t> limit;  ///< absent when unlimited
  bool enforcing = true;               ///< false: observe mode
  std::uint64_t unspent = 0, unspent_reservations = 0;
  std::uint64_t pending_free_bytes = 0;  ///< of a device account: freed, not yet back; part of allocated
  std::uint64_t in_flight_bytes = 0;     ///< lane words and shared ones; of a device account also those of its managers
  std::uint64_t live_allocations = 0;    ///< admitted less freed
  std::uint64_t live_untracked = 0, live_untracked_bytes = 0;
  std::uint64_t failed_frees = 0, failed_free_bytes = 0;
  std::uint64_t sentinel_bytes = 0;
  std::optional<std::uint64_t> device_total, device_free, device_outside;
  PressureLevel pressure = PressureLevel::none;
  std::uint64_t pressure_sequence = 0;
  CounterSums counters;
  EarlierSums earlier;
  std::array<std::array<std::uint64_t, kLayerCount>, kErrorKindCount> refusals{};
  std::array<std::uint64_t, kErrorKindCount> free_failures{};
  std::array<std::array<std::uint64_t, 5>, 5> transitions{};
  std::uint64_t observed = 0, write_offs = 0, retries = 0;
  GuardTallies guard;
  std::uint64_t waiters = 0;      ///< requests that wait for room in this budget now
  std::vector<TagSnapshot> tags;  ///< by bytes, largest first

  [[nodiscard]] std::uint64_t failures() const noexcept;                  ///< sum of refusals
  [[nodiscard]] std::optional<std::uint64_t> remaining() const noexcept;  ///< limit − claimed, never below 0
  [[nodiscard]] std::uint64_t over_budget() const noexcept;               ///< claimed − limit, never below 0
};

/// One live allocation, as the table holds it.
struct LiveAllocation {
  std::uint32_t slot = 0;
  SlotState state = SlotState::live;
  std::uint64_t generation = 0, address = 0, bytes = 0, stream = 0, ticks = 0, operation = 0;
  std::uint32_t tag = 0, ledger = 0, site = 0, thread = 0;
  std::uint64_t alignment = 0;
};

/// What one thread is doing right now: a lane's in-flight word.
struct InFlightOperation {
  std::uint32_t lane = 0;
  std::uint64_t thread = 0;
  std::string thread_name;
  InFlight operation = InFlight::none;
  std::uint32_t ledger = 0;
  std::uint64_t bytes = 0;
  std::uint64_t since_ticks = 0;
};

struct LaneInfo {
  std::uint32_t lane = 0;
  bool owned = false;        ///< a thread holds it
  std::uint64_t thread = 0;  ///< its id, 0 unknown
  std::string thread_name;
  std::uint64_t main_head = 0, journal_head = 0;
};

struct FirstFailureInfo {
  ErrorKind kind{};
  Layer layer{};
  std::uint32_t tag = 0, ledger = 0, site = 0;
  std::uint64_t count = 0, first_ticks = 0, last_ticks = 0, requested = 0, claimed = 0, peak = 0, thread = 0;
  std::optional<std::uint64_t> limit, device_free;
};

/// Totals of one hook, as the program counted them, and the run that is going on. A hook that is registered under the name of one that
/// ended, while another of that name lives, goes on with the ended one's figures: sums over a name do not fall while it has hooks.
struct HookSnapshot {
  std::uint32_t cell = 0;
  std::uint32_t directory_id = 0;  ///< as in Event::hook()
  std::uint32_t ledger_id = 0;     ///< directory id of its manager's ledger; 0: `other`, of any
  std::string name;
  std::int64_t priority = 0;
  std::uint64_t runs = 0, errors = 0, overruns = 0;
  std::uint64_t skips = 0, busy_skips = 0;  ///< overhead above the headroom; running elsewhere for too long
  std::uint64_t reported_bytes = 0, estimated_bytes = 0, freed_bytes = 0, duration_ns = 0;
  std::array<std::uint64_t, kDurationBuckets> duration_histogram{};
  std::optional<std::uint64_t> running_since_ticks;  ///< absent: it does not run
  std::uint64_t running_thread = 0;                  ///< while it runs; 0 unknown
  std::uint64_t limit_ns = 0;                        ///< of its present or last run; 0 before the first
  bool ended = false;                                ///< no longer registered: see FlightView::all_hooks()
};

class MappedFlight;  // the checked mapping behind a view
struct FlightCheck;  // with the next: flight_check.hpp
struct FlightCheckOptions;

class FlightView {
public:
  /// Maps a file read-only and checks everything that reading relies on. Errors: io (with the system's text), parse (what is wrong
  /// at which offset), unsupported (another version or endianness; says both versions).
  [[nodiscard]] static Result<FlightView> open(std::string path);
  /// The same of a file that is open for reading, and may have lost its name by now. The descriptor is the view's from here on, and closed
  /// after an error.
  [[nodiscard]] static Result<FlightView> open(int descriptor, std::string name);
  /// The books of this process; nothing before the first manager was made.
  [[nodiscard]] static std::optional<FlightView> of_this_process();
  /// A view over bytes that the caller keeps alive and 64-byte aligned (tests, fuzzers). Errors as for open.
  [[nodiscard]] static Result<FlightView> over(std::span<const std::byte> bytes, std::string name);

  [[nodiscard]] std::string const& path() const noexcept;  ///< "(memory)" without a file
  [[nodiscard]] FileHeader const& header() const noexcept;
  /// All that is mapped: for a program that answers SIGBUS, since somebody may truncate the file, or that gives pages back between reads.
  [[nodiscard]] std::span<const std::byte> memory() const noexcept;
  [[nodiscard]] ProcessInfo process() const;
  [[nodiscard]] Liveness liveness() const;
  [[nodiscard]] ClockMap clock() const;
  [[nodiscard]] std::optional<DirectoryName> name(std::uint32_t id) const;
  [[nodiscard]] std::string label(std::uint32_t id) const;  ///< "" when there is none

  /// All ledgers that are open, or closed with bytes still live.
  [[nodiscard]] std::vector<LedgerSnapshot> ledgers() const;
  /// Also those that are closed and empty, until their cell is used again: what a post-mortem asks of a process that has ended.
  [[nodiscard]] std::vector<LedgerSnapshot> all_ledgers() const;
  /// What managers had in their tallies whose cell another took since, summed up: refusals, free_failures, transitions, observed,
  /// write_offs, retries and guard; the rest is empty. Zeros in files of an earlier minor version. Read before the ledgers, nothing is in
  /// both, and what changes hands just now may be in neither.
  [[nodiscard]] LedgerSnapshot earlier_tallies() const;
  /// Only the three words, with the reader's protocol of the books: cheap enough for a tight loop.
  struct Words {
    std::uint64_t claimed, allocated, peak;
  };
  [[nodiscard]] Words words(std::uint32_t cell) const noexcept;

  /// Every slot that is live, freeing or failed and was whole when read. Returns how many were skipped while being written.
  std::size_t for_each_live(std::function<void(LiveAllocation const&)> const& visit) const;
  [[nodiscard]] std::vector<InFlightOperation> in_flight() const;
  [[nodiscard]] std::vector<LaneInfo> lanes() const;
  [[nodiscard]] std::vector<FirstFailureInfo> first_failures() const;
  /// The hooks that are registered, in the order of their cells; of a dead process those that were.
  [[nodiscard]] std::vector<HookSnapshot> hooks() const;
  /// Also those that have ended while another hook of their name and ledger lived on: for sums over a name.
  [[nodiscard]] std::vector<HookSnapshot> all_hooks() const;

private:
  friend class EventReader;
  friend FlightCheck check_flight(FlightView const& view, FlightCheckOptions const& options);
  friend struct ViewAccess;  // layers above that read without the heap
  explicit FlightView(std::shared_ptr<MappedFlight const> mapped) noexcept;
  std::shared_ptr<MappedFlight const> mapped_;
};

enum class Ring : std::uint8_t { main, journal };

/// One accepted record, decoded as far as every kind shares it; `words` are as stored.
struct Event {
  EventKind kind = EventKind::none;
  Ring ring = Ring::main;
  std::uint32_t lane = 0;
  std::uint64_t number = 0;
  std::uint64_t ticks = 0;
  std::array<std::uint64_t, kRecordWords> words{};
  bool uncommitted = false;  ///< complete, but its writer died before publishing it
  [[nodiscard]] std::uint64_t flags() const noexcept { return words[0] & (0xFFULL << 48); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return words[3] & kRequestedMask; }
  [[nodiscard]] std::uint64_t allocated_after() const noexcept { return words[4] & kBytesMask; }
  [[nodiscard]] std::uint32_t tag() const noexcept { return static_cast<std::uint32_t>(words[5] & 0xFFFFU); }
  [[nodiscard]] std::uint32_t ledger() const noexcept { return static_cast<std::uint32_t>((words[5] >> 16) & 0xFFFU); }
  [[nodiscard]] std::uint32_t hook() const noexcept { return static_cast<std::uint32_t>((words[5] >> 28) & 0xFFFU); }
  /// A line of a LoggingResource: about no ledger, whatever ledger() says of its words.
  [[nodiscard]] bool is_log_line() const noexcept {
    return kind == EventKind::resource_allocate || kind == EventKind::resource_free || kind == EventKind::resource_refusal ||
           kind == EventKind::resource_free_failed;
  }
  /// Of a log line: the number of its LoggingResource.
  [[nodiscard]] std::uint32_t log() const noexcept { return static_cast<std::uint32_t>((words[5] >> kLogShift) & kLogMask); }
  [[nodiscard]] std::uint32_t result() const noexcept { return static_cast<std::uint32_t>((words[5] >> 40) & 0xFFFU); }
  [[nodiscard]] std::optional<ErrorKind> error_kind() const noexcept;  ///< from the result field; nothing when it was good
  [[nodiscard]] std::optional<Layer> error_layer() const noexcept;
  /// Of a policy record; a step of a later version is `none`.
  [[nodiscard]] PolicyStep policy_step() const noexcept {
    const std::uint64_t step = words[2] & 0xFFU;
    return step < kPolicyStepCount ? static_cast<PolicyStep>(step) : PolicyStep::none;
  }
  /// … of `begun`: what begins.
  [[nodiscard]] PolicyStep policy_begins() const noexcept {
    const std::uint64_t step = (words[2] >> 16) & 0xFFU;
    return step < kPolicyStepCount ? static_cast<PolicyStep>(step) : PolicyStep::none;
  }
  /// … the number of the policy: see PolicyStep.
  [[nodiscard]] std::uint8_t policy_kind() const noexcept { return static_cast<std::uint8_t>(words[2] >> 8); }
  /// Of a hook's end.
  [[nodiscard]] bool hook_threw() const noexcept { return (words[0] & kFlagHookThrew) != 0; }
  [[nodiscard]] bool hook_overran() const noexcept { return (words[0] & kFlagHookOverran) != 0; }
  [[nodiscard]] std::uint32_t duration_ns() const noexcept { return static_cast<std::uint32_t>(words[7] >> 32); }
  [[nodiscard]] std::uint32_t thread() const noexcept { return static_cast<std::uint32_t>(words[7]); }
};

/// Records `first_missing … last_missing` of a ring could not be read any more.
struct Gap {
  Ring ring = Ring::main;
  std::uint32_t lane = 0;
  std::uint64_t first_missing = 0, last_missing = 0;
};

/// Follows the rings of one file with private cursors. accepted + lost = written − start holds at every instant, exactly.
class EventReader {
public:
  enum class Start : std::uint8_t {
    oldest,  ///< what a live reader may still read: floors are not counted as lost
    zero,    ///< from record 0: what was overwritten before counts as lost
  };
  explicit EventReader(FlightView view, Start start = Start::oldest);

  /// Reads what is new in every ring, in ring order (sort by ticks, lane, number for a timeline). `dead` reads as post-mortem: the
  /// memory is quiet, so the block that a live reader must give up is read too, and a complete uncommitted record is flagged.
  void poll(std::vector<Event>& events, std::vector<Gap>& gaps, bool dead = false);

  [[nodiscard]] std::uint64_t accepted() const noexcept { return accepted_; }
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }
  [[nodiscard]] FlightView const& view() const noexcept { return view_; }

private:
  struct Follow {  // one ring
    std::uint64_t next = 0;
    std::uint64_t next_if_quiet = 0;      // where the first poll starts when it is a post-mortem
    std::uint64_t shown_uncommitted = 0;  // 1 + its number
  };
  void reserve_for_pending(std::vector<Event>& events) const;
  void poll_ring(std::uint32_t lane, Ring ring, bool dead, std::vector<Event>& events, std::vector<Gap>& gaps);

  FlightView view_;
  std::vector<std::array<Follow, 2>> follows_;  // by lane, then ring
  bool polled_ = false;
  std::uint64_t accepted_ = 0;
  std::uint64_t lost_ = 0;
};

/// Sorts events into one timeline: by ticks, then lane, ring and number.
void sort_timeline(std::vector<Event>& events);

// Discovery ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

struct FoundFlight {
  std::string path;
  std::string program;
  std::uint64_t pid = 0;
  std::string run;
};

/// Where this user's flight files lie, best first, whether the folders exist or not: $HEADROOM_DIR alone when it is set, else
/// /dev/shm/headroom-<uid> and $XDG_RUNTIME_DIR/headroom.
[[nodiscard]] std::vector<std::string> flight_folders();

/// The flight files in `folder`, the process that started last first, as the files say it; where one cannot be read, by its modification
/// time. A folder that does not exist holds none. Errors: io.
[[nodiscard]] Result<std::vector<FoundFlight>> find_flights(std::string const& folder);

}  // namespace headroom::flight
