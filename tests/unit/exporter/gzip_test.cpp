// What was packed is the same when it is unpacked, by zlib's own other half.
#include "gzip.hpp"

#include <string>

#include <gtest/gtest.h>
#include <zlib.h>

namespace headroom::exporter {
namespace {

std::string unpacked(std::string const& packed) {
  std::string text(std::size_t{4} << 20U, '\0');
  z_stream stream{};
  inflateInit2(&stream, MAX_WBITS + 16);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  const int result = inflate(&stream, Z_FINISH);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return result == Z_STREAM_END ? text : "not whole";
}

/// Text that does not shrink to nothing.
std::string varied(std::size_t size) {
  std::string text;
  for (std::uint64_t seed = 1; text.size() < size; seed = seed * 6364136223846793005ULL + 1442695040888963407ULL) {
    text += std::to_string(seed >> 33U);
  }
  text.resize(size);
  return text;
}

TEST(Gzip, gives_back_what_it_got) {
  for (const std::size_t size : {0U, 1U, 255U, 16384U, 16385U, 3'000'000U}) {
    const auto text = varied(size);
    EXPECT_EQ(unpacked(gzipped(text)), text) << size;
  }
}

TEST(Gzip, makes_repetition_small) { EXPECT_LT(gzipped(std::string(100'000, 'x')).size(), 1'000U); }

TEST(Gzip, takes_pieces_of_any_size) {
  const auto text = varied(200'000);
  for (const std::size_t step : {1'000U, 65'536U, 200'000U}) {
    Gzip gzip;
    std::string packed;
    for (std::size_t at = 0; at < text.size(); at += step) packed += gzip.add(std::string_view{text}.substr(at, step));
    packed += gzip.finish();
    EXPECT_EQ(unpacked(packed), text) << step;
  }
}

}  // namespace
}  // namespace headroom::exporter
