// Bytes that a reader may be handed, for fuzzers: packed, and as a file that never touches a disk.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <lzma.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

namespace headroom::fuzz {

inline void expect(bool good, std::string const& what) {
  if (good) return;
  static_cast<void>(std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str()));
  std::abort();
}

[[nodiscard]] inline std::string gzip(std::string_view text) {
  std::string packed(text.size() + 4'096, '\0');
  std::string from{text};
  z_stream stream{};
  expect(deflateInit2_(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY, ZLIB_VERSION, static_cast<int>(sizeof stream)) ==
             Z_OK,
         "deflateInit2");
  stream.next_in = reinterpret_cast<Bytef*>(from.data());
  stream.avail_in = static_cast<uInt>(from.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  expect(deflate(&stream, Z_FINISH) == Z_STREAM_END, "deflate");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

[[nodiscard]] inline std::string xz(std::string_view text) {
  std::string packed(text.size() + 4'096, '\0');
  std::size_t size = 0;
  expect(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC32, nullptr, reinterpret_cast<std::uint8_t const*>(text.data()), text.size(),
                                 reinterpret_cast<std::uint8_t*>(packed.data()), &size, packed.size()) == LZMA_OK,
         "lzma_easy_buffer_encode");
  packed.resize(size);
  return packed;
}

/// A memfd, which is a file like any other to whoever reads it.
class MemoryFile {
public:
  explicit MemoryFile(std::string_view content) : descriptor_{::memfd_create("history", MFD_CLOEXEC)} {
    expect(descriptor_ >= 0 && ::write(descriptor_, content.data(), content.size()) == static_cast<ssize_t>(content.size()),
           "memfd");
    path_ = "/proc/self/fd/" + std::to_string(descriptor_);
  }
  MemoryFile(MemoryFile const&) = delete;
  MemoryFile& operator=(MemoryFile const&) = delete;
  ~MemoryFile() { ::close(descriptor_); }
  [[nodiscard]] std::string const& path() const { return path_; }
  /// Its first bytes, at most `count`; whoever reads the descriptor afterwards finds the rest.
  [[nodiscard]] std::string take(std::size_t count) const {
    std::string bytes(count, '\0');
    auto const got = ::lseek(descriptor_, 0, SEEK_SET) == 0 ? ::read(descriptor_, bytes.data(), count) : -1;
    expect(got >= 0, "reading the memfd");
    bytes.resize(static_cast<std::size_t>(got));
    return bytes;
  }
  [[nodiscard]] int descriptor() const { return descriptor_; }

private:
  int descriptor_;
  std::string path_;
};

}  // namespace headroom::fuzz
