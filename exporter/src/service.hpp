// headroom: what the exporter of a process serves: its books, a page for people, and figures about itself.
//
// Thread safety: every member from any thread, but for tick(), which belongs to one. No lock in here is known to an allocation, and
// none is held while something is written or sent.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/gpu_sampler.hpp>
#include <headroom/visible_devices.hpp>

#include "families.hpp"
#include "followed.hpp"
#include "http.hpp"
#include "node_books.hpp"
#include "snapshots.hpp"

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

  /// Everything that is served, by path.
  [[nodiscard]] static Routes routes_of(std::shared_ptr<Service> const& service);

  /// The metrics, in the text format or as OpenMetrics. What cannot be collected is left out and counted; the rest is served.
  [[nodiscard]] Reply metrics(Request const& request = {});
  /// For people: the live page for browsers; for everybody else text: what this is, what it offers, and one line for each manager.
  [[nodiscard]] Reply status(Request const& request = {});
  /// What the page shows, as JSON: state_json.hpp.
  [[nodiscard]] Reply state(Request const& request = {});
  /// The post-mortem of this moment; without events, for `?events=0`. 404 before the first manager, 503 while as many as are made at a
  /// time are on their way.
  [[nodiscard]] Reply snapshot(Request const& request = {});
  [[nodiscard]] static Reply healthy() { return {.body = "ok\n"}; }

  /// Reads what is new: the last minutes, failures, and what this reader loses. One thread only.
  void tick();

  void count_error() noexcept { errors_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t errors() const noexcept { return errors_.load(std::memory_order_relaxed); }

private:
  [[nodiscard]] std::vector<prometheus::MetricFamily> collect_all();
  [[nodiscard]] std::shared_ptr<GpuSample const> gpu_sample();
  /// This process; null before its first manager.
  [[nodiscard]] std::shared_ptr<Followed> followed();

  ScrapeTimes scrapes_;
  GpuSampler gpus_;
  VisibilityEnvironment const environment_;
  Snapshots snapshots_;
  std::atomic<std::uint64_t> errors_{0};  // any thread, relaxed: a count
  mutable std::mutex
      followed_mutex_;  // guards the pointer, not what it points to; held for a copy, or for opening the books once
  std::shared_ptr<Followed> followed_;
  NodeBooks books_;  // of this process alone
};

}  // namespace headroom::exporter
