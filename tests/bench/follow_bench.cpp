// A model of the past: how fast it takes in operations, and how long an answer takes.
#include <memory>
#include <random>
#include <vector>

#include <headroom/follow.hpp>

#include "flight_builder.hpp"
#include "follow/past.hpp"
#include "made_past.hpp"
#include "timing.hpp"

namespace headroom::bench {
namespace {

constexpr std::uint64_t kEvents = 1'000'000;

/// A million operations of one ledger, with 4,096 blocks and 16 tags.
MadePast const& recorded() {
  static const auto past = std::make_shared<MadePast const>(MadePast::Size{.operations = kEvents, .live = 4096, .tags = 16});
  return *past;
}

follow::Model whole_past() {
  follow::Model model{recorded().source(), {.memory_bytes = std::size_t{512} << 20U}};
  static_cast<void>(model.catch_up());
  return model;
}

follow::Model const& shared_past() {
  static const follow::Model model = whole_past();
  return model;
}

void ingest(benchmark::State& state) {
  static_cast<void>(recorded());
  std::uint64_t events = 0;
  std::size_t memory = 0;
  for (auto _ : state) {
    auto const model = whole_past();
    events += model.losses().events_read;
    memory = model.memory_bytes();
  }
  state.counters["events_per_second"] = benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
  state.counters["bytes_per_event"] = benchmark::Counter(static_cast<double>(memory) / static_cast<double>(kEvents));
}
BENCHMARK(ingest)->Name("follow_ingest")->Unit(benchmark::kMillisecond)->UseRealTime();

template <class Ask>
void at_random_instants(benchmark::State& state, Ask&& ask) {
  auto const& model = shared_past();
  std::mt19937_64 random{2};
  std::vector<std::uint64_t> samples;
  for (auto _ : state) {
    const std::uint64_t ticks = random() % (recorded().end_ticks());
    const std::uint64_t start = ticks_now();
    benchmark::DoNotOptimize(ask(model, ticks));
    samples.push_back(ticks_now() - start);
  }
  std::ranges::sort(samples);
  state.counters["p50_us"] = static_cast<double>(ticks_to_ns(samples[samples.size() / 2])) / 1000.0;
  state.counters["p99_us"] = static_cast<double>(ticks_to_ns(samples[samples.size() * 99 / 100])) / 1000.0;
}

void state_at(benchmark::State& state) {
  at_random_instants(state, [](follow::Model const& model, std::uint64_t ticks) { return model.state_at(0, ticks).allocated; });
}
BENCHMARK(state_at)->Name("follow_state_at")->Unit(benchmark::kMicrosecond);

void live_at(benchmark::State& state) {
  at_random_instants(state, [](follow::Model const& model, std::uint64_t ticks) { return model.live_at(0, ticks).size(); });
}
BENCHMARK(live_at)->Name("follow_live_at")->Unit(benchmark::kMicrosecond);

void series(benchmark::State& state) {
  auto const& model = shared_past();
  for (auto _ : state) {
    benchmark::DoNotOptimize(model.series(0, "tag 3", 0, recorded().end_ticks(), 1000).size());
  }
}
BENCHMARK(series)->Name("follow_series_of_1000_columns")->Unit(benchmark::kMicrosecond);

/// A program that fills all rings of its threads between two polls, and more: each of the 65,536 slots has a block.
class BusyProgram {
public:
  explicit BusyProgram(std::uint32_t threads) : threads_{threads} {
    auto& ledger = file_.open_ledger(0, 1, "main");
    for (std::uint32_t i = 0; i < flight::Sizes{}.live_slots; ++i) {
      auto& slot = file_.slot(i);
      slot.address = 0x7F00'0000'0000 + std::uint64_t{i} * 4096;
      slot.bytes = 4096;
      slot.state = flight::pack_slot(1, flight::SlotState::live, false);
    }
    allocated_ = std::uint64_t{flight::Sizes{}.live_slots} * 4096;
    ledger.claim = allocated_;
  }

  /// Turn and turn about, each thread takes a block and gives it back.
  void run() {
    for (std::uint32_t i = 0; i < 2 * flight::Sizes{}.main_records; ++i) {
      for (std::uint32_t lane = 0; lane < threads_; ++lane) {
        bool const adds = i % 2 == 0;
        allocated_ = adds ? allocated_ + 256 : allocated_ - 256;
        auto words = flight::record(adds ? flight::EventKind::allocate : flight::EventKind::free, ticks_ += 100);
        words[2] = 0x7E00'0000'0000 + lane * 4096;
        words[3] = 256;
        words[4] = (++number_ << flight::kBytesBits) | allocated_;
        words[5] = 1;
        file_.write(lane, flight::Ring::main, words);
      }
    }
    file_.ledger(0).alloc = (number_ << flight::kBytesBits) | allocated_;
    ticks_ += 1'000'000'000;
  }
  [[nodiscard]] flight::FlightView view() const { return file_.view(); }

private:
  flight::FlightBuilder file_{flight::Sizes{}};
  std::uint32_t threads_;
  std::uint64_t allocated_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t ticks_ = 1;
};

/// What a look each second costs whoever looks: arguments are the program's threads, and whether operations are kept.
void poll(benchmark::State& state) {
  BusyProgram program{static_cast<std::uint32_t>(state.range(0))};
  follow::Model model{follow::flight_source(program.view()),
                      {.memory_bytes = std::size_t{4} << 20U, .operations = state.range(1) != 0}};
  for (auto _ : state) {
    state.PauseTiming();
    program.run();
    state.ResumeTiming();
    benchmark::DoNotOptimize(model.poll());
  }
  state.counters["events_per_poll"] =
      benchmark::Counter(static_cast<double>(model.losses().events_read), benchmark::Counter::kAvgIterations);
}
BENCHMARK(poll)
    ->Name("follow_poll_of_full_rings")
    ->ArgNames({"threads", "operations"})
    ->ArgsProduct({{1, 8, 48}, {1, 0}})
    ->Unit(benchmark::kMillisecond);

/// Blocks that nobody knew until they were freed, one after the other, behind ever more of the past.
void frees_of_unknown_blocks(benchmark::State& state) {
  constexpr std::uint64_t kBytes = 256;
  const auto count = static_cast<std::uint64_t>(state.range(0));
  for (auto _ : state) {
    follow::LedgerPast past{std::size_t{1} << 16U};
    past.begin_segment({.ticks = 1, .allocated = count * kBytes, .missing = 0, .looked_ticks = 0, .live = {}});
    for (std::uint64_t i = 0; i < count; ++i) {
      past.apply({.ticks = 1 + i,
                  .address = 0x1000 + i * kBytes,
                  .bytes = kBytes,
                  .allocated = (count - i - 1) * kBytes,
                  .tag = static_cast<std::uint16_t>(i % 16),
                  .kind = flight::EventKind::free});
    }
    past.settle();
    benchmark::DoNotOptimize(past.sums().allocated);
  }
  state.counters["frees_per_second"] =
      benchmark::Counter(static_cast<double>(count), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(frees_of_unknown_blocks)
    ->Name("follow_frees_of_unknown_blocks")
    ->Arg(50'000)
    ->Arg(200'000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace headroom::bench
