// headroom: the flight file, version 1. This header is the ABI and its specification; flight_records.hpp has its events.
// Layer: flight
//
// One memory-mapped file per process holds the books of its managers and the last events of its threads. The program updates its
// books with ordinary atomics, and that is publishing them: readers map the file read-only, take no lock, and work just as well
// on the file of a process that was killed.
//
//   0      header 4 KiB ──────── who, when, how to find the regions; magic is written last
//          clock syncs ───────── (ticks, monotonic, realtime) about once a second
//          directory ─────────── names: devices, ledgers, tags, hooks, sites
//          ledgers ───────────── claim, alloc, peak, limit, …: what the exporter shows
//          ledger tallies ────── refusals, failed frees, transitions (rare, shared words)
//          ledger bases ──────── what readers subtract from counters after a ledger was reused
//          tag bases ─────────── likewise for tag cells (TagCell: bytes and allocations in use)
//          hooks ─────────────── runs, skips, freed bytes of each hook
//          first failures ────── the first figures of each (kind, layer, tag)
//          live slots, shares ── every live allocation, and the bitmaps that hand out slots
//          lanes ─────────────── a thread's in-flight word, counters, tag cells and two rings of events
//          overflow ──────────── counters of threads and ledgers that own no lane words
//
// Rules for every reader: check magic, version, endianness and every offset before use; index only with what was checked; treat
// every number as hostile. Rules for every writer: only the fields that its comment names, with the order that it names.
// All fields are little-endian. All words that change while readers look are 64-bit atomics. Unknown figures are stored as
// value + 1, so that 0 says "unknown".
#pragma once

#include <cstddef>
#include <cstdint>

#include <headroom/flight_records.hpp>

