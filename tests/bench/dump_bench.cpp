// A post-mortem of a full flight file: all 64 lanes, 65,536 live allocations, 4,096 names. What a failing program spends on it, and what
// reading it back costs.
#include <filesystem>
#include <string>

#include <benchmark/benchmark.h>

#include "flight_builder.hpp"
#include "post_mortems.hpp"
#include "timing.hpp"

namespace headroom::bench {
namespace {

using flight::EntryKind;
using flight::EventKind;
using flight::FlightBuilder;
using flight::Ring;

void fill_names(FlightBuilder& file, std::uint32_t names) {
  file.put_name(1, EntryKind::device, 0, 0, "NVIDIA H200\tGPU-01234567-89ab-cdef-0123-456789abcdef");
  for (std::uint32_t cell = 0; cell < 8; ++cell) {
    auto& ledger = file.open_ledger(cell, 2 + cell, "manager-" + std::to_string(cell));
    ledger.claim = ledger.alloc = ledger.peak = std::uint64_t{1} << 36;
    ledger.device_id = 1;
  }
  for (std::uint32_t id = 10; id < names; ++id) {
    if (id < 10 + flight::kTagCells) {
      file.put_name(id, EntryKind::tag, 2 + id % 8, id - 10, "layer." + std::to_string(id) + ".attention");
    } else {
      file.put_name(id, EntryKind::site, 0, id, "model/attention.cpp:" + std::to_string(id) + " void forward(Tensor const&)");
    }
  }
}

void fill_lanes(FlightBuilder& file, flight::Sizes const& sizes) {
  std::uint64_t ticks = 1'000'000;
  for (std::uint32_t i = 0; i < sizes.main_records + sizes.main_block; ++i) {
    for (std::uint32_t lane = 0; lane < flight::kLaneCount; ++lane) {
      const auto kind = std::uint64_t{i % 2 + 1} << 56;
      file.write(lane, Ring::main,
                 {kind, ticks += 37, 0x7F00'0000'0000 + 4'096 * ticks, (std::uint64_t{8} << 48) | (ticks % 100'000'000),
                  (ticks << 44) | (ticks * 1'000), (std::uint64_t{lane % 8} << 16) | (10 + ticks % 200), 300,
                  (std::uint64_t{150} << 32) | lane});
      if (i < sizes.journal_records + sizes.journal_block)
        file.write(lane, Ring::journal, flight::record(EventKind::pressure, ticks, ticks));
    }
  }
  file.header().lanes_used = flight::kOwnedLanes;
}

FlightBuilder const& full_file() {
  static FlightBuilder const& file = []() -> FlightBuilder const& {
    const flight::Sizes sizes{};
    auto& made = *new FlightBuilder{sizes};
    fill_names(made, sizes.directory_entries);
    fill_lanes(made, sizes);
    for (std::uint32_t i = 0; i < sizes.live_slots; ++i) {
      auto& slot = made.slot(i);
      slot.address = 0x7F00'0000'0000 + 4'096ULL * i;
      slot.bytes = 1 + (i * 2'654'435'761ULL) % 50'000'000;
      slot.tag_ledger = (10 + i % 256) | (std::uint64_t{i % 8} << 16) | (std::uint64_t{8} << 28);
      slot.site_thread = (std::uint64_t{300 + i % 3'000} << 32) | 4'711;
      slot.ticks = 1'000'000 + i;
      slot.state = flight::pack_slot(7, flight::SlotState::live, false);
    }
    return made;
  }();
  return file;
}

class CountingSink final : public dump::ByteSink {
public:
  [[nodiscard]] int write(std::span<char const> bytes) noexcept override {
    taken += bytes.size();
    return 0;
  }
  std::uint64_t taken = 0;
};

// Without the disk: that is the machine's, and a program that fails has memory set aside.
void write(benchmark::State& state, PostMortemOptions options, double most_ns) {
  const auto view = full_file().view();
  auto const& mapped = flight::ViewAccess::mapped(view);
  dump::Workspace workspace{dump::WorkspaceSizes::of(mapped)};
  std::uint64_t bytes = 0;
  for (auto _ : state) {
    CountingSink sink;
    dump::JsonStream json{sink, workspace.buffer};
    dump::Writer{{.mapped = mapped,
                  .liveness = flight::Liveness::living,
                  .kind = dump::ReasonKind::requested,
                  .reason = "benchmark",
                  .failure = nullptr,
                  .options = options,
                  .events_left_out = {},
                  .sequence = 0,
                  .counts = {}},
                 workspace,
                 json}
        .write();
    static_cast<void>(json.finish());
    bytes = sink.taken;
  }
  state.counters["bytes"] = static_cast<double>(bytes);
  target(state, most_ns);
}

void post_mortem(benchmark::State& state) { write(state, {}, 100e6); }
BENCHMARK(post_mortem)->Unit(benchmark::kMillisecond)->UseRealTime();

// As `headroom dump --no-events` has it: all 65,536 live allocations.
void post_mortem_of_the_state(benchmark::State& state) { write(state, {.events = false}, 10e6); }
BENCHMARK(post_mortem_of_the_state)->Unit(benchmark::kMillisecond)->UseRealTime();

void post_mortem_to_a_file(benchmark::State& state) {
  const test::TemporaryFolder folder;
  const auto path = (folder.path() / "full.json").string();
  const auto view = full_file().view();
  for (auto _ : state) benchmark::DoNotOptimize(write_post_mortem(view, path, "benchmark"));
  target(state, 100e6);
}
BENCHMARK(post_mortem_to_a_file)->Unit(benchmark::kMillisecond)->UseRealTime();

void post_mortem_read_back(benchmark::State& state) {
  const auto text = test::post_mortem_text(full_file().view());
  std::size_t events = 0;
  for (auto _ : state) {
    const auto dump = read_post_mortem(text, "benchmark");
    events = dump->events.size();
  }
  state.counters["events"] = static_cast<double>(events);
}
BENCHMARK(post_mortem_read_back)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace headroom::bench
