#include "gzip.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>

#include <zlib.h>

namespace headroom::exporter {

struct Gzip::State {
  z_stream stream{};

  State() {
    constexpr int kGzipHeader = 16;
    constexpr int kMemory = 8;
    if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, MAX_WBITS + kGzipHeader, kMemory, Z_DEFAULT_STRATEGY) != Z_OK) {
      throw std::runtime_error{"zlib cannot start"};
    }
  }
  ~State() { (void)deflateEnd(&stream); }
  State(State const&) = delete;
  State& operator=(State const&) = delete;

  [[nodiscard]] std::string run(std::string_view bytes, int flush) {
    std::string packed;
    std::array<Bytef, std::size_t{16} * 1024> chunk{};
    do {
      // zlib counts in 32 bits, and does not write to what it reads.
      const auto part = bytes.substr(0, std::numeric_limits<uInt>::max());
      bytes.remove_prefix(part.size());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
      stream.avail_in = static_cast<uInt>(part.size());
      do {
        stream.next_out = chunk.data();
        stream.avail_out = static_cast<uInt>(chunk.size());
        (void)deflate(&stream, bytes.empty() ? flush : Z_NO_FLUSH);
        packed.append(reinterpret_cast<const char*>(chunk.data()), chunk.size() - stream.avail_out);
      } while (stream.avail_out == 0);
    } while (!bytes.empty());
    return packed;
  }
};

Gzip::Gzip() : state_(std::make_unique<State>()) {}
Gzip::~Gzip() = default;

std::string Gzip::add(std::string_view bytes) { return state_->run(bytes, Z_NO_FLUSH); }
std::string Gzip::finish() { return state_->run({}, Z_FINISH); }

std::string gzipped(std::string_view bytes) {
  Gzip gzip;
  auto packed = gzip.add(bytes);
  return packed += gzip.finish();
}

}  // namespace headroom::exporter
