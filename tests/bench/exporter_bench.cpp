// What a scrape of a program costs, and what it costs the program.
#include <algorithm>
#include <atomic>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <headroom/exporter.hpp>

#include "scraping.hpp"
#include "service.hpp"
#include "timing.hpp"

namespace headroom::bench {
namespace {

using exporter::Service;

constexpr std::string_view kOpenMetrics = "application/openmetrics-text; version=1.0.0";
constexpr std::string_view kGzip = "Accept-Encoding: gzip\r\n";
constexpr std::size_t kFew = 500;
const AllocTag kTag{"bench"};

std::size_t series_of(Service& service) { return count_series(service.metrics().body); }

/// Collecting and printing, without HTTP. The goal is 1.5 ms for 500 series and 150 ms for 100,000: 1.5 µs a series at the most.
void scrape(benchmark::State& state, std::string_view accept) {
  Service service;
  const Population population{static_cast<std::size_t>(state.range(0)), [&] { return series_of(service); }};
  const exporter::Request request{.accept = std::string{accept}};
  std::size_t bytes = 0;
  ScrapeTimer timer;
  for (auto _ : state) {
    bytes = timer.run([&] { return service.metrics(request); }).body.size();
  }
  auto const series = static_cast<double>(series_of(service));
  state.counters["series"] = series;
  state.counters["kib"] = static_cast<double>(bytes) / 1024.0;
  timer.report(state, std::max(1.5e6, 1'500.0 * series));
}
// The last is all that one program can have: 64 managers, their tags and hooks. For 100,000 see node_bench.cpp.
BENCHMARK_CAPTURE(scrape, text, "")
    ->Name("exporter/scrape/text")
    ->Arg(kFew)
    ->Arg(10'000)
    ->Arg(100'000)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(scrape, open_metrics, kOpenMetrics)
    ->Name("exporter/scrape/open_metrics")
    ->Arg(kFew)
    ->Arg(10'000)
    ->Arg(100'000)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

/// The same through a socket, with the client's part.
void scrape_over_http(benchmark::State& state, std::string_view headers) {
  auto exporter = Exporter::start({.listen = "127.0.0.1:0", .policy = BindPolicy::fail});
  if (!exporter) return state.SkipWithError(exporter.error().message.c_str());
  Service counts;
  const Population population{kFew, [&] { return series_of(counts); }};
  ScrapeClient client{exporter->port()};
  std::size_t bytes = 0;
  ScrapeTimer timer;
  for (auto _ : state) {
    bytes = timer.run([&] { return client.scrape(headers); });
    if (bytes == 0) return state.SkipWithError("a scrape failed");
  }
  state.counters["series"] = static_cast<double>(series_of(counts));
  state.counters["kib"] = static_cast<double>(bytes) / 1024.0;
  timer.report(state, 1.5e6);
}
BENCHMARK_CAPTURE(scrape_over_http, plain, "")->Name("exporter/http/plain")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(scrape_over_http, gzip, kGzip)->Name("exporter/http/gzip")->Unit(benchmark::kMillisecond)->UseRealTime();

/// Scrapes in a loop on a thread of its own, while it is told to.
class Scraper {
public:
  explicit Scraper(Service& service) : service_{service}, thread_{[this] { run(); }} {}
  Scraper(Scraper const&) = delete;
  Scraper& operator=(Scraper const&) = delete;
  ~Scraper() {
    tell(kEnd);
    thread_.join();
  }
  /// Returns once a scrape has begun.
  void on() {
    tell(kOn);
    auto const before = begun_.load(std::memory_order_relaxed);
    while (begun_.load(std::memory_order_relaxed) == before) std::this_thread::yield();
  }
  /// Returns once it sleeps.
  void off() {
    tell(kOff);
    while (!asleep_.load(std::memory_order_acquire)) std::this_thread::yield();
  }
  [[nodiscard]] std::uint64_t begun() const { return begun_.load(std::memory_order_relaxed); }

private:
  static constexpr int kOff = 0;
  static constexpr int kOn = 1;
  static constexpr int kEnd = 2;
  void tell(int what) {
    told_.store(what, std::memory_order_release);
    told_.notify_one();
  }
  void run() {
    for (int told = kOff; told != kEnd; told = told_.load(std::memory_order_acquire)) {
      if (told == kOff) {
        asleep_.store(true, std::memory_order_release);
        told_.wait(kOff, std::memory_order_acquire);
        asleep_.store(false, std::memory_order_release);
        continue;
      }
      begun_.fetch_add(1, std::memory_order_relaxed);
      benchmark::DoNotOptimize(service_.metrics().body.data());
    }
  }

  Service& service_;
  std::atomic<int> told_{kOff};          // written by the measuring thread, read by this one; release and acquire: a signal
  std::atomic<bool> asleep_{false};      // written by this thread, read by the measuring one, likewise
  std::atomic<std::uint64_t> begun_{0};  // likewise; relaxed: a count
  std::thread thread_;
};

/// ns of an allocation and its free, over a batch.
double pair_ns(GpuMemoryManager& manager) {
  constexpr int kBatch = 20'000;
  auto const start = ticks_now();
  for (int i = 0; i < kBatch; ++i) benchmark::DoNotOptimize(manager.alloc<std::byte>(1024, kTag));
  return static_cast<double>(ticks_to_ns(ticks_now() - start)) / kBatch;
}

double at(std::vector<double>& values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

/// One thread allocates, batch after batch, while another scrapes during every third one. Each round has three, in an order that
/// changes: alone, with scrapes, alone again. `slower_pct`: with scrapes against alone, of the same round, the middle one of all rounds;
/// `noise_…`: the second alone against the first. Where the middle 80 % of the one reach beyond those of the other, scrapes cost something.
void allocation_beside_scrapes(benchmark::State& state) {
  Service service;
  Population population{kFew, [&] { return series_of(service); }};
  auto& manager = population.manager();
  Scraper scraper{service};
  std::vector<double> alone;
  std::vector<double> slower;
  std::vector<double> noise;
  std::uint64_t scrapes = 0;
  std::size_t turn = 0;
  scraper.off();
  static_cast<void>(pair_ns(manager));
  for (auto _ : state) {
    std::array<double, 3> ns{};  // alone, with scrapes, alone
    for (std::size_t i = 0; i < ns.size(); ++i) {
      auto const which = (turn + i) % ns.size();
      auto const before = scraper.begun();
      if (which == 1) scraper.on();
      ns[which] = pair_ns(manager);
      if (which == 1) scraper.off();
      scrapes += scraper.begun() - before;
    }
    ++turn;
    alone.push_back(ns[0]);
    slower.push_back(100 * (2 * ns[1] / (ns[0] + ns[2]) - 1));
    noise.push_back(100 * (ns[2] / ns[0] - 1));
    state.SetIterationTime(ns[1] / 1e9);
  }
  state.counters["alone_ns"] = at(alone, 0.5);
  state.counters["slower_pct"] = at(slower, 0.5);
  state.counters["slower_p10_pct"] = at(slower, 0.1);
  state.counters["slower_p90_pct"] = at(slower, 0.9);
  state.counters["noise_p10_pct"] = at(noise, 0.1);
  state.counters["noise_p90_pct"] = at(noise, 0.9);
  state.counters["scrapes"] = static_cast<double>(scrapes);
}
BENCHMARK(allocation_beside_scrapes)->Name("exporter/allocation_beside_scrapes")->Iterations(60)->UseManualTime();

/// Scrapes over two connections that overlap, while a thread makes ten million events. The time is that of the writer.
void scrapes_during_ten_million_events(benchmark::State& state) {
  constexpr std::uint64_t kPairs = 5'000'000;  // an event for the allocation, one for the free
  auto exporter = Exporter::start({.listen = "127.0.0.1:0", .policy = BindPolicy::fail});
  if (!exporter) return state.SkipWithError(exporter.error().message.c_str());
  Service counts;
  Population population{kFew, [&] { return series_of(counts); }};
  auto& manager = population.manager();
  std::array<ScrapeTimer, 2> timers;
  for (auto _ : state) {
    std::atomic<bool> is_over{false};  // written by the writer, read by the clients; relaxed: joined afterwards
    std::atomic<bool> failed{false};   // written by the clients; relaxed, likewise
    std::vector<std::thread> clients;
    for (auto& timer : timers) {
      clients.emplace_back([&] {
        ScrapeClient client{exporter->port()};
        while (!is_over.load(std::memory_order_relaxed)) {
          if (timer.run([&] { return client.scrape(); }) == 0) failed.store(true, std::memory_order_relaxed);
        }
      });
    }
    for (std::uint64_t i = 0; i < kPairs; ++i) benchmark::DoNotOptimize(manager.alloc<std::byte>(1024, kTag));
    is_over.store(true, std::memory_order_relaxed);
    for (auto& client : clients) client.join();
    if (failed.load(std::memory_order_relaxed)) return state.SkipWithError("a scrape failed");
  }
  ScrapeTimer all;
  for (auto const& timer : timers) all.add(timer);
  state.counters["scrapes"] = static_cast<double>(all.count());
  state.counters["scrape_p50_ms"] = all.wall_ms(0.5);
  state.counters["scrape_p99_ms"] = all.wall_ms(0.99);
  state.counters["scrape_max_ms"] = all.wall_ms(1.0);
  state.counters["goal_scrape_p99_ms"] = 50;
}
BENCHMARK(scrapes_during_ten_million_events)
    ->Name("exporter/scrapes_during_ten_million_events")
    ->Iterations(1)
    ->Repetitions(3)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

/// A hundred thousand scrapes over HTTP, in either format, packed and not; how much memory the process holds before and after. malloc
/// hands out no less than 32 bytes: whatever is forgotten once a scrape would make it 3,125 KiB.
void memory_over_100000_scrapes(benchmark::State& state) {
  constexpr int kScrapes = 100'000;
  constexpr int kWarm = 1'000;
  auto exporter = Exporter::start({.listen = "127.0.0.1:0", .policy = BindPolicy::fail});
  if (!exporter) return state.SkipWithError(exporter.error().message.c_str());
  Service counts;
  const Population population{kFew, [&] { return series_of(counts); }};
  ScrapeClient client{exporter->port()};
  auto const open_metrics = "Accept: " + std::string{kOpenMetrics} + "\r\n";
  auto const scrape_one = [&](int number) {
    if (number % 10 == 0) return client.scrape(kGzip);
    return number % 10 == 1 ? client.scrape(open_metrics) : client.scrape();
  };
  for (auto _ : state) {
    for (int i = 0; i < kWarm; ++i) {
      if (scrape_one(i) == 0) return state.SkipWithError("a scrape failed");
    }
    auto const before = resident_kib();
    for (int i = 0; i < kScrapes; ++i) {
      if (scrape_one(i) == 0) return state.SkipWithError("a scrape failed");
    }
    auto const after = resident_kib();
    state.counters["before_kib"] = before;
    state.counters["after_kib"] = after;
    state.counters["grown_kib"] = after - before;
    state.counters["goal_grown_kib"] = 1'024;
  }
}
BENCHMARK(memory_over_100000_scrapes)
    ->Name("exporter/memory_over_100000_scrapes")
    ->Iterations(1)
    ->Repetitions(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace headroom::bench
