// What an event costs, and what a reader needs for a whole file.
#include <chrono>
#include <thread>

#include "flight/emit.hpp"
#include "flight/recorder.hpp"
#include "managers.hpp"
#include "timing.hpp"

namespace headroom::bench {
namespace {

using flight::Draft;
using flight::EventKind;
using flight::LaneSection;

void emit_one(flight::ThreadState& thread, std::uint64_t i) {
  const LaneSection section{thread};
  Draft draft;
  draft.words[0] = flight::pack_kind(EventKind::allocate);
  draft.words[1] = ticks_now();
  draft.words[2] = i;
  draft.words[3] = flight::pack_bytes(1024, 256);
  draft.words[4] = i;
  draft.words[5] = flight::Subject{.tag = 7, .ledger = 1}.pack();
  draft.words[6] = 9;
  draft.words[7] = flight::pack_duration(100, thread.thread_id);
  flight::emit(section, EventKind::allocate, draft);
}

void emit_event(benchmark::State& state) {
  if (!flight::start_recorder()) return state.SkipWithError("no recorder");
  flight::ThreadState& thread = flight::this_thread();
  Sampler sampler;
  std::uint64_t i = 0;
  for (auto _ : state) sampler.run([&] { emit_one(thread, ++i); });
  sampler.report(state);
  target(state, 15);
}
BENCHMARK(emit_event)->Apply(all_thread_counts);

// What a viewer does at each frame, and an exporter four times a second, for as long as this object lives.
class AttachedReaders {
public:
  AttachedReaders()
      : viewer_([this] { read_every(std::chrono::microseconds{16'667}); }),
        exporter_([this] { read_every(std::chrono::milliseconds{250}); }) {}
  ~AttachedReaders() {
    over_.store(true);
    viewer_.join();
    exporter_.join();
  }
  AttachedReaders(AttachedReaders const&) = delete;
  AttachedReaders& operator=(AttachedReaders const&) = delete;
  [[nodiscard]] std::uint64_t events_read() const { return events_read_.load(); }

private:
  void read_every(std::chrono::microseconds period) {
    const auto view = flight::FlightView::of_this_process().value();
    flight::EventReader reader{view};
    std::vector<flight::Event> events;
    std::vector<flight::Gap> gaps;
    while (!over_.load()) {
      events.clear();
      gaps.clear();
      reader.poll(events, gaps);
      flight::sort_timeline(events);
      benchmark::DoNotOptimize(view.ledgers());
      events_read_.fetch_add(events.size());
      std::this_thread::sleep_for(period);
    }
  }
  std::atomic<bool> over_{false};  // set by the owner, read by both threads
  std::atomic<std::uint64_t> events_read_{0};
  std::thread viewer_;
  std::thread exporter_;
};

// Beside emit_event/threads:1, which has no reader: the target is 1.1 times that.
void emit_event_with_readers(benchmark::State& state) {
  if (!flight::start_recorder()) return state.SkipWithError("no recorder");
  const AttachedReaders readers;
  flight::ThreadState& thread = flight::this_thread();
  Sampler sampler;
  std::uint64_t i = 0;
  for (auto _ : state) sampler.run([&] { emit_one(thread, ++i); });
  sampler.report(state);
  state.counters["events_read"] = static_cast<double>(readers.events_read());
}
BENCHMARK(emit_event_with_readers)->UseRealTime();

// What every event and four times every pair pays: beside it the rest can be judged on another machine.
void clock_reading(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(ticks_now());
}
BENCHMARK(clock_reading);

void emit_event_off(benchmark::State& state) {
  if (!flight::start_recorder()) return state.SkipWithError("no recorder");
  flight::ThreadState& thread = flight::this_thread();
  const bool before = std::exchange(flight::recorder.events, false);
  const LaneSection section{thread};
  Draft draft;
  for (auto _ : state) {
    benchmark::DoNotOptimize(draft);
    flight::emit(section, EventKind::allocate, draft);
  }
  flight::recorder.events = before;
  target(state, 1.5);
}
BENCHMARK(emit_event_off);

// All owned lanes full: what a post-mortem reads. Filled through the rings' own writer, by one thread.
void snapshot_of_full_lanes(benchmark::State& state) {
  if (!flight::start_recorder()) return state.SkipWithError("no recorder");
  auto const& sizes = flight::recorder.geometry.sizes;
  for (std::uint32_t index = 8; index < flight::kLaneCount; ++index) {
    auto& lane = flight::recorder.lane(index);
    for (std::uint32_t i = lane.header.main.head.load() == 0 ? 0 : sizes.main_records; i < sizes.main_records; ++i) {
      const std::uint64_t words[8] = {flight::pack_kind(EventKind::allocate), ticks_now(), i, 64, i, 0, 0, 0};
      flight::RingWriter<StdAtomics>::write(lane.header.main.head, lane.header.main.reserve, flight::recorder.main_ring(lane),
                                            sizes.main_records, sizes.main_block, words);
    }
  }
  std::size_t events_read = 0;
  for (auto _ : state) {
    flight::EventReader reader{flight::FlightView::of_this_process().value()};
    std::vector<flight::Event> events;
    std::vector<flight::Gap> gaps;
    reader.poll(events, gaps);
    flight::sort_timeline(events);
    events_read = events.size();
  }
  state.counters["events"] = static_cast<double>(events_read);
  target(state, 10e6);
}
BENCHMARK(snapshot_of_full_lanes)->Unit(benchmark::kMillisecond)->UseRealTime();

void snapshot_of_ledgers(benchmark::State& state) {
  auto manager = test::null_manager(MemoryBudget::unlimited(), "snapshot");
  auto held = manager.alloc<std::byte>(1000).value();
  const auto view = flight::FlightView::of_this_process().value();
  for (auto _ : state) benchmark::DoNotOptimize(view.ledgers());
}
BENCHMARK(snapshot_of_ledgers)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace headroom::bench
