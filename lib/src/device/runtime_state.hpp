// headroom: what the handles of one runtime share: its stack and its streams.
//
// A stream is idle in the pool, leased, or being made. A place under the cap is reserved before the resource is asked for a stream
// and given back when it refuses, so that threads at the cap cannot make one too many while no lock is held over the call.
//
// Ownership: shared by runtime handles and leases; the last of them destroys the streams, then lets go of stack and device.
// Thread safety: every member may be called from any thread. The lock guards a vector and two numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <headroom/device.hpp>

namespace headroom::device {

class RuntimeState {
public:
  RuntimeState(Device device, std::shared_ptr<DeviceResource> stack, std::uint32_t max_streams);
  RuntimeState(RuntimeState const&) = delete;
  RuntimeState& operator=(RuntimeState const&) = delete;
  /// Destroys all streams. Those that the resource refuses to end stay with it: a destructor has nobody to tell.
  ~RuntimeState();

  [[nodiscard]] Device const& device() const noexcept { return parts_->device; }
  [[nodiscard]] std::shared_ptr<DeviceResource> const& stack() const noexcept { return parts_->stack; }
  [[nodiscard]] std::uint32_t max_streams() const noexcept { return max_streams_; }
  [[nodiscard]] std::uint32_t streams_in_use() const noexcept;

  [[nodiscard]] Result<StreamId> acquire();
  void give_back(StreamId stream) noexcept;

private:
  [[nodiscard]] Result<StreamId> make_stream() const;
  [[nodiscard]] tl::unexpected<Error> all_in_use() const;

  struct Parts {
    Device device;
    std::shared_ptr<DeviceResource> stack;
  };
  std::unique_ptr<Parts> parts_;
  std::uint32_t const max_streams_;
  mutable std::mutex mutex_;    // guards what follows
  std::vector<StreamId> idle_;  // the last to come back is the first to go out; room for all that were made
  std::uint32_t made_ = 0;      // idle, leased, or being made
  std::uint32_t in_use_ = 0;    // leased, or being made
};

}  // namespace headroom::device
