// headroom: recorded histories, replayed through a manager.
// Layer: trace
//
// Does this job fit this budget, and what would be refused? TraceHistory loads a history once and finds out which free belongs to
// which allocation; replay() then drives it through a GpuMemoryManager, as often as wanted, without looking anything up.
//
// What a replay does with each record:
//   allocate          is requested; what is refused is counted, and its free is skipped later
//   free              gives back what its allocation was granted; a free of an address with nothing live there is only counted
//   allocate failure  is only counted: the request was refused back then, it holds nothing
// Two blocks recorded at one address are both kept; TraceSummary says how a free chooses among them.
// What a history has from before its first record is requested first, like any other allocation, and refused like any other: a budget
// that it does not fit is too small for the program.
//
// A replay is of one device. Of a history of several, TraceReader::only_device() chooses.
//
// Thread safety: a TraceHistory may be replayed from several threads at once, into different managers. replay() blocks.
// Cost: loading keeps 32 bytes for each record, 36 where the history records tags; replaying adds about 10 ns a record to what manager and device take, and in file
// order one hand-over (some microseconds) wherever the recorded thread changes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/device.hpp>
#include <headroom/error.hpp>
#include <headroom/guard.hpp>
#include <headroom/manager.hpp>
#include <headroom/trace.hpp>

namespace headroom {

/// What allocations are tagged by. Size classes: `<1MiB`, `1-32MiB` (both ends belong to it), `>32MiB`. `recorded`: the tags that stand in
/// the history, which a snapshot of PyTorch may have (TraceEvent::tag); what has none there has the default tag.
enum class ReplayTags : std::uint8_t { size, thread, stream, none, recorded };

enum class ReplayOrder : std::uint8_t {
  file,  ///< exactly as recorded: each recorded thread is a thread that waits for its turn, so every figure is exact
  free,  ///< each thread runs on its own; kept are only its own order, and that an allocation precedes its free
};

[[nodiscard]] std::string_view to_string(ReplayTags tags) noexcept;
[[nodiscard]] std::string_view to_string(ReplayOrder order) noexcept;

/// What one tag holds at the peak of a history.
struct TraceHolder {
  std::string tag;
  std::uint64_t bytes = 0;
  std::uint64_t allocations = 0;
};

/// A loaded history. A cheap handle; copies share the records.
class TraceHistory {
public:
  /// Reads the rest of `reader`. Errors: those of TraceReader, overflow (2^32 − 1 records or more), and invalid_argument (records of
  /// several devices, of which none was chosen; with the devices).
  [[nodiscard]] static Result<TraceHistory> load(TraceReader& reader);
  /// Opens `path` (`-`: standard input), then as above.
  [[nodiscard]] static Result<TraceHistory> load(std::string path);

  [[nodiscard]] std::string const& name() const noexcept;                ///< the path as opened
  [[nodiscard]] std::size_t events() const noexcept;                     ///< records, failures and those from before among them
  [[nodiscard]] TraceFormat format() const noexcept;                     ///< what its records are called: record_word()
  [[nodiscard]] std::optional<std::uint32_t> device() const noexcept;    ///< of the records; absent: there are none. Of a CSV 0
  [[nodiscard]] std::uint64_t from_before_allocations() const noexcept;  ///< which are the first of its records
  /// What tells its allocations apart best: `recorded` where a record has a tag, else `size`.
  [[nodiscard]] ReplayTags default_tags() const noexcept;
  [[nodiscard]] std::span<std::uint64_t const> thread_ids() const noexcept;  ///< as recorded, in order of first appearance
  [[nodiscard]] std::span<std::uint64_t const> stream_ids() const noexcept;  ///< likewise
  [[nodiscard]] std::chrono::microseconds duration() const noexcept;         ///< from the first record to the last
  /// Who holds what when most is live and nothing is refused, largest first; tags that hold nothing then are left out.
  [[nodiscard]] std::vector<TraceHolder> holders_at_peak(ReplayTags tags) const;
  /// The same for the end of the history: what was never freed.
  [[nodiscard]] std::vector<TraceHolder> holders_at_end(ReplayTags tags) const;

