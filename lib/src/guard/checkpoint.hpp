// The on_oom callback of a guard: one at a time, shared by requests that fail at the same time, called under no lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include <headroom/error.hpp>
#include <headroom/flight_format.hpp>

namespace headroom::guard {

/// This thread is inside an on_oom callback, of whichever guard.
[[nodiscard]] bool inside_checkpoint() noexcept;

class Checkpoint {
public:
  enum class Outcome : std::uint8_t {
    none,    ///< no callback is registered
    ran,     ///< on this thread
    threw,   ///< likewise
    shared,  ///< a run on another thread, under way or begun since the failure, stood for this one
    busy,    ///< … but did not end within the limit
  };

  /// Errors: io (no memory), unsupported (a forked child). The one before stays.
  Result<void> set(std::function<void()> callback);
  /// Taken when a request fails: runs that begin afterwards are also its own.
  [[nodiscard]] std::uint64_t mark() const noexcept { return begun_.load(std::memory_order_acquire); }
  /// `mark`: of the failure. Inside any callback no other run is waited for. `before` is called under no lock before the callback is, or
  /// a run on another thread is waited for; it must not throw.
  [[nodiscard]] Outcome run(std::uint64_t mark, std::chrono::nanoseconds limit, std::function<void()> const& before) noexcept;

private:
  using Callback = std::function<void()>;
  [[nodiscard]] bool wait_for_end(std::uint64_t run, std::chrono::nanoseconds limit) noexcept;

  std::mutex mutex_;  // the callback and who runs; never held over a call
  std::shared_ptr<Callback const> callback_;
  bool running_ = false;
  // Numbers of runs, from 1. Written under the mutex (release), read anywhere (acquire). `ended_` is what sharers sleep on.
  flight::Word begun_{0}, ended_{0};
};

}  // namespace headroom::guard
