// headroom: work on a stream that uses memory of several streams.
// Layer: manager
//
// Memory is allocated and freed on one stream and may be used on others, if each use waits for what it must come after. A Launch
// names what one launch reads and writes, makes its stream wait before, and tells the runtime after that the use is under way, so that
// later uses and the free wait for it:
//
//   auto launch = Launch::on(runtime, stream);
//   launch.reads(weights).writes(result);
//   if (auto ready = launch.prepare(); !ready) return ready;   // from here on the stream comes after what it must
//   kernel<<<grid, block, 0, stream>>>(…);
//   return launch.finish();                                    // from here on others come after the kernel
//
// A launch that was prepared and is dropped without finish() may have been enqueued or not. Its uses are recorded as if it was, so
// that no memory is given away under a running kernel; it is counted, and standard error names where it was made (the first ten).
//
// Ownership: a launch names buffers, it does not hold them: they must live until finish(). Move-only.
// Thread safety: a launch belongs to one thread at a time; launches of one runtime may be made on any threads at once.
// Cost: one heap allocation, and per buffer what the resource needs to keep order; nothing when all is on one stream.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <vector>

#include <headroom/buffer.hpp>
#include <headroom/device.hpp>
#include <headroom/error.hpp>
#include <headroom/runtime.hpp>

namespace headroom {

class Launch {
public:
  /// A launch to be made on `stream` of the runtime's device. The stream is judged by prepare().
  [[nodiscard]] static Launch on(DeviceRuntime runtime, StreamId stream,
                                 std::source_location const& site = std::source_location::current()) noexcept;

  Launch(Launch&& other) noexcept;
  Launch& operator=(Launch&& other) noexcept;
  Launch(Launch const&) = delete;
  Launch& operator=(Launch const&) = delete;
  ~Launch();

  /// Names what the launch reads, or reads and writes. Named twice, a buffer counts once, as written if one of them says so. What is
  /// wrong with a buffer (wrong_owner: not of this runtime; invalid_argument: named after prepare) comes out of prepare or finish.
  template <DeviceRepr T>
  Launch& reads(TrackedBuffer<T> const& buffer) noexcept {
    return name(manager::AllocationAccess::of(buffer), UseKind::read);
  }
  template <DeviceRepr T>
  Launch& writes(TrackedBuffer<T> const& buffer) noexcept {
    return name(manager::AllocationAccess::of(buffer), UseKind::write);
  }
  Launch& reads(RuntimeAllocBlock const& block) noexcept { return name(manager::AllocationAccess::of(block), UseKind::read); }
  Launch& writes(RuntimeAllocBlock const& block) noexcept { return name(manager::AllocationAccess::of(block), UseKind::write); }

  /// Before the launch: its stream waits, on the device, for what the uses must come after. After an error the launch must not be
  /// made; the call may be repeated. Errors: wrong_owner, invalid_argument (nothing named, prepared before, moved from), unsupported
  /// (the runtime tracks no uses), and what the resource says (stream_misuse, use_after_free, driver, …).
  [[nodiscard]] Result<void> prepare();

  /// After the launch was enqueued. Errors: invalid_argument (not prepared, finished before, or a buffer was named too late: its use
  /// is recorded all the same), and what the resource says; then the uses that failed are still open, and the call may be repeated.
  [[nodiscard]] Result<void> finish();

  /// Launches of this process that were prepared and dropped without finish. One whose finish failed is none of them: its caller knows.
  [[nodiscard]] static std::uint64_t unfinished_launches() noexcept;

private:
  enum class Phase : std::uint8_t { naming, prepared, finish_failed, finished, moved_from };
  struct Use {
    Block block;
    UseKind kind;
  };
  Launch(DeviceRuntime runtime, StreamId stream, std::source_location const& site) noexcept;
  Launch& name(manager::Allocation const& allocation, UseKind kind) noexcept;
  void note(Error error) noexcept;
  [[nodiscard]] Result<void> finish_open_uses() noexcept;
  void abandon() noexcept;

  std::optional<DeviceRuntime> runtime_;  // absent: moved from
  StreamId stream_;
  std::source_location site_;
  std::vector<Use> uses_;       // once prepared: those not yet finished
  std::optional<Error> wrong_;  // the first thing wrong with what was named
  bool named_ = false;          // also by an empty buffer, which needs no order
  Phase phase_ = Phase::naming;
};

}  // namespace headroom