  struct Data;
  [[nodiscard]] Data const& data() const noexcept { return *data_; }

private:
  explicit TraceHistory(std::shared_ptr<Data const> data) noexcept;
  std::shared_ptr<Data const> data_;
};

/// How far a replay is, for whoever watches it from another thread. Written relaxed by the replay, to be read relaxed.
struct ReplayProgress {
  std::atomic<std::uint64_t> events{0};  ///< applied, over all loops
  std::atomic<std::uint64_t> loops{0};   ///< completed
};

inline constexpr std::uint64_t kReplayForever = UINT64_MAX;

struct ReplayOptions {
  ReplayOrder order = ReplayOrder::file;
  ReplayTags tags = ReplayTags::size;
  std::optional<double> speed;  ///< 1 = as recorded, 0.1 = ten times slower; absent = as fast as it goes. Must be above 0
  std::optional<std::chrono::nanoseconds> stretch;  ///< one loop takes this long; wins over speed
  std::uint64_t loops = 1;
  std::optional<std::uint64_t> stop_after;  ///< ends after so many records, over all loops; what is live then stays live
  std::vector<StreamId> streams;            ///< the device's stream for each of stream_ids(); missing ones are the default stream
  /// Requests go through its hooked door, and what it does about shortages is part of the replay. Of the manager that is replayed
  /// through; absent: requests go to the manager itself.
  std::optional<MemoryGuard> guard{};
  std::atomic<bool> const* stop = nullptr;  ///< true ends the replay soon; may be set by a signal handler
  ReplayProgress* progress = nullptr;
};

/// What came of a replay. All figures but loop_frees, loops and refused_in_all_loops are those of the last loop.
struct ReplayFigures {
  std::uint64_t allocations = 0;  ///< granted
  std::uint64_t frees = 0;        ///< carried out; the frees of refused allocations and unmatched frees are not among them
  std::uint64_t trace_failures = 0;
  std::uint64_t refused = 0;  ///< allocations that failed, whatever layer said no
  std::uint64_t unmatched_frees = 0;
  std::uint64_t failed_frees = 0;  ///< frees that the device refused
  std::uint64_t peak_bytes = 0;
  std::uint64_t live_bytes = 0;  ///< at the end
  std::uint64_t live_allocations = 0;
  std::uint64_t claimed_bytes = 0;
  std::optional<std::uint64_t> budget_bytes;  ///< absent: unlimited
  double elapsed_seconds = 0;
  std::uint64_t loop_frees = 0;  ///< what was live at the end of loops and freed before the next one
  std::uint64_t loops = 0;       ///< completed
  std::uint64_t refused_in_all_loops = 0;
};

struct ReplayRefusal {
  std::uint64_t line = 0;  ///< as TraceEvent::line
  std::uint64_t bytes = 0;
  Error error;
};

/// Figures, and the allocations that are live at the end: they are freed with this object.
class ReplayResult {
public:
  struct LiveSet;
  ReplayResult(ReplayFigures figures, std::optional<ReplayRefusal> first_refusal, std::unique_ptr<LiveSet> live) noexcept;
  ReplayResult(ReplayResult&&) noexcept;
  ReplayResult& operator=(ReplayResult&&) noexcept;
  ~ReplayResult();

  [[nodiscard]] ReplayFigures const& figures() const noexcept { return figures_; }
  [[nodiscard]] std::optional<ReplayRefusal> const& first_refusal() const noexcept { return first_refusal_; }

private:
  ReplayFigures figures_;
  std::optional<ReplayRefusal> first_refusal_;
  std::unique_ptr<LiveSet> live_;
};

/// Most recorded threads that a replay runs as threads.
inline constexpr std::size_t kMaxReplayThreads = 1024;

/// Replays `history` through `manager`, which nobody else should use meanwhile: peak and live figures are the manager's. One
/// recorded thread runs in the calling thread. Errors: invalid_argument (speed, stretch or loops of nothing, a guard of another
/// manager), unsupported (more than kMaxReplayThreads recorded threads), io (a thread cannot be started). Refusals are figures, not
/// errors.
[[nodiscard]] Result<ReplayResult> replay(TraceHistory const& history, GpuMemoryManager manager, ReplayOptions const& options);

}  // namespace headroom