namespace headroom::flight {

inline constexpr std::uint64_t kMagic = 0x31'54'48'47'4C'46'52'48;  // "HRFLGHT1" read as little-endian bytes
inline constexpr std::uint16_t kAbiMajor = 1;                       // readers refuse another one, politely
inline constexpr std::uint16_t kAbiMinor = 3;                       // only additions in places that were zero
inline constexpr std::uint32_t kEndianness = 0x01020304;

// ── Packed words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
//
//   claim, alloc, peak   63        44 43                                   0
//                        │ number    │ bytes                               │   number: version, operation, operation of the peak
//   limit                63 … 46 45 44 43                                  0
//                        │ zero │ n│ e│ bytes                              │   e: enforcing, n: none
//   in flight            63   60 59 56 55        44 43                     0
//                        │ op   │ 0   │ ledger     │ bytes                 │   0 = nothing in flight

inline constexpr unsigned kBytesBits = 44;
inline constexpr std::uint64_t kBytesMask = (std::uint64_t{1} << kBytesBits) - 1;  ///< largest ledger figure: 16 TiB − 1
inline constexpr std::uint64_t kNumberOne = std::uint64_t{1} << kBytesBits;        ///< adds one to the number half
inline constexpr std::uint64_t kLimitEnforcing = std::uint64_t{1} << 44;
inline constexpr std::uint64_t kLimitNone = std::uint64_t{1} << 45;

enum class InFlight : std::uint8_t { none = 0, allocating = 1, freeing = 2, reserving = 3, spending = 4, dropping = 5 };

[[nodiscard]] constexpr std::uint64_t pack_in_flight(InFlight op, std::uint32_t ledger, std::uint64_t bytes) noexcept {
  return (std::uint64_t{static_cast<std::uint8_t>(op)} << 60) | (std::uint64_t{ledger & 0xFFFU} << 44) | (bytes & kBytesMask);
}

// ── Regions ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

enum class Region : std::uint32_t {
  clock_syncs,
  directory,
  ledgers,
  tallies,
  ledger_bases,
  tag_bases,
  hooks,
  first_failures,
  live_slots,
  live_shares,
  lanes,
  overflow,
};
inline constexpr std::size_t kRegionCount = 12;
inline constexpr std::size_t kRegionSlots = 16;  // room to add without a new major version

struct RegionEntry {
  std::uint64_t offset;  // from the start of the file, a multiple of 64
  std::uint32_t count;   // entries
  std::uint32_t stride;  // bytes from one entry to the next
};
static_assert(sizeof(RegionEntry) == 16);

inline constexpr std::uint32_t kLedgerCount = 64;
inline constexpr std::uint32_t kLaneLedgers = 8;  ///< ledgers with counters of their own in each lane
inline constexpr std::uint32_t kTagCells = 256;
inline constexpr std::uint32_t kLaneCount = 64;
inline constexpr std::uint32_t kOwnedLanes = 48;  ///< lanes 0…47 have one owner at a time; 48…63 are shared, events only
inline constexpr std::uint32_t kSlotsPerShare = 1024;
inline constexpr std::size_t kTallyWords = 186;  ///< of LedgerTallies, without its spare ones

// Header ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

enum class ProcessState : std::uint64_t { starting = 0, live = 1, closing = 2, closed = 3, failed = 4 };
enum class ClockSource : std::uint32_t { monotonic = 1, tsc = 2, cntvct = 3 };  // the numbers of headroom's base clock
enum class Backing : std::uint32_t { file = 1, anonymous = 2 };
enum class AliveBy : std::uint32_t { ofd_lock = 1, pid_and_boot = 2 };
enum class ExporterState : std::uint64_t { none = 0, serving = 1, port_taken = 2, failed = 3, stopped = 4 };

/// Offsets 0–4095. Everything but the words marked "changes" is written before `magic` (release) and never again.
struct alignas(64) FileHeader {
  Word magic;                         // 0      changes once: written last, release; readers load it acquire
  std::uint16_t abi_major;            // 8
  std::uint16_t abi_minor;            // 10
  std::uint32_t endianness;           // 12
  std::uint64_t file_bytes;           // 16     the whole mapping
  std::uint32_t region_count;         // 24
  std::uint32_t record_bytes;         // 28
  std::uint32_t main_records;         // 32     N of the main ring, a power of two
  std::uint32_t main_block;           // 36     B of the main ring, divides N, B < N
  std::uint32_t journal_records;      // 40
  std::uint32_t journal_block;        // 44
  std::uint32_t lane_main_offset;     // 48     from the start of a lane
  std::uint32_t lane_journal_offset;  // 52
  std::uint32_t backing;              // 56     Backing
  std::uint32_t alive_by;             // 60     AliveBy
  RegionEntry regions[kRegionSlots];  // 64   in the order of Region
  std::uint64_t wanted_bytes;         // 320    what the default size would have been; differs from file_bytes when it was halved
  std::uint64_t pid;                  // 328    as the process sees itself (its pid namespace)
  std::uint64_t uid;                  // 336
  std::uint64_t process_start_ticks;  // 344  field 22 of /proc/self/stat
  std::uint64_t run;                  // 352    64 random bits: the identity of this run
  std::uint32_t clock_source;         // 360    ClockSource
  std::uint32_t spare0;               // 364
  std::uint64_t ticks_per_second;     // 368
  std::uint64_t start_ticks;          // 376    start triple
  std::uint64_t start_monotonic_ns;   // 384
  std::uint64_t start_realtime_ns;    // 392    since 1970, UTC
  char boot_id[40];                   // 400    text, zero padded
  char program[64];                   // 440    UTF-8, zero padded, like all texts here
  char host[64];                      // 504
  char version[32];                   // 568    of headroom
  char command[512];                  // 600    arguments separated by a blank
  char spare1[936];                   // 1112
  // Changes from here on. All words relaxed unless said otherwise; written by any thread of the process.
  Word state;                 // 2048   ProcessState, release
  Word exporter_state;        // 2056   ExporterState, release
  Word exporter_port;         // 2064   the port really bound
  Word refused_no_lane;       // 2072   fetch_add: events refused because every shared lane was busy
  Word refused_reentrant;     // 2080   … because the thread was already writing its lane (signal handler, allocator recursion)
  Word refused_early;         // 2088   … before the recorder was up, or with events off
  Word tags_folded;           // 2096   names that found no cell and went into `other`
  Word sites_folded;          // 2104
  Word ledgers_without_cell;  // 2112   managers whose words lie in private memory
  Word directory_used;        // 2120   entries ever used: readers stop there
  Word hooks_used;            // 2128
  Word tag_cells_used;        // 2136
  Word events_off;            // 2144   1 = HEADROOM_FLIGHT=off: books but no events
  Word next_sync_ticks;       // 2152   whoever moves it by CAS writes the next clock sync
  Word syncs_written;         // 2160   fetch_add; sync number k lies in entry k mod count
  Word lanes_used;            // 2168   highest owned lane ever taken + 1
  Word hooks_folded;          // 2176   from minor 2: hooks that found no cell and count in `other`
  // 2184   from minor 3, words of LedgerTallies: what managers had counted whose cell another took since, of all cells. Whoever opens
  // that other sets each word of its cell to 0 and then adds it here (fetch_add, release): a reader that reads here first
  // (acquire) sees none twice. A program that is killed in between loses the word in hand.
  Word earlier_tallies[kTallyWords];
  char spare2[424];
};
static_assert(sizeof(FileHeader) == 4096);
static_assert(offsetof(FileHeader, regions) == 64 && offsetof(FileHeader, wanted_bytes) == 320);
static_assert(offsetof(FileHeader, boot_id) == 400 && offsetof(FileHeader, command) == 600);
static_assert(offsetof(FileHeader, state) == 2048 && offsetof(FileHeader, lanes_used) == 2168);
static_assert(offsetof(FileHeader, earlier_tallies) == 2184);

/// Written by whoever won `next_sync_ticks`: Readers take it when `number` is the same before and after
/// (acquire) and equals 1 + the sync's number. Doubles as "last activity".
struct ClockSync {
  Word number;  // 0 while being written, else 1 + sync number; release
  Word ticks;   // release, like the next two
  Word monotonic_ns;
  Word realtime_ns;
};
static_assert(sizeof(ClockSync) == 32);

// Directory ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

enum class EntryKind : std::uint8_t { none = 0, device = 1, ledger = 2, tag = 3, hook = 4, site = 5, mark = 6, log = 7 };
enum class EntryState : std::uint8_t { free = 0, writing = 1, open = 2, closed = 3 };

inline constexpr std::size_t kLabelBytes = 96;

/// A name. Entry 0 is never used, so that id 0 means "none". The id is the entry's index.
///   kind    number (word 2)             payload (word 3)
///   device  ordinal                     see DevicePayload            label: name, and after a tab the UUID when it is known, never
///                                                                    a part of it: where both do not fit, the name is cut
///   ledger  its cell, or 2^32−1 none    directory id of the device
///   tag     its tag cell (0…255)        hash of the label
///   site    line                        hash of file and function
///   hook    its hook cell               priority as signed 64 bit
///   log     as in word 5 of its lines   0                            label: name of a LoggingResource
struct alignas(64) DirectoryEntry {
  Word state;   // generation (32) · kind (8, bits 8–15) · EntryState (8, bits 0–7); release; re-checked by readers
  Word parent;  // directory id: a tag's and hook's ledger, a ledger's device
  Word number;
  Word payload;
  Word label[kLabelBytes / 8];  // valid UTF-8, zero padded
};
static_assert(sizeof(DirectoryEntry) == 128);

[[nodiscard]] constexpr std::uint64_t pack_entry(std::uint32_t generation, EntryKind kind, EntryState state) noexcept {
  return (std::uint64_t{generation} << 32) | (std::uint64_t{static_cast<std::uint8_t>(kind)} << 8) |
         static_cast<std::uint8_t>(state);
}

/// A device's payload word: DeviceKind (8, bits 0–7); from minor 2 also its PCI address (48, bits 8–55) and bit 56 when that is known:
/// domain (32) · bus (8) · device (5) · function (3).
struct DevicePayload {
  static constexpr std::uint64_t kKindMask = 0xFF, kPciMask = (std::uint64_t{1} << 48) - 1, kPciKnown = std::uint64_t{1} << 56;
  static constexpr unsigned kPciShift = 8;
  [[nodiscard]] static constexpr std::uint64_t pack(std::uint8_t kind) noexcept { return kind; }
  [[nodiscard]] static constexpr std::uint64_t pack(std::uint8_t kind, std::uint64_t pci) noexcept {
    return kPciKnown | ((pci & kPciMask) << kPciShift) | kind;
  }
  [[nodiscard]] static constexpr bool knows_pci(std::uint64_t word) noexcept { return (word & kPciKnown) != 0; }
  [[nodiscard]] static constexpr std::uint64_t pci(std::uint64_t word) noexcept { return (word >> kPciShift) & kPciMask; }
};

// Ledgers ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

enum class LedgerState : std::uint64_t { free = 0, open = 1, closed = 2 };  // closed: no handle left, bytes may still be live

/// The books of one budget. claim and alloc are the only words that threads contend for.
/// A device account (kind 1) is the parent of the managers of one physical device. It has no live slots of its own: its allocated
/// bytes are those of its children's blocks, of blocks that were made without a manager, and pending frees. A block whose slot says
/// `freeing` may be among the pending frees already, or back in the budget; its bytes are in flight. So at every instant
///   pending ≤ allocated ≤ claimed   and   claimed − allocated − unspent ≤ in flight, its own and its children's.
struct alignas(64) LedgerCell {
  Word claim;  // any thread, CAS and fetch_add; seq_cst where waiters or limits are involved (books)
  char pad0[56];
  Word alloc;  // any thread, fetch_add acq_rel; the result names the operation
  char pad1[56];
  Word peak;  // any thread, CAS-max seq_cst; only raised when its bytes are strictly larger, but for reset_peak
  char pad2[56];
  // Read at every operation, written rarely: a line of their own.
  Word limit;            // set_budget, seq_cst store, then claim's version + 1
  Word pressure;         // sequence (56) · level (8, bits 0–7); seq_cst CAS
  Word pressure_margin;  // bytes of hysteresis + 1; 0 = 1 % of the budget
  Word waiters;          // fetch_add seq_cst
  Word epoch;            // fetch_add seq_cst; low 32 bits are the futex
  Word journal_peak;     // bytes of the last peak record in the journal
  Word state;            // LedgerState, release
  Word directory_id;
  // Shared, but touched only off the fast path.
  Word unspent;               // bytes in reservations
  Word unspent_reservations;  // how many
  Word in_flight_shared;      // bytes of operations of threads without a free in-flight word
  Word in_flight_shared_count;
  Word live_untracked_bytes;  // live blocks without a slot
  Word live_untracked;
  Word failed_free_bytes;  // bytes in slots and untracked blocks whose free failed
  Word failed_frees;
  // Identity and figures.
  Word generation;
  Word parent_cell;  // 1 + cell of the device account, 0 = none
  Word device_id;    // directory id
  Word created_ticks;
  Word sentinel_bytes;
  // As last seen: at opening, when the device was short, when the budget changed or pending frees were waited for, on request.
  // Relaxed stores of whoever looked; each word stands for itself.
  Word device_total;         // + 1
  Word device_free;          // + 1
  Word device_outside;       // + 1: used on the device, but not by this process's ledgers
  Word typed_requests;       // alloc_count of books without own counters; lanes carry it otherwise
  Word typed_requests_base;  // reset_alloc_count: what to subtract
  Word kind;                 // 0 manager, 1 device account
  Word pending_free_bytes;   // device account, from minor 1: freed, but not yet the device's again; fetch_add and fetch_sub
  Word physical_device;      // from minor 2: the same for ledgers of one physical device; 0 = unknown, or its account speaks
  // From minor 3: 1 when another ledger that was not over had this name on this device, and not this word, as this one opened. Whoever
  // needs names that differ puts the directory id before the name of such a one, for as long as it is there. Before `state`.
  Word is_namesake;
  Word spare[10];
};
static_assert(sizeof(LedgerCell) == 512);
static_assert(offsetof(LedgerCell, alloc) == 64 && offsetof(LedgerCell, peak) == 128 && offsetof(LedgerCell, limit) == 192);
static_assert(offsetof(LedgerCell, unspent) == 256 && offsetof(LedgerCell, generation) == 320);

/// Rare counts of a ledger: shared words, fetch_add relaxed, off the fast path.
struct alignas(64) LedgerTallies {
  Word refusals[16][8];    // [ErrorKind][Layer]: requests that failed
  Word free_failures[16];  // [ErrorKind]
  Word transitions[5][5];  // [from][to] of the pressure state
  Word observed;           // requests that an observing budget would have refused
  Word write_offs;
  Word retries;
  // Guards, from minor 2.
  Word policy_runs[kOomPolicyCount];  // [policy]: requests about which it was asked, after hooks if there are any
  Word recoveries[kOomPolicyCount];   // [policy in force]: requests that were refused, and granted after hooks or policy
  Word hook_runs;                     // for requests of this ledger
  Word hook_freed_bytes;              // really freed by them
  Word policy_waits;                  // requests that waited for room
  Word policy_wait_ns;                // … how long, in all
  Word checkpoints;                   // runs of the on_oom callback
  Word gave_up;                       // requests of guards that failed for good after something was tried
  Word spare[70];
};
static_assert(sizeof(LedgerTallies) == 2048);
static_assert(offsetof(LedgerTallies, spare) == kTallyWords * sizeof(Word));

inline constexpr std::size_t kSizeBuckets = 48;      // bucket i: [2^(i−1), 2^i) bytes, bucket 0: zero
inline constexpr std::size_t kDurationBuckets = 40;  // bucket i: [2^(i−1), 2^i) ns
inline constexpr std::size_t kUseBuckets = 64;       // bucket i: claimed ÷ budget in [i/64, (i+1)/64), the last one open

/// Growing counts of a ledger: plain stores of a single writer in a lane, fetch_add in the overflow block. Readers add up all.
struct alignas(64) LedgerCounters {
  Word allocations;  // admitted
  Word frees;        // accepted
  Word allocation_bytes;
  Word deallocation_bytes;
  Word typed_requests;  // `alloc<T>` entered: seed A's alloc_count
  Word raw_requests;
  Word allocation_ns;  // sum of durations
  Word free_ns;
  Word zero_byte_requests;
  Word spare[15];
  Word size_histogram[kSizeBuckets];
  Word duration_histogram[kDurationBuckets];
  Word use_histogram[kUseBuckets];
};
static_assert(sizeof(LedgerCounters) == 1408);

/// What one (ledger, tag) pair holds, as seen by one writer; sums over lanes are the truth (mod 2^64: a free may fall elsewhere).
/// Writer: at_peak, then peak_seen, then bytes, each release. Reader: ledger's peak word, then bytes, peak_seen, at_peak (acquire),
/// then the peak word again; at_peak counts where peak_seen equals the peak word, else bytes do.
struct TagCell {
  Word bytes;
  Word allocations;
  Word at_peak;
  Word peak_seen;
};
static_assert(sizeof(TagCell) == 32);

// Hooks and first failures ────────────────────────────────────────────────────────────────────────────────────────────────────

/// Totals of one hook; shared words, fetch_add relaxed (hooks are rare and slow). The last cell is `other`: hooks that found no cell
/// of their own, of any ledger (parent 0); of those that run at once it shows one.
/// A hook that runs longer than its limit may keep its thread for ever: `running_since_ticks` says so while it lasts.
struct alignas(64) HookCell {
  Word directory_id;  // 0 = free; release, after all other words are zero
  Word runs;          // that ended, whatever way
  Word skips;         // its overhead was above the headroom
  Word errors;        // runs that threw
  Word reported_bytes;
  Word freed_bytes;          // on the hook's thread during its runs
  Word running_since_ticks;  // 0 = not running; release, after the two words below
  Word busy_skips;           // it ran elsewhere for longer than its limit
  Word duration_ns;
  // From minor 2.
  Word running_thread;   // the thread of the run since then
  Word limit_ns;         // of that run; 0 before the first
  Word overruns;         // runs longer than their limit, counted when that is noticed
  Word estimated_bytes;  // sum of the hook's estimates over its runs
  Word ended;            // 1 = its hook is gone: kept for the sum over the hooks of its name and ledger, one of which still lives
  Word spare[10];
  Word duration_histogram[kDurationBuckets];
};
static_assert(sizeof(HookCell) == 512);

/// The first figures of a (kind, layer, tag): a storm of refusals laps the journal, but not this.
struct alignas(64) FirstFailure {
  Word key;    // 0 free, else tag (16, bits 17–32) · kind (8, bits 9–16) · layer (8, bits 1–8) · 1; claimed by CAS
  Word ready;  // 1 when the figures below are whole; release
  Word count;  // fetch_add
  Word first_ticks;
  Word last_ticks;  // relaxed store of the newest
  Word requested;
  Word claimed;
  Word limit;  // limit word
  Word peak;
  Word device_free;  // + 1
  Word site;
  Word ledger;  // cell
  Word thread;
  Word spare[3];
};
static_assert(sizeof(FirstFailure) == 128);

// Live table ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

enum class SlotState : std::uint8_t { free = 0, live = 1, freeing = 2, failed = 3 };

/// One live allocation. word 0: generation (bits 8–63) · state (bits 1–3) · writing (bit 0). While bit 0 is set, and when word 0
/// differs before and after, readers drop what they read. Words are stored release and loaded acquire.
struct alignas(64) LiveSlot {
  Word state;
  Word address;
  Word bytes;
  Word tag_ledger;   // tag directory id (16) · ledger cell (12, bits 16–27) · log2 alignment (6, bits 28–33)
  Word site_thread;  // site directory id (32, high) · thread id (32, low)
  Word stream;
  Word ticks;
  Word operation;  // the alloc word of its admission
};
static_assert(sizeof(LiveSlot) == 64);

inline constexpr std::uint64_t kSlotWriting = 1;
[[nodiscard]] constexpr std::uint64_t pack_slot(std::uint64_t generation, SlotState state, bool writing) noexcept {
  return (generation << 8) | (std::uint64_t{static_cast<std::uint8_t>(state)} << 1) | (writing ? kSlotWriting : 0);
}
[[nodiscard]] constexpr SlotState slot_state(std::uint64_t word) noexcept { return static_cast<SlotState>((word >> 1) & 7U); }
[[nodiscard]] constexpr std::uint64_t slot_generation(std::uint64_t word) noexcept { return word >> 8; }

/// 1,024 slots of which a lane takes its own first. A set bit is a taken slot.
struct alignas(64) LiveShare {
  Word bitmap[kSlotsPerShare / 64];  // fetch_or acquire to take, fetch_and release to give back
  Word full;                         // 1: a scan found nothing; cleared by the next give-back
  Word hint;                         // bitmap word where the last slot was found; relaxed, any value is right
  Word spare[6];
};
static_assert(sizeof(LiveShare) == 192);

// Lanes ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// A ring's two published words, on a line of their own.
struct alignas(64) RingWords {
  Word head;     // number of records written; owner, release
  Word reserve;  // end of the block being written; owner, relaxed
  /// Lines of LoggingResources that this ring was given, counted even while events are off. Owner, release, after `head`: whoever
  /// reads n here (acquire) finds all n at or below the head that it reads then.
  Word log_lines;
  Word spare[5];
};

struct alignas(64) LaneHeader {
  // Ownership: CAS acquire from 0, store 0 release. Shared lanes: exchange acquire, store release.
  Word owner;  // thread id + 1 in an owned lane; 1 while busy in a shared one
  Word attached_ticks;
  Word thread_name[2];
  Word spare0[4];
  RingWords main;
  RingWords journal;
  // The operation in progress: ticks first, then the word (release). 0 = none. An operation may nest one deeper on the shared word.
  Word in_flight_ticks;
  Word in_flight;
  Word in_flight_step;  // test points only: which step was reached last
  Word spare1[5];
  Word spare2[32];
};
static_assert(sizeof(LaneHeader) == 512);

/// What every lane begins with; the rings follow at lane_main_offset and lane_journal_offset.
struct alignas(64) LaneBooks {
  LaneHeader header;
  LedgerCounters counters[kLaneLedgers];
  TagCell tags[kTagCells];
};
static_assert(sizeof(LaneBooks) == 512 + 8 * 1408 + 256 * 32);

/// One for the process: counters of ledgers from the ninth on, and of threads that own no lane. fetch_add relaxed.
struct alignas(64) OverflowBooks {
  LedgerCounters counters[kLedgerCount];
  TagCell tags[kTagCells];
};

}  // namespace headroom::flight
