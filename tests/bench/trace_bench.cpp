// Reading and replaying a recorded history.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include <unistd.h>

#include <headroom/trace.hpp>

#include "managers.hpp"
#include "timing.hpp"

namespace headroom::bench {
namespace {

// A plain CSV of about a million events, made once: the shipped histories are compressed and small.
std::string const& large_history() {
  static const std::string path = [] {
    std::string name = "/tmp/headroom-bench-" + std::to_string(getpid()) + ".csv";
    std::ofstream file{name};
    file << "Thread,Time,Action,Pointer,Size,Stream\n";
    for (int i = 0; i < 500'000; ++i) {
      file << "0," << i * 10 << ",allocate,0x7f3c85" << std::hex << 0x100000 + i % 4096 * 256 << std::dec << "," << 1000 + i % 777
           << ",0\n";
      file << "0," << i * 10 + 5 << ",free,0x7f3c85" << std::hex << 0x100000 + i % 4096 * 256 << std::dec << "," << 1000 + i % 777
           << ",0\n";
    }
    std::atexit([] { std::remove(large_history().c_str()); });
    return name;
  }();
  return path;
}

void read_plain_csv(benchmark::State& state) {
  std::uint64_t events = 0;
  for (auto _ : state) {
    auto reader = TraceReader::open(large_history());
    if (!reader) return state.SkipWithError(reader.error().to_string().c_str());
    for (auto batch = reader->next_batch(); batch && !batch->empty(); batch = reader->next_batch()) events += batch->size();
  }
  state.counters["events_per_second"] = benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}
BENCHMARK(read_plain_csv)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace headroom::bench
