// Streams and events of the fake CUDA runtime, in virtual time: one tick passes at each query, a call enqueued on a stream takes one,
// and a wait lets as many pass as it needs.
//
// A layer of FakeCuda (fake_cuda.hpp), which tests include. Notes as violations: streams and events that do not exist, are destroyed,
// are of another device or are left at the end.
//
// Thread safety: every public member.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "fake_cuda_devices.hpp"

namespace headroom::testing {

class FakeCudaStreams : public FakeCudaDevices {
public:
  // ── what a test does to it, and asks of it ──

  /// Work on the stream that takes that many ticks.
  void enqueue_work(Stream stream, std::uint64_t ticks) {
    std::lock_guard const lock(mutex_);
    auto& on = stream_at(stream, thread().device_in_use());
    on.busy_until = std::max(on.busy_until, now_) + ticks;
  }
  /// Stops time: it passes only where something is waited for.
  void freeze(bool frozen) {
    std::lock_guard const lock(mutex_);
    frozen_ = frozen;
  }
  void advance(std::uint64_t ticks) {
    std::lock_guard const lock(mutex_);
    now_ += ticks;
  }
  [[nodiscard]] std::uint64_t now() const {
    std::lock_guard const lock(mutex_);
    return now_;
  }
  /// When the stream's work so far ends.
  [[nodiscard]] std::uint64_t busy_until(Stream stream) {
    std::lock_guard const lock(mutex_);
    return std::max(stream_at(stream, thread().device_in_use()).busy_until, now_);
  }
  /// A stream of the program's own on that device, and its end.
  Stream foreign_stream(int device = 0) {
    std::lock_guard const lock(mutex_);
    streams_[++last_handle_] = {.device = device, .foreign = true};
    return last_handle_;
  }
  void destroy_foreign(Stream stream) {
    std::lock_guard const lock(mutex_);
    streams_.at(stream).destroyed = true;
  }
  [[nodiscard]] std::size_t live_events() const {
    std::lock_guard const lock(mutex_);
    return events_.size();
  }

  // ── CudaApi ──

  int device_synchronize() noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::device_synchronize, [&](int device) {
      wait_until(busiest(device));
      return 0;
    });
  }

  int stream_create(Stream& stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::stream_create, [&](int device) {
      streams_[++last_handle_] = {.device = device};
      stream = last_handle_;
      return 0;
    });
  }
  int stream_destroy(Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::stream_destroy, [&](int device) {
      if (!usable(stream, device)) return Code::kInvalidHandle;
      streams_.at(stream).destroyed = true;
      return 0;
    });
  }
  int stream_synchronize(Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::stream_synchronize, [&](int device) {
      if (!usable(stream, device)) return Code::kInvalidHandle;
      wait_until(stream_at(stream, device).busy_until);
      return 0;
    });
  }
  int stream_query(Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::stream_query, LastError::untouched, [&](int device) {
      if (!usable(stream, device)) return Code::kInvalidHandle;
      tick();
      return stream_at(stream, device).busy_until <= now_ ? 0 : Code::kNotReady;
    });
  }
  int stream_wait(Stream stream, Event event) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::stream_wait, [&](int device) {
      if (!usable(stream, device)) return Code::kInvalidHandle;
      auto const* const awaited = event_at(event, device);
      if (awaited == nullptr) return Code::kInvalidHandle;
      auto& on = stream_at(stream, device);
      on.busy_until = std::max(on.busy_until, awaited->time);
      return 0;
    });
  }
  int event_create(Event& event) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::event_create, [&](int device) {
      events_[++last_handle_] = {.device = device};
      event = last_handle_;
      return 0;
    });
  }
  int event_destroy(Event event) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::event_destroy, [&](int device) {
      if (event_at(event, device) == nullptr) return Code::kInvalidHandle;
      events_.erase(event);
      return 0;
    });
  }
  int event_record(Event event, Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::event_record, [&](int device) {
      if (!usable(stream, device)) return Code::kInvalidHandle;
      auto* const recorded = event_at(event, device);
      if (recorded == nullptr) return Code::kInvalidHandle;
      recorded->time = std::max(stream_at(stream, device).busy_until, now_);
      return 0;
    });
  }
  int event_query(Event event) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::event_query, LastError::untouched, [&](int device) {
      auto const* const asked = event_at(event, device);
      if (asked == nullptr) return Code::kInvalidHandle;
      tick();
      return asked->time <= now_ ? 0 : Code::kNotReady;
    });
  }
  int event_synchronize(Event event) noexcept override {
    std::lock_guard const lock(mutex_);
    return on_device(CudaCall::event_synchronize, [&](int device) {
      auto const* const awaited = event_at(event, device);
      if (awaited == nullptr) return Code::kInvalidHandle;
      wait_until(awaited->time);
      return 0;
    });
  }

protected:
  using FakeCudaDevices::FakeCudaDevices;
  ~FakeCudaStreams() = default;

  // All below: under mutex_.

  void wait_until(std::uint64_t time) { now_ = std::max(now_, time); }
  bool usable(Stream stream, int device) {
    if (stream == 0) return true;
    auto const found = streams_.find(stream);
    if (found == streams_.end()) {
      violate("stream " + std::to_string(stream) + " does not exist");
    } else if (found->second.destroyed) {
      violate("stream " + std::to_string(stream) + " was destroyed");
    } else if (found->second.device != device) {
      violate("stream " + std::to_string(stream) + " is of another device");
    } else {
      return true;
    }
    return false;
  }
  std::uint64_t enqueue(Stream stream, int device) {
    auto& on = stream_at(stream, device);
    on.busy_until = std::max(on.busy_until, now_) + 1;
    return on.busy_until;
  }
  std::uint64_t busiest(int device) {
    std::uint64_t latest = 0;
    for (auto const& [number, stream] : streams_) {
      if (stream.device == device) latest = std::max(latest, stream.busy_until);
    }
    return latest;
  }
  void note_streams_left() {
    for (auto const& [number, stream] : streams_) {
      if (number != 0 && !stream.destroyed && !stream.foreign) violate("stream " + std::to_string(number) + " was left");
    }
    for (auto const& [number, event] : events_) violate("event " + std::to_string(number) + " was left");
  }

  std::uint64_t now_ = 0;

private:
  struct StreamState {
    int device = 0;
    std::uint64_t busy_until = 0;
    bool destroyed = false;
    bool foreign = false;
  };
  struct EventState {
    int device = 0;
    std::uint64_t time = 0;
  };

  void tick() {
    if (!frozen_) ++now_;
  }
  StreamState& stream_at(Stream stream, int device) {
    if (stream != 0) return streams_.at(stream);
    auto& legacy = streams_[0];
    legacy.device = device;
    return legacy;
  }
  EventState* event_at(Event event, int device) {
    auto const found = events_.find(event);
    if (found == events_.end()) {
      violate("event " + std::to_string(event) + " does not exist");
      return nullptr;
    }
    if (found->second.device != device) {
      violate("event " + std::to_string(event) + " is of another device");
      return nullptr;
    }
    return &found->second;
  }

  std::map<Stream, StreamState> streams_;
  std::map<Event, EventState> events_;
  bool frozen_ = false;
};

}  // namespace headroom::testing
