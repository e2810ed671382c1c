// headroom: where the lines of LoggingResources go.
// Layer: trace
//
// A LogSink takes lines; a LogFollower (log_follower.hpp) feeds it from a thread of its own, so that a slow or failing sink costs
// the threads that allocate nothing. Here are three: RMM's CSV log in a file, a callback, and the newest lines in memory. Derive from
// LogSink for others.
//
// Ownership: sinks are shared with their followers.
// Thread safety: a follower calls its sinks one after the other, from one thread. Give a sink to one follower only, or keep the two
// apart in it, as MemorySink does; a CsvSink refuses whoever comes second. Figures may be read from any thread.
// Cost: on the follower's thread, `headroom_bench --benchmark_filter=lines` measures it; one write to the file for each batch of lines.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/error.hpp>

namespace headroom {

/// What one call of a LoggingResource came to.
struct LogLine {
  enum class Action : std::uint8_t {
    allocate,
    allocate_failure,
    free,
    free_failure,  ///< the block is still its owner's. RMM's log has no such line
  };

  Action action = Action::allocate;
  std::uint32_t log = 0;     ///< LoggingResource::number()
  std::uint32_t thread = 0;  ///< as the kernel numbers threads
  std::uint64_t time_ns =
      0;  ///< since 1970, UTC; never below that of the line before it. Follows no later change of the wall clock
  std::uint64_t pointer = 0;    ///< 0: none, as for an allocation of zero bytes or one that failed
  std::uint64_t bytes = 0;      ///< as requested; of frees 2^48 − 1 where the block said even more
  std::uint64_t alignment = 0;  ///< as requested
  std::uint64_t stream = 0;
  std::string_view tag{};             ///< the AllocTag's name; lives as long as the process
  std::optional<ErrorKind> error{};   ///< of the two failures
  std::optional<Layer> error_from{};  ///< … and who said it

  friend bool operator==(LogLine const&, LogLine const&) = default;
};

/// "allocate", "allocate failure", "free", "free failure".
[[nodiscard]] std::string_view to_string(LogLine::Action action) noexcept;

class LogSink {
public:
  LogSink() = default;
  LogSink(LogSink const&) = delete;
  LogSink& operator=(LogSink const&) = delete;
  virtual ~LogSink() = default;

  /// Takes lines, at least one, in their order; they are gone after the call. An error or an exception is counted by the follower and
  /// the lines are not offered again.
  [[nodiscard]] virtual Result<void> write(std::span<LogLine const> lines) = 0;
  /// Makes all lines visible to whoever reads them. The default has nothing to do.
  [[nodiscard]] virtual Result<void> flush();
};

/// A file in the format of RMM's logging adaptor, which TraceReader, `headroom replay` and RMM's own tools read: the header
/// `Thread,Time,Action,Pointer,Size,Stream`, then a line for each allocation, failed allocation and free. Time is UTC as
/// HH:MM:SS.micro, pointers and streams are hexadecimal, the pointer of a failed allocation is 0x0. Frees that failed are left out
/// and counted: the format has no word for them, and the block is still live.
///
/// The lines of a batch are in the file when write() returns, so that a killed program leaves all but the newest.
class CsvSink final : public LogSink {
public:
  /// Makes the file, or replaces what is there, and writes the header. An empty path: $HEADROOM_LOG_FILE.
  /// Errors: invalid_argument (neither a path nor the variable), io (with the system's reason).
  [[nodiscard]] static Result<std::shared_ptr<CsvSink>> create(std::string path);
  ~CsvSink() override;

  /// Errors: io, and invalid_argument while another thread writes. Lines that found no room while the file could not be written are dropped as a whole and counted; what stays in the
  /// buffer goes first at the next call.
  [[nodiscard]] Result<void> write(std::span<LogLine const> lines) override;
  [[nodiscard]] Result<void> flush() override;

  [[nodiscard]] std::string const& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t lines() const noexcept { return lines_.load(std::memory_order_relaxed); }  ///< taken, header apart
  [[nodiscard]] std::uint64_t failed_frees() const noexcept { return failed_frees_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

  class Key;  // only create() has one
  CsvSink(Key, std::string path, int descriptor) noexcept;

private:
  [[nodiscard]] Result<void> write_out();

  std::string path_;
  int descriptor_;
  // Who set it owns the buffer. Any caller, exchange acquire and store release, so that one owner sees what the last one left.
  std::atomic<bool> is_busy_{false};
  std::string buffer_;  // whole lines that are not in the file yet; of the first one perhaps only the rest
  // Counts: written by the buffer's owner, read by any thread; relaxed, nothing hangs on them.
  std::atomic<std::uint64_t> lines_{0};
  std::atomic<std::uint64_t> failed_frees_{0};
  std::atomic<std::uint64_t> dropped_{0};
};

class CsvSink::Key {
  friend class CsvSink;
  explicit Key() = default;
};

/// Hands lines to a function, which may allocate and free through headroom: what it does that way is logged like everything else.
class CallbackSink final : public LogSink {
public:
  explicit CallbackSink(std::function<Result<void>(std::span<LogLine const>)> callback) : callback_(std::move(callback)) {}
  /// Errors: the function's own; invalid_argument when there is no function.
  [[nodiscard]] Result<void> write(std::span<LogLine const> lines) override;

private:
  std::function<Result<void>(std::span<LogLine const>)> callback_;
};

/// Keeps the newest lines.
class MemorySink final : public LogSink {
public:
  /// `capacity`: lines kept at most; each takes about 100 bytes, once it is there.
  explicit MemorySink(std::size_t capacity) noexcept : capacity_(capacity) {}
  [[nodiscard]] Result<void> write(std::span<LogLine const> lines) override;

  [[nodiscard]] std::vector<LogLine> lines() const;      ///< a copy, oldest first
  [[nodiscard]] std::uint64_t dropped() const noexcept;  ///< older lines that made room

private:
  std::size_t capacity_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<LogLine> ring_;
  std::size_t oldest_ = 0;  // where in ring_, once it is full
  std::uint64_t dropped_ = 0;
};

}  // namespace headroom
