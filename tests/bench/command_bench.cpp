// What `headroom ps`, `fit` and `check` wait for.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <headroom/fit.hpp>
#include <headroom/flight_check.hpp>

#include "flight_builder.hpp"
#include "timing.hpp"

namespace headroom::bench {
namespace {

namespace fs = std::filesystem;
using namespace flight;  // NOLINT(google-build-using-namespace): all of it is about flight files

constexpr std::uint64_t kFlights = 200;

/// A file of the usual size: four managers of twenty tags each, eight threads of which every other one is at work.
void fill(FlightBuilder& file) {
  file.header().start_realtime_ns = 1;
  std::uint32_t id = 1;
  for (std::uint32_t cell = 0; cell < 4; ++cell) {
    auto const ledger = id;
    file.open_ledger(cell, id++, "manager " + std::to_string(cell));
    for (std::uint32_t tag = 0; tag < 20; ++tag)
      file.put_name(id++, EntryKind::tag, ledger, cell * 20 + tag, "tag " + std::to_string(tag));
  }
  for (std::uint32_t lane = 0; lane < 8; ++lane) {
    file.lane(lane).header.owner = 1000 + lane;
    if (lane % 2 == 0) file.lane(lane).header.in_flight = pack_in_flight(InFlight::allocating, lane % 4, 4096);
    for (std::uint64_t i = 0; i < 3'000; ++i) file.write(lane, Ring::main, record(EventKind::allocate, i));
  }
  file.header().lanes_used = 8;
}

/// Two hundred of them, in memory and sparse; gone at the end.
std::string const& folder() {
  // Never destroyed: the handler below needs it at the very end.
  static std::string const& path = *new std::string{[] {
    std::string pattern = fs::exists("/dev/shm") ? "/dev/shm/headroom-bench-XXXXXX" : "/tmp/headroom-bench-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    FlightBuilder file{Sizes{}};
    fill(file);
    auto const bytes = file.bytes();
    constexpr std::size_t kPage = 4096;
    static constexpr std::array<std::byte, kPage> kNothing{};
    for (std::uint64_t i = 0; i < kFlights; ++i) {
      auto const name = pattern + "/train." + std::to_string(i + 1) + ".0123456789abcdef.flight";
      auto const fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes.size())) != 0) std::abort();
      for (std::size_t at = 0; at < bytes.size(); at += kPage) {
        auto const page = bytes.subspan(at, std::min(kPage, bytes.size() - at));
        if (std::ranges::equal(page, std::span{kNothing}.first(page.size()))) continue;
        if (::pwrite(fd, page.data(), page.size(), static_cast<off_t>(at)) != static_cast<ssize_t>(page.size())) std::abort();
      }
      ::close(fd);
    }
    std::atexit([] {
      std::error_code ignored;
      fs::remove_all(folder(), ignored);
    });
    return pattern;
  }()};
  return path;
}

/// All that `headroom ps --threads` reads of 200 files.
void ps_of_200_files(benchmark::State& state) {
  static_cast<void>(folder());  // made before the clock runs
  for (auto _ : state) {
    auto const found = find_flights(folder());
    if (!found || found->size() != kFlights) return state.SkipWithError("the files are not there");
    for (auto const& file : *found) {
      auto const view = FlightView::open(file.path);
      if (!view) return state.SkipWithError(view.error().message.c_str());
      benchmark::DoNotOptimize(view->process());
      benchmark::DoNotOptimize(view->liveness());
      benchmark::DoNotOptimize(view->all_ledgers());
      benchmark::DoNotOptimize(view->lanes());
      benchmark::DoNotOptimize(view->in_flight());
      benchmark::DoNotOptimize(view->hooks());
      benchmark::DoNotOptimize(view->clock());
    }
  }
}
BENCHMARK(ps_of_200_files)->Unit(benchmark::kMillisecond)->UseRealTime();

void check_of_a_flight_file(benchmark::State& state) {
  FlightBuilder file{Sizes{}};
  fill(file);
  auto const view = file.view();
  for (auto _ : state) benchmark::DoNotOptimize(check_flight(view, {.dead = true}).found);
}
BENCHMARK(check_of_a_flight_file)->Unit(benchmark::kMillisecond)->UseRealTime();

void fit_of_a_history(benchmark::State& state) {
  constexpr std::array<const char*, 4> kNames = {"gpt2", "oom_batch", "resnet", "vit_threads"};
  std::string const name = kNames[static_cast<std::size_t>(state.range(0))];
  state.SetLabel(name);
  for (auto _ : state) {
    auto const history = TraceHistory::load(std::string{HEADROOM_TEST_DATA} + "/" + name + ".csv.xz");
    if (!history) return state.SkipWithError(history.error().message.c_str());
    benchmark::DoNotOptimize(fit(*history).smallest_budget_bytes);
  }
}
BENCHMARK(fit_of_a_history)->DenseRange(0, 3)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace headroom::bench
