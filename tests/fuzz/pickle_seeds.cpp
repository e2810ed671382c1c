// Writes the seed corpus of pickle_fuzz into a folder: a byte that says in what pieces to read, and a pickle.
//
// Small ones by hand, one for each opcode and each way in which lists stand in each other; and the beginnings of real snapshots, from
// tests/data where they lie there.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <lzma.h>

namespace {

/// The first bytes of what was compressed; empty when the file cannot be read.
std::string beginning_of(std::filesystem::path const& path, std::size_t bytes) {
  std::ifstream file{path, std::ios::binary};
  std::string const packed{std::istreambuf_iterator<char>{file}, {}};
  std::string text(bytes, '\0');
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, UINT64_MAX, 0) != LZMA_OK) return {};
  stream.next_in = reinterpret_cast<std::uint8_t const*>(packed.data());
  stream.avail_in = packed.size();
  stream.next_out = reinterpret_cast<std::uint8_t*>(text.data());
  stream.avail_out = text.size();
  auto const result = lzma_code(&stream, LZMA_RUN);
  text.resize(text.size() - stream.avail_out);
  lzma_end(&stream);
  return result == LZMA_OK || result == LZMA_STREAM_END ? text : std::string{};
}

std::vector<std::string> small_ones() {
  using namespace std::string_literals;
  auto const text = [](std::string const& word) { return "\x8C"s + static_cast<char>(word.size()) + word; };
  auto const entry = "}\x94(" + text("action") + "\x94" + text("alloc") + text("addr") + "\x8A\x06\0\0\0\0\x9C\x7F"s +
                     text("size") + "M\0\x02"s + text("frames") + "]\x94u";
  return {
      ".",
      "N.",
      "\x88.",
      "\x89.",
      "J\xFE\xFF\xFF\xFF.",
      "K\x07.",
      "M\x01\x02.",
      "\x8A\x09\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0."s,
      "\x8B\x01\0\0\0\x07."s,
      "G\x3F\xF8\0\0\0\0\0\0."s,
      text("k") + ".",
      "X\x01\0\0\0k."s,
      "\x8D\x01\0\0\0\0\0\0\0k."s,
      "U\x01k.",
      "T\x01\0\0\0k."s,
      "C\x01k.",
      "B\x01\0\0\0k."s,
      "\x8E\x01\0\0\0\0\0\0\0k."s,
      "\x96\x01\0\0\0\0\0\0\0k."s,
      "]K\x01"s + "a(K\x02K\x03"s + "e.",
      "(K\x01K\x02lN"s + "a.",
      "()NN\x86\x85N\x88\x89\x87t.",
      "(" + text("k") + "Nd(" + text("m") + "Nu" + text("n") + "Ns.",
      "N(NN10(0\x32\x86.",
      text("k") + "q\0r\x01\0\0\0\x94h\0h\x01j\x02\0\0\0\x87\x86."s,
      "]\x94h\0"s + "a.",
      "]\x94}K\x01h\0s"s + "a.",
      "\x95\x02\0\0\0\0\0\0\0N."s,
      "](]\x94](K\x01K\x02"s + "eh\0e."s,
      "]]]K\x01"s + "aaa.",
      "cos\nsystem\n.",
      "}(" + text("segments") + "](}N0" + "e" + text("device_traces") + "](](" + entry + entry + "e]" + entry + "aeu.",
      "}(" + text("device_traces") + "\x94]" + "](" + entry + "e(" + entry + "h\0"s + "eau.",
  };
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    static_cast<void>(std::fprintf(stderr, "usage: pickle_seeds FOLDER\n"));
    return 2;
  }
  const std::filesystem::path folder{arguments[1]};
  std::filesystem::create_directories(folder);
  auto seeds = small_ones();
  for (auto& seed : seeds) seed.insert(0, "\x80\x04");
  for (auto const& file : std::filesystem::directory_iterator{HEADROOM_TEST_DATA}) {
    auto const name = file.path().filename().string();
    if (!name.starts_with("torch-") || !name.ends_with(".pickle.xz")) continue;
    for (std::size_t const bytes : {600U, 4'000U}) seeds.push_back(beginning_of(file.path(), bytes));
  }
  bool good = true;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    std::ofstream file{folder / std::to_string(i), std::ios::binary | std::ios::trunc};
    file << static_cast<char>(i) << seeds[i];
    good = good && file.good();
  }
  return good ? 0 : 1;
}
