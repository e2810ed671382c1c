// headroom: what the exporter of a process serves: its books, a page for people, and figures about itself.
//
// Thread safety: every member from any thread, but for tick(), which belongs to one. The lock in here is never known to an
// allocation.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/gpu_sampler.hpp>
#include <headroom/visible_devices.hpp>

#include "families.hpp"
#include "http.hpp"

namespace headroom::exporter {

/// How long scrapes took.
class ScrapeTimes {
public:
  void observe(std::chrono::nanoseconds duration);
  [[nodiscard]] prometheus::ClientMetric::Histogram histogram() const;

private:
  static constexpr std::array<double, 13> kBounds{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0};
  mutable std::mutex mutex_;
  std::array<std::uint64_t, kBounds.size() + 1> counts_{};
  double sum_seconds_ = 0.0;
};

class Service {
public:
  /// Reads the environment, which the program may change later: make it on the program's own thread.
  explicit Service(GpuSampler::Source gpus = GpuSampler::nvml());

  /// The metrics as text. What cannot be collected is left out and counted; the rest is served.
  [[nodiscard]] Reply metrics();
  /// For people: what this is, what it offers, and one line for each manager.
  [[nodiscard]] Reply status();
  [[nodiscard]] static Reply healthy() { return {.body = "ok\n"}; }

  /// Reads the events that are new, so that what this reader loses is known. One thread only.
  void tick();

  void count_error() noexcept { errors_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t errors() const noexcept { return errors_.load(std::memory_order_relaxed); }

private:
  [[nodiscard]] std::vector<prometheus::MetricFamily> collect_all();

  ScrapeTimes scrapes_;
  GpuSampler gpus_;
  VisibilityEnvironment const environment_;
  std::atomic<std::uint64_t> errors_{0};       // any thread, relaxed: a count
  std::atomic<std::uint64_t> events_lost_{0};  // written by tick(), read by scrapes; relaxed
  // tick() only.
  std::optional<flight::EventReader> reader_;
  std::vector<flight::Event> events_;
  std::vector<flight::Gap> gaps_;
};

}  // namespace headroom::exporter
