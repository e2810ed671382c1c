// headroom: the events of a flight file, part of its ABI (flight_format.hpp).
// Layer: flight
//
// An event is one cache line of eight words, a refusal or the end of a hook's run two. What the words of each kind mean stands beside
// its number below; where the fields of a word lie, in the pictures.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace headroom::flight {

/// A word shared with readers. Same size and layout as a plain 64-bit integer.
using Word = std::atomic<std::uint64_t>;
static_assert(sizeof(Word) == 8 && alignof(Word) == 8 && Word::is_always_lock_free);

/// Kinds 1–15 live in the main ring, all others in the journal, so that a flood of allocations never washes away the reasons.
enum class EventKind : std::uint8_t {
  none = 0,
  allocate = 1,  ///< main. word 2 address, 3 bytes·alignment, 4 alloc word after, flag peak when it raised the peak
  free = 2,      ///< main. as allocate
  // Lines of a LoggingResource: what passed through one layer of a resource stack. They are about no ledger and change no books; the
  // same block may have a record of its ledger too. Words 5 and 6 are their own: see the drawing.
  resource_allocate = 3,  ///< main. word 1 when it was delivered, 2 address, 3 bytes·alignment, 4 stream, 5 and 6 as drawn
  resource_free = 4,   ///< main. as resource_allocate, but word 1 is when the free was asked for: nobody had the address before
  refusal = 16,        ///< journal, 2 records. word 5 result = kind and layer; second record: see RefusalTail
  free_failed = 17,    ///< journal. word 2 address, 3 bytes, 4 alloc word, 5 result; word 6 site
  peak = 18,           ///< journal. word 4 alloc word at the new peak; written when it moved by 1/256 of the budget or 1 MiB
  pressure = 19,       ///< journal. word 2 from (8) · to (8) · sequence (48), 3 claimed bytes, 4 limit word
  hook_begin = 20,     ///< journal. word 2 shortfall, 3 estimate, 4 headroom before, 5 hook and ledger, 6 requested
  hook_end = 21,       ///< journal, 2 records, flags threw and overran. See HookEnd and HookEndTail
  hook_skip = 22,      ///< journal. word 2 shortfall, 3 overhead, 4 headroom, 5 hook and ledger, 6 HookSkip
  budget = 23,         ///< journal. word 2 limit word before, 3 limit word after, 4 claim word
  reserve = 24,        ///< journal. word 3 bytes, 4 claim word
  reserve_drop = 25,   ///< journal. word 3 bytes given back, 4 claim word
  policy = 26,         ///< journal. word 2 PolicyStep (8) · OomPolicy (8), 3 full ns, 4 bytes; see PolicyStep
  thread_attach = 27,  ///< journal. word 2 and 3 the thread's name (16 bytes, zero padded)
  thread_detach = 28,  ///< journal.
  mark = 29,           ///< journal. word 2 value, word 6 label (directory id)
  write_off = 30,      ///< journal. as free_failed; the bytes went back to the budget without the driver
  observed = 31,       ///< journal, 2 records. as refusal, but an observing budget let the request pass
  resource_refusal = 32,      ///< journal. as resource_allocate, but word 2 is the bytes requested, whole; word 5 has the result
  resource_free_failed = 33,  ///< journal. as resource_free; word 5 has the result, and the block is still its owner's
  // Since minor version 2: word 2 bytes that a cache gave back, 3 bytes·alignment of the request that was short, 4 alloc word.
  trim = 34,  ///< journal
  /// journal, from minor 2, once for each run of a hook that is longer than its limit, by the first thread that notices. Word 2 limit
  /// in ns, 3 ns so far, 4 ticks at its begin, 5 hook and ledger, 6 thread that runs it (word 7 has the one that noticed).
  hook_overrun = 35,
};

/// What a guard did about a shortage (word 2 of a policy record, bits 0–7; bits 8–15 are the policy: 0 fail, 1 retry after free, 2 wait
/// and retry, 3 checkpoint and fail). Word 3 is how long it took, word 4 the bytes named here, word 5 ledger, tag and result: the
/// refusal that it was about, or what came of it.
enum class PolicyStep : std::uint8_t {
  none = 0,
  retried = 1,            ///< after pending frees were reaped and caches trimmed; bytes: what came back by that
  waited = 2,             ///< until it was granted, or gave up; bytes: requested
  reservation_given = 3,  ///< the sentinel was released; bytes: its size
  checkpoint = 4,         ///< the callback ran; bytes: requested
  checkpoint_shared = 5,  ///< a run of the callback for another thread's failure stood for this one's
  checkpoint_failed = 6,  ///< it threw
  recovered = 7,          ///< the request was granted after all; bytes: requested
  gave_up = 8,            ///< it failed for good; bytes: requested
  /// What may take long begins now, and has a record of its own once it is over; bytes: requested. Word 2, bits 16–23: what begins:
  /// `waited`, `checkpoint` (whoever runs it), or `none` for a wait for another thread's run of a hook.
  begun = 9,
};
inline constexpr std::size_t kPolicyStepCount = 10;
inline constexpr std::size_t kOomPolicyCount = 4;

