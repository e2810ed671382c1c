// headroom: recorded allocation histories.
// Layer: trace
//
// TraceReader streams the CSV that RMM's logging adaptor writes (other recorders imitate it): one line for every allocation,
// failed allocation and free of a program that ran before. Use it to replay, summarise or check a history; use summarize_trace()
// if you only want the figures.
//
// What it reads: the header line `Thread,Time,Action,Pointer,Size,Stream`, then records of these six columns.
//   Thread   a number, decimal or 0x-hexadecimal
//   Time     microseconds since the start, or a time of day as HH:MM:SS.micro or (older) HH:MM:SS:micro
//   Action   allocate | allocate failure | free
//   Pointer  0x-hexadecimal, (nil) or 0
//   Size     bytes, decimal
//   Stream   decimal, 0x-hexadecimal or (nil)
// Or a memory snapshot of PyTorch (torch_snapshot.hpp says which, and how its entries become records), as a pickle of protocol 2 to 5.
// Plain, .xz or .gz, told apart by content and never by name. Line ends of Windows, empty lines and a last line without line end
// are fine. Whatever else is wrong ends the reading with an error that names the file, the line, the value and what was expected.
//
// A snapshot is read three times, from a regular file again and again, of a pipe from a copy in a temporary file without a name (in
// TMPDIR, /var/tmp or /tmp). The first two passes are part of opening it, so that what is wrong with it is an error of open().
//
// Ownership: a reader owns its file, but for one that was resumed. Thread safety: one thread at a time. Cost: of a CSV buffers of fixed
// size (about 1.2 MiB, plus what xz needs, at most 256 MiB) however long the history is, and tens of nanoseconds for a record of a plain
// file; of a snapshot about a microsecond for an entry, and memory for what is live, the state at its end, what later entries share
// (names, stacks), up to 128 bytes for each different address, some bits for each container, and up to 64 MiB of counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/error.hpp>

namespace headroom {

/// One record of a history.
struct TraceEvent {
  enum class Action : std::uint8_t { allocate, allocate_failure, free };

  Action action = Action::allocate;
  std::uint32_t thread = 0;   ///< dense, in order of first appearance; TraceReader::thread_ids() has the recorded numbers
  std::uint64_t time_us = 0;  ///< as recorded; times of day count from the first day's midnight and go on past 24 hours
  std::uint64_t pointer = 0;  ///< 0 = null
  std::uint64_t bytes = 0;
  std::uint64_t stream = 0;
  std::uint64_t line = 0;    ///< of a CSV: in the (decompressed) file, 1 = the header. Of a snapshot: the entry's place among its
                             ///< device's entries, from 1; 0 = live before the first
  std::uint32_t device = 0;  ///< index of the device; of a CSV 0
  std::uint32_t tag = 0;     ///< TraceReader::name_of(); 0 = none
  std::uint32_t site = 0;    ///< … of who allocates; 0 = unknown, as it is for frees
  bool from_before = false;  ///< an allocation from before the history began: its time is that of the device's first entry

  friend bool operator==(TraceEvent const&, TraceEvent const&) = default;
};

[[nodiscard]] std::string_view to_string(TraceEvent::Action action) noexcept;

/// How the bytes of a history were packed.
enum class TraceCompression : std::uint8_t { none, xz, gzip };

[[nodiscard]] std::string_view to_string(TraceCompression compression) noexcept;

enum class TraceFormat : std::uint8_t { rmm_csv, torch_snapshot };

/// What one record is called in messages: "line" or "entry".
[[nodiscard]] std::string_view record_word(TraceFormat format) noexcept;

/// Where a record stands, for the beginning of a message: "NAME:12" of a CSV, "NAME: device 0, entry 12" of a snapshot, and
/// "NAME: device 0, before entry 1" of what was live before.
[[nodiscard]] std::string record_place(std::string_view name, TraceFormat format, std::uint32_t device, std::uint64_t line);

struct TorchSnapshot;  // torch_snapshot.hpp
namespace trace {
class RecordReader;
}

class TraceReader {
public:
  /// Longest line, in bytes without its line end.
  static constexpr std::size_t kMaxLineBytes = std::size_t{64} * 1024;
  /// Most different threads of one history.
  static constexpr std::size_t kMaxThreads = std::size_t{1} << 20U;
  /// Devices have numbers below this.
  static constexpr std::uint32_t kMaxDevices = 4096;

  /// Opens a history and reads its header; `-` is standard input. Blocks until the header has arrived.
  /// Errors: io (cannot be opened or read; with the system's reason; a snapshot from a pipe cannot be copied), parse (empty, unknown kind,
  /// no header, broken compression, whatever is wrong with a snapshot).
  [[nodiscard]] static Result<TraceReader> open(std::string path);

  /// Most bytes that may have been read before resume().
  static constexpr std::size_t kMaxFirstBytes = 64;
  /// Reads on from a descriptor of which `first_bytes` were taken already, to see what it holds; a pipe cannot be rewound. The
  /// descriptor stays the caller's, and open as long as the reader reads. `name` is what messages call it. Of a regular file the history
  /// begins at its position less these bytes.
  /// Errors: as open(), and invalid_argument (more than kMaxFirstBytes).
  [[nodiscard]] static Result<TraceReader> resume(int descriptor, std::string_view first_bytes, std::string name);

  TraceReader(TraceReader&&) noexcept;
  TraceReader& operator=(TraceReader&&) noexcept;
  ~TraceReader();

  /// The next records in the order of the file, at least one; none = the history is over. The records stay valid until the next
  /// call. Records before a bad line are delivered first, and the error of the bad line is then the answer to every later call.
  /// Errors: parse (a bad line, broken compression), io (reading failed).
  [[nodiscard]] Result<std::span<TraceEvent const>> next_batch();

