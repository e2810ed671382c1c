#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#define ZLIB_CONST  // next_in takes const bytes
#include <zlib.h>

#include <headroom/byte_size.hpp>

#include "trace/byte_source.hpp"

namespace headroom::trace {
namespace {

/// The largest window, and 16 to expect gzip's header and check sums instead of zlib's.
constexpr int kGzipWindowBits = 15 + 16;

class GzipSource final : public ByteSource {
public:
  GzipSource(std::unique_ptr<ByteSource> compressed, std::string name)
      : compressed_{std::move(compressed)}, name_{std::move(name)}, input_(kCompressedBufferBytes) {}
  GzipSource(GzipSource const&) = delete;
  GzipSource& operator=(GzipSource const&) = delete;
  ~GzipSource() override { static_cast<void>(inflateEnd(&stream_)); }

  [[nodiscard]] Result<void> start() {
    if (inflateInit2_(&stream_, kGzipWindowBits, ZLIB_VERSION, static_cast<int>(sizeof(stream_))) != Z_OK) return no_memory();
    return {};
  }

  [[nodiscard]] Result<std::size_t> read(std::span<char> buffer) override {
    auto const room = static_cast<uInt>(std::min<std::size_t>(buffer.size(), std::numeric_limits<uInt>::max()));
    stream_.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream_.avail_out = room;
    while (stream_.avail_out == room) {
      if (stream_.avail_in == 0) {
        auto count = compressed_->read(input_);
        if (!count) return count;
        if (*count == 0) {
          if (between_members_) return std::size_t{0};
          return broken("end in the middle", "; expected a whole .gz file (was it copied in full?)");
        }
        consumed_ += *count;
        stream_.next_in = reinterpret_cast<Bytef const*>(input_.data());
        stream_.avail_in = static_cast<uInt>(*count);
      }
      if (between_members_ && !next_member()) continue;
      auto const code = inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        between_members_ = true;
      } else if (code == Z_MEM_ERROR) {
        return no_memory();
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        return broken("are corrupt", "; expected a whole .gz file");
      }
    }
    return std::size_t{room - stream_.avail_out};
  }

private:
  /// A gzip file may be several members in a row, and be padded with zeros (tapes); returns whether another member begins.
  [[nodiscard]] bool next_member() {
    while (stream_.avail_in != 0 && *stream_.next_in == 0) {
      ++stream_.next_in;
      --stream_.avail_in;
    }
    if (stream_.avail_in == 0) return false;
    // What is no member's header is refused by inflate as corrupt. The state is sound: the last call ended a member.
    static_cast<void>(inflateReset(&stream_));
    between_members_ = false;
    return true;
  }

  [[nodiscard]] tl::unexpected<Error> broken(std::string const& how, std::string const& expected) const {
    return fail(ErrorKind::parse, Layer::request,
                name_ + ": the gzip data " + how + " after " + format_count(consumed_ - stream_.avail_in) + " compressed bytes" +
                    expected);
  }

  [[nodiscard]] tl::unexpected<Error> no_memory() const {
    return fail(ErrorKind::io, Layer::request, name_ + ": no memory to decompress gzip data");
  }

  std::unique_ptr<ByteSource> compressed_;
  std::string name_;
  std::vector<char> input_;
  z_stream stream_{};
  std::uint64_t consumed_ = 0;  // bytes given to zlib, of which avail_in are not used yet
  bool between_members_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> make_gzip_source(std::unique_ptr<ByteSource> compressed, std::string name) {
  auto source = std::make_unique<GzipSource>(std::move(compressed), std::move(name));
  if (auto started = source->start(); !started) return tl::unexpected{std::move(started.error())};
  return source;
}

}  // namespace headroom::trace
