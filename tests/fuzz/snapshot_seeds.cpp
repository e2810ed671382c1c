// Writes the seed corpus of snapshot_fuzz into a folder: snapshots that were made up, and one of PyTorch's own. The first two bytes say
// what is done with each, see there.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <lzma.h>

#include "made_snapshots.hpp"

namespace {

using namespace headroom::test;
using made::block;
using made::entry;
using made::segment;

/// A file of tests/data, unpacked; empty where it cannot be.
std::string unpacked(std::string_view name) {
  std::ifstream stream{std::string{HEADROOM_TEST_DATA} + '/' + std::string{name}, std::ios::binary};
  std::string const packed{std::istreambuf_iterator<char>{stream}, {}};
  std::string whole(std::size_t{4} << 20U, '\0');
  std::uint64_t memory = std::uint64_t{256} << 20U;
  std::size_t from = 0;
  std::size_t to = 0;
  auto const code = lzma_stream_buffer_decode(&memory, 0, nullptr, reinterpret_cast<std::uint8_t const*>(packed.data()), &from,
                                              packed.size(), reinterpret_cast<std::uint8_t*>(whole.data()), &to, whole.size());
  whole.resize(code == LZMA_OK ? to : 0);
  return whole;
}

std::vector<std::string> snapshots() {
  auto const frames = pickled::remembered(pickled::list({made::frame("a.py", 1, "f"), made::frame("b.py", 2, "g")}), 0);
  auto const blocks = segment(0, 0x1000, 1536,
                              {block({.bytes = 512, .requested = 500}), block({.bytes = 512, .state = "inactive"}),
                               block({.address = 0x1400, .bytes = 512, .state = "active_awaiting_free"})});
  auto const trace = std::vector{entry("alloc", 0x10, 5, 1, {{"frames", frames}, {"category", pickled::text("weights")}}),
                                 entry("free_requested", 0x10, 5, 2), entry("free_completed", 0x10, 5, 3),
                                 entry("free_completed", 0x20, 7, 4), entry("oom", 0, 9, 5, {{"frames", pickled::again(0)}})};
  auto const annotation = pickled::dict({{"stage", pickled::text("START")},
                                         {"name", pickled::text("step")},
                                         {"device", pickled::integer(0)},
                                         {"time_us", pickled::integer(2)}});
  return {made::snapshot({blocks}, {trace}, {{"external_annotations", pickled::list({annotation})}}),
          made::snapshot({}, {{entry("alloc", 1, 1, 1), entry("free_requested", 1, 1, 2)}, {}, {entry("alloc", 1, 1, 1)}}),
          pickled::pickle(pickled::list({blocks})),
          made::snapshot({blocks, blocks}, {}),
          unpacked("torch-2.11-middle.pickle.xz"),
          "(dp0\n."};
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    static_cast<void>(std::fprintf(stderr, "usage: snapshot_seeds FOLDER\n"));
    return 2;
  }
  const std::filesystem::path folder{arguments[1]};
  std::filesystem::create_directories(folder);
  bool good = true;
  for (const char how : {char{0}, char{1}, char{6}, char{8}, char{15}}) {
    int number = 0;
    for (auto const& snapshot : snapshots()) {
      std::ofstream file{folder / (std::to_string(how) + "-" + std::to_string(number++)), std::ios::binary | std::ios::trunc};
      file << how << '\x08' << snapshot;
      good = good && !snapshot.empty() && file.good();
    }
  }
  return good ? 0 : 1;
}
