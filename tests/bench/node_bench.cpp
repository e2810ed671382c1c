// What a scrape of a node exporter costs, and what it keeps in memory for living processes.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include "flight_builder.hpp"
#include "node_service.hpp"
#include "scraping.hpp"

namespace headroom::bench {
namespace {

namespace fs = std::filesystem;
using namespace flight;  // NOLINT(google-build-using-namespace): all of it is about flight files

/// Managers of five tags each that have done a little of everything; four threads.
void fill(FlightBuilder& file, std::uint32_t managers) {
  auto& header = file.header();
  std::strcpy(header.program, "train.py");
  std::strcpy(header.host, "trainer-0-7f9c");
  std::strcpy(header.version, "0.1.0");
  header.start_realtime_ns = 1;
  header.lanes_used = 4;
  std::uint32_t id = 1;
  file.put_name(id++, EntryKind::device, 0, 0, "NVIDIA H200\tGPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
  std::uint32_t tag_cell = 0;
  for (std::uint32_t cell = 0; cell < managers; ++cell) {
    auto const ledger = id;
    auto& books = file.open_ledger(cell, id++, "manager " + std::to_string(cell));
    books.device_id = 1;
    books.limit = kLimitEnforcing | (std::uint64_t{1} << 36);
    books.claim = std::uint64_t{1} << 35;
    books.alloc = std::uint64_t{1} << 35;
    for (std::uint32_t tag = 0; tag < 5; ++tag) {
      file.put_name(id++, EntryKind::tag, ledger, tag_cell, "tag " + std::to_string(tag));
      for (std::uint32_t lane = 0; lane < 4; ++lane) file.lane(lane).tags[tag_cell].bytes = 1'234'567;
      ++tag_cell;
    }
    for (std::uint32_t lane = 0; lane < 4; ++lane) {
      auto& counters = file.lane(lane).counters[cell];
      counters.allocations = 123'456;
      counters.frees = 120'000;
      counters.allocation_bytes = 987'654'321'000;
      counters.size_histogram[20] = 123'456;
      counters.duration_histogram[12] = 123'456;
      counters.use_histogram[30] = 123'456;
    }
  }
  for (std::uint32_t lane = 0; lane < 4; ++lane) file.lane(lane).header.owner = 1000 + lane;
}

/// Files whose lock this process holds: they look alive.
class LivingFiles {
public:
  LivingFiles(std::uint64_t processes, std::uint32_t managers)
      : path_{fs::exists("/dev/shm") ? "/dev/shm/headroom-node-bench-XXXXXX" : "/tmp/headroom-node-bench-XXXXXX"} {
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
    FlightBuilder file{Sizes{}};
    fill(file, managers);
    for (std::uint64_t i = 0; i < processes; ++i) {
      file.header().pid = i + 1;
      file.header().run = (i + 1) << 32;
      write(file, path_ + "/train.py." + std::to_string(i + 1) + ".0123456789abcdef.flight");
    }
  }
  LivingFiles(LivingFiles const&) = delete;
  LivingFiles& operator=(LivingFiles const&) = delete;
  ~LivingFiles() {
    for (const int fd : locks_) ::close(fd);
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string const& path() const { return path_; }

private:
  void write(FlightBuilder const& file, std::string const& name) {
    auto const bytes = file.bytes();
    auto const fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes.size())) != 0) std::abort();
    constexpr std::size_t kPage = 4096;
    static constexpr std::array<std::byte, kPage> kNothing{};
    for (std::size_t at = 0; at < bytes.size(); at += kPage) {
      auto const page = bytes.subspan(at, std::min(kPage, bytes.size() - at));
      if (std::memcmp(page.data(), kNothing.data(), page.size()) == 0) continue;
      if (::pwrite(fd, page.data(), page.size(), static_cast<off_t>(at)) != static_cast<ssize_t>(page.size())) std::abort();
    }
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (::fcntl(fd, F_OFD_SETLK, &lock) != 0) std::abort();
    locks_.push_back(fd);
  }

  std::string path_;
  std::vector<int> locks_;
};

/// Reading the files and printing them, without HTTP. `grown_mib`: by how much the process grew, the text in hand included; `rss_mib`:
/// what it holds in all, this benchmark's program among it. The goals are 50 ms for 200 processes, and 150 ms for each 100,000 series
/// where they are so many.
void node_scrape(benchmark::State& state) {
  LivingFiles const files{static_cast<std::uint64_t>(state.range(0)), static_cast<std::uint32_t>(state.range(1))};
  static_cast<void>(::malloc_trim(0));  // what the files were made in is no part of it
  auto const before = resident_kib();
  exporter::NodeService::Options options;
  options.folders = {files.path()};
  options.writes_post_mortems = false;
  exporter::NodeService service{options};
  if (auto const started = service.start(); !started) return state.SkipWithError(started.error().message.c_str());
  std::size_t series = 0;
  double resident = 0;
  ScrapeTimer timer;
  for (auto _ : state) {
    auto const reply = timer.run([&] { return service.metrics(); });
    resident = std::max(resident, resident_kib());
    state.PauseTiming();
    series = count_series(reply.body);
    state.ResumeTiming();
  }
  state.counters["series"] = static_cast<double>(series);
  state.counters["rss_mib"] = resident / 1024.0;
  state.counters["grown_mib"] = (resident - before) / 1024.0;
  state.counters["goal_grown_mib"] = 64;
  auto const target_ns = series > 100'000 ? 1'500.0 * static_cast<double>(series) : 50e6;
  state.counters["goal_cpu_ms"] = target_ns / 1e6;
  timer.report(state, target_ns);
}
BENCHMARK(node_scrape)
    ->Name("exporter/node")
    ->ArgNames({"processes", "managers"})
    ->Args({200, 1})
    ->Args({100, 4})
    ->Args({200, 4})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace headroom::bench
