// headroom: when the next step of a replay is due.
//
// Steps are due at fixed instants of the loop, never "so long after the one before", so that a late step does not make all later
// ones late. A wait ends early when the stop flag is set. Thread safety: begin_loop() happens before the waits of its loop.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include <headroom/replay.hpp>

#include "trace/replay_steps.hpp"

namespace headroom::trace {

class Pace {
public:
  using Clock = std::chrono::steady_clock;

  Pace(TraceHistory::Data const& data, ReplayOptions const& options) noexcept : stop_{options.stop} {
    auto const recorded_ns = static_cast<double>(data.duration_us) * 1e3;
    if (options.stretch) {
      // A history without a duration has no instants to stretch: its steps are spread evenly.
      by_position_ = data.duration_us == 0;
      auto const units = by_position_ ? static_cast<double>(data.steps.size()) : recorded_ns;
      factor_ = units > 0 ? static_cast<double>(options.stretch->count()) / units : 0;
      is_paced_ = true;
    } else if (options.speed) {
      factor_ = 1.0 / *options.speed;
      is_paced_ = true;
    }
  }

  void begin_loop() noexcept { start_ = Clock::now(); }
  [[nodiscard]] double elapsed_seconds() const noexcept { return std::chrono::duration<double>{Clock::now() - start_}.count(); }

  [[nodiscard]] bool stopped() const noexcept { return stop_ != nullptr && stop_->load(std::memory_order_relaxed); }

  /// Returns false when the replay was stopped before the step was due.
  [[nodiscard]] bool wait_for(Step const& step, std::size_t position) const {
    if (stopped()) return false;
    if (!is_paced_) [[likely]]
      return true;
    auto const units = by_position_ ? static_cast<double>(position) : static_cast<double>(step.time_us) * 1e3;
    return wait_until(units * factor_);
  }

private:
  [[nodiscard]] bool wait_until(double due_ns) const {
    constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds{20};  // how long a stop may go unnoticed
    while (true) {
      if (stopped()) return false;
      auto const rest_ns = due_ns - std::chrono::duration<double, std::nano>{Clock::now() - start_}.count();
      if (rest_ns <= 0) return true;
      auto const slice_ns = std::min(rest_ns, static_cast<double>(kSlice.count()));
      std::this_thread::sleep_for(std::chrono::nanoseconds{static_cast<std::int64_t>(slice_ns) + 1});
    }
  }

  std::atomic<bool> const* stop_;  // written by anyone, also by a signal handler; relaxed: nothing else is read through it
  Clock::time_point start_ = Clock::now();
  double factor_ = 0;
  bool is_paced_ = false;
  bool by_position_ = false;
};

}  // namespace headroom::trace
