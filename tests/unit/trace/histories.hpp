// Helpers for tests that write histories of their own.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <lzma.h>
#include <unistd.h>
#include <zlib.h>

#include <gtest/gtest.h>

#include <headroom/trace.hpp>

namespace headroom::test {

inline constexpr std::string_view kHeader = "Thread,Time,Action,Pointer,Size,Stream\n";

/// A folder of its own for every test, removed at the end.
class TempFolder {
public:
  TempFolder() {
    auto pattern = (std::filesystem::temp_directory_path() / "headroom-trace-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
    path_ = pattern;
  }
  TempFolder(TempFolder const&) = delete;
  TempFolder& operator=(TempFolder const&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  /// Writes a file and returns its path.
  [[nodiscard]] std::string write(std::string_view content, std::string const& name = "history.csv") const {
    auto const path = path_ / name;
    std::ofstream{path, std::ios::binary} << content;
    return path.string();
  }

  [[nodiscard]] std::string path(std::string const& name) const { return (path_ / name).string(); }

private:
  std::filesystem::path path_;
};

[[nodiscard]] inline std::string xz(std::string const& text) {
  std::string packed(text.size() + 4'096, '\0');
  std::size_t size = 0;
  auto const code = lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<std::uint8_t const*>(text.data()),
                                            text.size(), reinterpret_cast<std::uint8_t*>(packed.data()), &size, packed.size());
  EXPECT_EQ(code, LZMA_OK);
  packed.resize(size);
  return packed;
}

[[nodiscard]] inline std::string gzip(std::string text) {
  std::string packed(text.size() + 4'096, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2_(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY, ZLIB_VERSION, static_cast<int>(sizeof(stream))),
            Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

struct ReadAll {
  std::vector<TraceEvent> events;
  std::vector<std::uint64_t> thread_ids;
  TraceCompression compression = TraceCompression::none;
  std::string error;  // empty: none
  ErrorKind kind = ErrorKind::driver;
};

/// Everything a file has to give, up to its error.
[[nodiscard]] inline ReadAll read_all(std::string const& path) {
  ReadAll all;
  auto const note = [&all](Error const& error) {
    all.error = error.to_string();
    all.kind = error.kind;
    EXPECT_EQ(error.layer, Layer::request);
  };
  auto reader = TraceReader::open(path);
  if (!reader) {
    note(reader.error());
    return all;
  }
  all.compression = reader->compression();
  while (true) {
    auto const batch = reader->next_batch();
    if (!batch) {
      note(batch.error());
      // The error stays: nobody who calls once more takes the history for whole.
      EXPECT_EQ(reader->next_batch().error().message, all.error);
      break;
    }
    if (batch->empty()) break;
    all.events.insert(all.events.end(), batch->begin(), batch->end());
  }
  all.thread_ids.assign(reader->thread_ids().begin(), reader->thread_ids().end());
  return all;
}

}  // namespace headroom::test