//   word 0   63 … 56  55 … 48  47                               0
//            │ kind   │ flags  │ record number                  │   stored last; kind is never 0
//   word 3   63 … 62  61 … 54  53 … 48  47                      0
//            │ spare  │ 0      │ log2 al│ bytes requested       │   saturating, flag `bytes_saturated`
//   word 5   63 … 56  55 … 52  51 … 40  39 … 28  27 … 16  15    0
//            │ spare  │ press. │ result │ hook   │ ledger │ tag │   result: 0 = good, else (kind + 1) · 64 + layer
//   word 7   63               32 31                             0
//            │ duration in ns   │ thread id                      │   saturating, flag `duration_saturated`
//
// Of a LoggingResource's lines (kinds resource_…; their duration is 0):
//   word 5   63 … 52  51 … 40  39                 16 15         0
//            │ spare  │ result │ log                │ tag        │   log: number of the LoggingResource in its process, from 1; the
//                                                                    directory entry of kind `log` with that number has its name
//                                                                    tag: the number of an AllocTag in its process, no directory id
//   word 6   63               32 31                             0
//            │ of its log       │ of all logs                    │   how many lines this ring got before it, modulo 2^32: a gap in
//                                                                    the numbers is the exact number of lines that a reader lost

inline constexpr std::uint64_t kFlagPeak = std::uint64_t{1} << 48;
inline constexpr std::uint64_t kFlagContinues = std::uint64_t{1} << 49;  ///< second half of the record before it
inline constexpr std::uint64_t kFlagBytesSaturated = std::uint64_t{1} << 50;
inline constexpr std::uint64_t kFlagDurationSaturated = std::uint64_t{1} << 51;
inline constexpr std::uint64_t kFlagUntracked = std::uint64_t{1} << 52;    ///< the live table was full
inline constexpr std::uint64_t kFlagHookThrew = std::uint64_t{1} << 53;    ///< the hook ended by an exception
inline constexpr std::uint64_t kFlagHookOverran = std::uint64_t{1} << 54;  ///< the hook ran for longer than its limit
inline constexpr std::uint64_t kRecordNumberMask = (std::uint64_t{1} << 48) - 1;
inline constexpr std::uint64_t kRequestedMask = (std::uint64_t{1} << 48) - 1;

inline constexpr unsigned kLogShift = 16;
inline constexpr std::uint64_t kLogMask = 0xFF'FFFF;  ///< after the shift

inline constexpr std::size_t kRecordWords = 8;
/// One event: one cache line. Written by the lane's owner, words 1…7 and then 0, each release; read with acquire.
struct alignas(64) Record {
  Word words[kRecordWords];
};

/// Second half of a refusal (flag `continues`): word 1 ticks, and
///   2 claimed bytes, 3 limit word, 4 peak word, 5 device free + 1, 6 unspent bytes, 7 device code (32) · thread id (32).
struct RefusalTail {
  static constexpr std::size_t kClaimed = 2, kLimit = 3, kPeak = 4, kDeviceFree = 5, kUnspent = 6, kCode = 7;
};

/// A hook's run that ended: word 1 ticks, word 5 hook and ledger, and
///   2 bytes that the hook reported, 3 the run's whole ns, 4 bytes freed to the ledger on the hook's thread.
struct HookEnd {
  static constexpr std::size_t kReported = 2, kNs = 3, kFreed = 4;
};
/// Second half (flag `continues`): word 1 ticks, and
///   2 by how much the ledger's claimed bytes fell during the run, in two's complement, 3 estimate, 4 requested, 5 shortfall,
///   6 the hook's limit in ns.
struct HookEndTail {
  static constexpr std::size_t kLedgerFell = 2, kEstimate = 3, kRequested = 4, kShortfall = 5, kLimitNs = 6;
};
/// Why a hook did not run on the thread that asked for it (word 6 of hook_skip). For `elsewhere` the hook's cell counts no skip.
enum class HookSkip : std::uint64_t {
  large = 1,      ///< its overhead is above the headroom
  busy = 2,       ///< it was running on another thread, and was still when the wait for it ended; word 7: how long that took
  elsewhere = 3,  ///< it was running on another thread, and that run, which was waited for, stood for this thread's; as `busy`
};

}  // namespace headroom::flight
