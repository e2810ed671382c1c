// Reading a memory snapshot of PyTorch, all passes together.
#include <cstdint>
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

// Opcodes of protocol 4, as Python's pickler writes them for such a snapshot; numbers are little-endian like this machine.
void put_text(std::string& out, std::string_view text) {
  out += '\x8c';
  out += static_cast<char>(text.size());
  out += text;
}
void put_number(std::string& out, std::uint64_t number) {
  out += "\x8a\x08";
  out.append(reinterpret_cast<char const*>(&number), sizeof number);
}

// 300,000 entries that share one stack; every third one is an allocation, two are its free.
std::string snapshot() {
  std::string out{"\x80\x04}("};
  put_text(out, "segments");
  out += ']';
  put_text(out, "device_traces");
  out += "](](";
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    for (std::string_view const action : {"alloc", "free_requested", "free_completed"}) {
      out += "}(";
      put_text(out, "action");
      put_text(out, action);
      put_text(out, "addr");
      put_number(out, 0x7f3c85000000 + i % 4096 * 0x100000);
      put_text(out, "size");
      put_number(out, 1000 + i % 777);
      put_text(out, "stream");
      put_number(out, 0);
      put_text(out, "time_us");
      put_number(out, 1'776'479'641'085'368 + i);
      put_text(out, "frames");
      if (i == 0 && action == "alloc") {
        out += "](}(";
        put_text(out, "filename");
        put_text(out, "train.py");
        put_text(out, "line");
        put_number(out, 54);
        put_text(out, "name");
        put_text(out, "step");
        out += "ueq\x01";  // SETITEMS APPENDS BINPUT 1
      } else {
        out += "h\x01";  // BINGET 1
      }
      out += 'u';
    }
    if (i % 333 == 332) out += "e(";  // in batches of about a thousand
  }
  out += "eeu.";
  return out;
}

std::string const& large_snapshot() {
  static const std::string path = [] {
    std::string name = "/tmp/headroom-bench-" + std::to_string(getpid()) + ".pickle";
    std::ofstream{name, std::ios::binary} << snapshot();
    std::atexit([] { std::remove(large_snapshot().c_str()); });
    return name;
  }();
  return path;
}

void read_torch_snapshot(benchmark::State& state) {
  std::uint64_t entries = 0;
  for (auto _ : state) {
    auto reader = TraceReader::open(large_snapshot());
    if (!reader) return state.SkipWithError(reader.error().to_string().c_str());
    auto const summary = summarize_trace(*reader);
    if (!summary) return state.SkipWithError(summary.error().to_string().c_str());
    if (summary->allocations != 100'000 || summary->live_allocations != 0) return state.SkipWithError("another history");
    entries += 300'000;
  }
  state.counters["entries_per_second"] = benchmark::Counter(static_cast<double>(entries), benchmark::Counter::kIsRate);
}
BENCHMARK(read_torch_snapshot)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace headroom::bench
