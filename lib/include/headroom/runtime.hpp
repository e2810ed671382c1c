// headroom: a device at run time: its resource stack, a pool of streams, and order between streams.
// Layer: device
//
// Attach one to a manager (GpuMemoryManager::with_runtime) when a budget must hold for the whole device, when work on several
// streams shares memory, or when raw blocks are wanted. Without a runtime a manager asks its device's own resource.
//
//   DeviceRuntime ─▶ stack:  GlobalDeviceBudget ─▶ LoggingResource ─▶ the device's resource
//
// A stream from the pool is ordered after the work that its last holder left on it. Work on one stream is ordered by itself; for
// memory that is used on several, declare each use on the stack (DeviceResource::prepare_use before the launch, finish_use after
// it): then the device waits where it must, and the free comes after all of them. An undeclared use on another stream than the
// block's own is waited for by nobody, and the block may be handed out anew while the use still runs.
//
// In a forked child device and streams are the parent's: calls are refused as `unsupported`, leases and handles just vanish.
//
// Ownership: a cheap handle; copies share one runtime, which keeps its stack alive. Streams go back to the pool with their lease;
// leases keep the runtime alive, and its streams are destroyed with the last of both. Blocks keep nothing alive: free them first.
// Thread safety: every member may be called from any thread. No lock is held over a call into the stack.
// Cost: a lease that reuses a stream takes one uncontended lock, as does giving it back; the handle is one shared pointer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <headroom/device.hpp>
#include <headroom/error.hpp>

namespace headroom {

struct RuntimeOptions {
  std::shared_ptr<DeviceResource> stack{};  ///< null: the device's own resource
  std::uint32_t max_streams = 32;           ///< streams that the pool makes at most; 0 = none
};

namespace device {
class RuntimeState;
}  // namespace device

/// A stream of a runtime's pool, given back when it is destroyed. Move-only.
class StreamLease {
public:
  StreamLease() noexcept = default;
  StreamLease(StreamLease&& other) noexcept;
  StreamLease& operator=(StreamLease&& other) noexcept;
  StreamLease(StreamLease const&) = delete;
  StreamLease& operator=(StreamLease const&) = delete;
  ~StreamLease();
  /// The stream; the default stream when empty or moved from: ask `empty` where that matters.
  [[nodiscard]] StreamId id() const noexcept { return stream_; }
  [[nodiscard]] bool empty() const noexcept { return state_ == nullptr; }

private:
  friend class DeviceRuntime;
  StreamLease(std::shared_ptr<device::RuntimeState> state, StreamId stream) noexcept;
  std::shared_ptr<device::RuntimeState> state_;
  StreamId stream_{};
};

class DeviceRuntime {
public:
  /// The stack ends in the same physical device as device's own resource when both have the same device_uuid, or, where one has
  /// none, when both are the same object. Errors: invalid_argument (another device, or a stack without an end), unsupported (in a
  /// forked child), io (no memory for the books).
  [[nodiscard]] static Result<DeviceRuntime> create(Device device, RuntimeOptions options = {});

  [[nodiscard]] Device const& device() const noexcept;
  [[nodiscard]] DeviceResource& stack() const noexcept;
  [[nodiscard]] std::shared_ptr<DeviceResource> const& shared_stack() const noexcept;
  [[nodiscard]] bool tracks_uses() const noexcept;
  /// The finite budget of the stack; absent when it has none, and then nothing can be reserved.
  [[nodiscard]] std::optional<BudgetSnapshot> budget_snapshot() const noexcept;

  /// A stream nobody else holds: the one that came back last, or a new one. Errors: stream_misuse (max_streams are out, or the
  /// resource gave the default stream: there is no silent fall back to it), and what the resource says.
  [[nodiscard]] Result<StreamLease> acquire_stream();
  [[nodiscard]] std::uint32_t streams_in_use() const noexcept;  ///< leased, and being made; 0 in a forked child
  [[nodiscard]] std::uint32_t max_streams() const noexcept;
  /// Waits for all work on the stream. Errors: as DeviceResource::synchronize_stream.
  [[nodiscard]] Result<void> synchronize(StreamId stream);
  /// Finishes stream-ordered frees; returns the bytes that came back.
  [[nodiscard]] Result<std::uint64_t> reap_pending(ReapMode mode = ReapMode::synchronize);

  /// Same runtime (not merely one of the same device).
  friend bool operator==(DeviceRuntime const& a, DeviceRuntime const& b) noexcept { return a.state_ == b.state_; }

private:
  explicit DeviceRuntime(std::shared_ptr<device::RuntimeState> state) noexcept;
  std::shared_ptr<device::RuntimeState> state_;
};

}  // namespace headroom
