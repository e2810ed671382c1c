// A model of the past: how fast it takes in operations, and how long an answer takes.
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <headroom/follow.hpp>

#include "flight_builder.hpp"
#include "follow/past.hpp"
#include "timing.hpp"

namespace headroom::bench {
namespace {

constexpr std::uint64_t kEvents = 1'000'000;
constexpr std::uint64_t kLive = 4096;
constexpr std::uint64_t kTicksApart = 100;

/// A million operations of one ledger, with 4,096 blocks and 16 tags live in the middle of it.
std::vector<flight::Event> const& recorded() {
  static const std::vector<flight::Event> events = [] {
    std::vector<flight::Event> made;
    made.reserve(kEvents);
    std::mt19937_64 random{1};
    std::vector<std::uint64_t> sizes(kLive);
    std::uint64_t allocated = 0;
    for (std::uint64_t i = 0; i < kEvents; ++i) {
      const std::uint64_t block = random() % kLive;
      const bool adds = sizes[block] == 0;
      const std::uint64_t bytes = adds ? 256 + random() % 65'536 : std::exchange(sizes[block], 0);
      if (adds) sizes[block] = bytes;
      allocated = adds ? allocated + bytes : allocated - bytes;
      flight::Event event;
      event.kind = adds ? flight::EventKind::allocate : flight::EventKind::free;
      event.number = i;
      event.ticks = (i + 1) * kTicksApart;
      event.words[1] = event.ticks;
      event.words[2] = 0x7F00'0000'0000 + block * 131'072;
      event.words[3] = bytes;
      event.words[4] = ((i + 1) << flight::kBytesBits) | allocated;
      event.words[5] = 1 + block % 16;
      made.push_back(event);
    }
    return made;
  }();
  return events;
}

class Recorded final : public follow::Source {
public:
  [[nodiscard]] follow::SourceKind kind() const override { return follow::SourceKind::dump; }
  [[nodiscard]] std::string title() const override { return "bench"; }
  [[nodiscard]] Result<void> read(follow::News& news) override {
    constexpr std::size_t kBatch = 16'384;
    auto const& events = recorded();
    const std::size_t end = std::min(next_ + kBatch, events.size());
    news.events.assign(events.begin() + static_cast<std::ptrdiff_t>(next_), events.begin() + static_cast<std::ptrdiff_t>(end));
    next_ = end;
    news.more = next_ < events.size();
    news.ended = !news.more;
    return {};
  }
  [[nodiscard]] flight::ProcessInfo process() const override { return {}; }
  [[nodiscard]] flight::Liveness liveness() const override { return flight::Liveness::dead; }
  [[nodiscard]] flight::ClockMap clock() const override { return {1'000'000'000, {}}; }
  [[nodiscard]] std::uint64_t now_ticks() const override { return next_ * kTicksApart; }
  [[nodiscard]] std::vector<flight::LedgerSnapshot> ledgers() const override { return {}; }
  void for_each_live(std::function<void(flight::LiveAllocation const&)> const& /*visit*/) const override {}
  [[nodiscard]] std::optional<flight::DirectoryName> name(std::uint32_t id) const override {
    flight::DirectoryName name;
    name.label = "tag " + std::to_string(id);
    return name;
  }
  [[nodiscard]] std::uint64_t accepted() const override { return next_; }

private:
  std::size_t next_ = 0;
};

follow::Model whole_past() {
  follow::Model model{std::make_unique<Recorded>(), {.memory_bytes = std::size_t{512} << 20U}};
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
    const std::uint64_t ticks = random() % (kEvents * kTicksApart);
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
    benchmark::DoNotOptimize(model.series(0, "tag 3", 0, kEvents * kTicksApart, 1000).size());
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
