// Percentiles of single operations for Google Benchmark: a sampled few are timed one by one with the cycle counter, the rest run
// untimed. The counter's own cost is measured and taken off.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/clock.hpp"

namespace headroom::bench {

/// Smallest difference between two readings of the clock, in ticks.
inline std::uint64_t clock_cost() {
  static const std::uint64_t cost = [] {
    std::uint64_t least = ~std::uint64_t{0};
    for (int i = 0; i < 10'000; ++i) {
      const std::uint64_t start = ticks_now();
      least = std::min(least, ticks_now() - start);
    }
    return least;
  }();
  return cost;
}

/// Times every 64th operation by itself and reports its percentiles as counters.
class Sampler {
public:
  Sampler() { samples_.reserve(kMost); }

  template <class Operation>
  void run(Operation&& operation) {
    if ((count_++ % 64) != 0 || samples_.size() == kMost) {
      operation();
      return;
    }
    const std::uint64_t start = ticks_now();
    operation();
    const std::uint64_t ticks = ticks_now() - start;
    samples_.push_back(ticks > clock_cost() ? ticks - clock_cost() : 0);
  }

  void report(benchmark::State& state) {
    if (samples_.empty()) return;
    std::ranges::sort(samples_);
    const auto at = [&](double share) {
      const auto index = static_cast<std::size_t>(share * static_cast<double>(samples_.size() - 1));
      return static_cast<double>(ticks_to_ns(samples_[index]));
    };
    using benchmark::Counter;
    state.counters["p50_ns"] = Counter(at(0.5), Counter::kAvgThreads);
    state.counters["p99_ns"] = Counter(at(0.99), Counter::kAvgThreads);
    state.counters["p999_ns"] = Counter(at(0.999), Counter::kAvgThreads);
    state.counters["max_ns"] = Counter(at(1.0), Counter::kAvgThreads);
  }

private:
  static constexpr std::size_t kMost = 1 << 16;
  std::uint64_t count_ = 0;
  std::vector<std::uint64_t> samples_;
};

inline void target(benchmark::State& state, double nanoseconds) {
  state.counters["target_ns"] = benchmark::Counter(nanoseconds, benchmark::Counter::kAvgThreads);
}

/// 1, 2, 4 … threads, up to what the machine has.
inline void all_thread_counts(benchmark::internal::Benchmark* bench) {
  for (int threads = 1; threads <= std::max(2, benchmark::CPUInfo::Get().num_cpus); threads *= 2) bench->Threads(threads);
  bench->UseRealTime();
}

}  // namespace headroom::bench
