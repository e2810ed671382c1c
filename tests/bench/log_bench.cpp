// What a LoggingResource costs the thread that allocates, and what a follower makes of its lines.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <headroom/log_follower.hpp>

#include "log_events.hpp"
#include "timing.hpp"

namespace headroom::bench {
namespace {

LoggingResource& shared_log() {
  static const auto log = test::logged_null();
  return *log;
}

// Compare with null_resource_alone: the rest is two lines.
void logged_null_resource(benchmark::State& state) {
  LoggingResource& log = shared_log();
  for (auto _ : state) {
    auto block = log.allocate({.bytes = 1024});
    benchmark::DoNotOptimize(block);
    benchmark::DoNotOptimize(log.deallocate(*block));
  }
}
BENCHMARK(logged_null_resource)->Apply(all_thread_counts);

// 1,000 lines from the lane to a sink, merged and converted; their writing is not measured.
void follow_lines(benchmark::State& state, std::shared_ptr<LogSink> const& sink) {
  constexpr std::uint64_t kLines = 1000;
  LoggingResource& log = shared_log();
  auto follower = LogFollower::start({.resource = &log, .sinks = {sink}, .poll_interval = std::chrono::hours{1}}).value();
  std::uint64_t lines = 0;
  for (auto _ : state) {
    state.PauseTiming();
    for (std::uint64_t i = 0; i < kLines; ++i) benchmark::DoNotOptimize(log.allocate({.bytes = i}));
    state.ResumeTiming();
    if (auto flushed = follower.flush(); !flushed) return state.SkipWithError(flushed.error().to_string().c_str());
    lines += kLines;
  }
  state.counters["lines_per_second"] = benchmark::Counter(static_cast<double>(lines), benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(follow_lines, to_a_callback, std::make_shared<CallbackSink>([](auto) -> Result<void> { return {}; }))
    -> Unit(benchmark::kMicrosecond) -> UseRealTime();

void csv_lines(benchmark::State& state) {
  const auto sink = CsvSink::create("/dev/null").value();
  const std::vector<LogLine> lines(
      1000, {.thread = 4711, .time_ns = 1'700'000'000'123'456'789, .pointer = 0x7f3bf6000000, .bytes = 65536});
  std::uint64_t written = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sink->write(lines));
    written += lines.size();
  }
  state.counters["lines_per_second"] = benchmark::Counter(static_cast<double>(written), benchmark::Counter::kIsRate);
}
BENCHMARK(csv_lines)->Unit(benchmark::kMicrosecond)->UseRealTime();

}  // namespace
}  // namespace headroom::bench