  /// One record at a time; false = the history is over. May be mixed with next_batch(). Errors as above.
  [[nodiscard]] Result<bool> next(TraceEvent& event);

  [[nodiscard]] TraceFormat format() const noexcept;
  /// Devices that have records, smallest first; of a CSV always {0}; after only_device() that one. Each device's records come in their
  /// order, device after device.
  [[nodiscard]] std::span<std::uint32_t const> devices() const noexcept;
  /// Delivers the records of one device only. To be called before the first record is read.
  /// Errors: invalid_argument (no such device among devices(); with those that there are).
  [[nodiscard]] Result<void> only_device(std::uint32_t device);
  /// The text of TraceEvent::tag and TraceEvent::site: "" for 0. A site is "file.py:12 function", the innermost frame. Valid as long as
  /// the reader. Grows while the history is read.
  [[nodiscard]] std::string_view name_of(std::uint32_t id) const noexcept;
  /// The whole stack of a site, outermost frame first and the site itself last, as "function;function;function" does for flame graphs,
  /// each frame written as a site is, with ';' in them replaced by ':'. Of a CSV "".
  [[nodiscard]] std::string stack_of(std::uint32_t site) const;
  /// The state at the end that a snapshot has besides its history; null for a CSV.
  [[nodiscard]] TorchSnapshot const* snapshot() const noexcept;

  /// The path as opened, "standard input", or the name given to resume().
  [[nodiscard]] std::string const& name() const noexcept;
  [[nodiscard]] TraceCompression compression() const noexcept;
  /// Thread numbers as recorded, by TraceEvent::thread. Grows while the history is read.
  [[nodiscard]] std::span<std::uint64_t const> thread_ids() const noexcept;

private:
  explicit TraceReader(std::unique_ptr<trace::RecordReader> reader) noexcept;
  std::unique_ptr<trace::RecordReader> reader_;
};

/// What a history adds up to. Sizes in bytes, as recorded.
///
/// The history is believed as far as possible, and what cannot be matched is counted, never fatal:
/// * a free of an address that is not live changes no sum (the allocation is from before the recording);
/// * an allocation at a live address keeps both: RMM's log writes a free after it happened, so that another thread's allocation
///   of the same address may stand before it. The free that follows takes the oldest block of its size there, or the oldest.
///   If the free in between was truly lost, its bytes stay live to the end, and `duplicate_allocations` says why;
/// * a free with another size than its allocation gives back what was allocated;
/// * 0 bytes at the null pointer hold nothing: their allocations and frees are counted, and never live or unmatched.
/// Classes of sizes: below 1 MiB, up to 32 MiB, above. What replays tag by, and what is known of who held what in a history.
inline constexpr std::array<std::string_view, 3> kSizeClasses{"<1MiB", "1-32MiB", ">32MiB"};
[[nodiscard]] constexpr std::size_t size_class(std::uint64_t bytes) noexcept {
  return bytes < std::uint64_t{1} << 20U ? 0 : bytes <= std::uint64_t{32} << 20U ? 1 : 2;
}
struct SizeClassSum {
  std::uint64_t bytes = 0;
  std::uint64_t allocations = 0;
  friend bool operator==(SizeClassSum const&, SizeClassSum const&) = default;
};

/// One device's part of a summary.
struct DeviceSum {
  std::uint32_t device = 0;
  std::uint64_t allocations = 0;
  std::uint64_t frees = 0;
  std::uint64_t trace_failures = 0;
  std::uint64_t from_before_allocations = 0;
  std::uint64_t from_before_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t live_bytes = 0;        ///< at the end
  std::uint64_t live_allocations = 0;  ///< at the end

  friend bool operator==(DeviceSum const&, DeviceSum const&) = default;
};

/// Live bytes and peaks include what is from before. Of several devices every figure is the sum of theirs, the peak too, although they
/// need not have had it at the same time: so much memory was needed, each device by itself.
struct TraceSummary {
  std::uint64_t events = 0;                 ///< records of the history: without those from before
  std::uint64_t allocations = 0;            ///< likewise
  std::uint64_t frees = 0;                  ///< all of them, the unmatched ones too
  std::uint64_t trace_failures = 0;         ///< `allocate failure` records
  std::uint64_t unmatched_frees = 0;        ///< … of an address that is not live
  std::uint64_t duplicate_allocations = 0;  ///< … at an address that is live
  std::uint64_t size_mismatches = 0;        ///< frees with another size than their allocation
  std::uint64_t peak_bytes = 0;             ///< most bytes live at once
  std::uint64_t live_bytes = 0;             ///< at the end
  std::uint64_t live_allocations = 0;       ///< at the end
  std::uint64_t threads = 0;
  std::uint64_t first_time_us = 0;                          ///< smallest time of a record, 0 without records
  std::uint64_t last_time_us = 0;                           ///< largest
  std::array<SizeClassSum, kSizeClasses.size()> at_peak{};  ///< by size_class: who held the peak, when it was first reached
  std::uint64_t from_before_allocations = 0;                ///< live before the first record
  std::uint64_t from_before_bytes = 0;
  std::vector<DeviceSum> devices{};  ///< by number, those with records

  friend bool operator==(TraceSummary const&, TraceSummary const&) = default;
};

/// Reads the rest of a history and adds it up, each device by itself. Memory: proportional to the live allocations.
/// Errors: those of TraceReader::next_batch, and overflow (live bytes or a sum of peaks above 2^64 − 1, with the record's place).
[[nodiscard]] Result<TraceSummary> summarize_trace(TraceReader& reader);

/// Opens `path`, then as above.
[[nodiscard]] Result<TraceSummary> summarize_trace(std::string path);

}  // namespace headroom
