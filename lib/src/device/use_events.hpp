// headroom: the event operations of a device, as far as the tracking of uses needs them.
//
// On CUDA: record = cudaEventRecord on an event from a pool, wait = cudaStreamWaitEvent, done = cudaEventQuery, give_back = back to
// the pool. On the host an event is a virtual time.
//
// Thread safety: every member may be called from any thread, also for one stream by several at once. No lock is held over a call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <headroom/device.hpp>

namespace headroom::device {

class UseEvents {
public:
  using Event = std::uint64_t;  ///< a time, or the value of a handle

  UseEvents() = default;
  UseEvents(UseEvents const&) = delete;
  UseEvents& operator=(UseEvents const&) = delete;
  virtual ~UseEvents() = default;

  /// An event that comes when the work enqueued on `stream` so far has ended. What one thread enqueued before the call is in it,
  /// and calls for one stream have one order. Nothing, without an error, when the stream was ended; this must also hold beside a
  /// thread that is ending it just now. Errors: driver.
  [[nodiscard]] virtual Result<std::optional<Event>> record(StreamId stream) = 0;
  /// Makes later work of `stream` wait, on the device, for the event. Errors: driver, stream_misuse (the stream was ended).
  [[nodiscard]] virtual Result<void> wait(StreamId stream, Event event) = 0;
  /// True when the event has come; false also when that cannot be told.
  [[nodiscard]] virtual bool done(Event event) noexcept = 0;
  /// Nobody will name the event again. Waits that were enqueued for it still hold.
  virtual void give_back(Event event) noexcept = 0;

  /// True while the resource counts this very block as live. A free must turn it false, under the lock that this takes, before it
  /// asks UseTracker::any and calls forget.
  [[nodiscard]] virtual bool is_live(void const* pointer, std::uint64_t generation) noexcept = 0;
};

/// An event that is given back with its last reference. Shared because a thread may be about to wait for an event that another one
/// is replacing: had it been recorded anew by then, the wait would be for something else.
class RecordedEvent {
public:
  explicit RecordedEvent(UseEvents& events) noexcept : events_(events) {}
  RecordedEvent(RecordedEvent const&) = delete;
  RecordedEvent& operator=(RecordedEvent const&) = delete;
  ~RecordedEvent() {
    if (event_) events_.give_back(*event_);
  }
  void set(UseEvents::Event event) noexcept { event_ = event; }
  [[nodiscard]] UseEvents::Event value() const noexcept { return *event_; }

private:
  UseEvents& events_;
  std::optional<UseEvents::Event> event_;
};

/// Null = none. The last one must not be dropped under a lock: giving back is a call into the driver.
using EventRef = std::shared_ptr<RecordedEvent const>;

}  // namespace headroom::device
