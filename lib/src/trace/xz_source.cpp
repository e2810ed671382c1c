#include <utility>
#include <vector>

#include <lzma.h>

#include <headroom/byte_size.hpp>

#include "trace/byte_source.hpp"

namespace headroom::trace {
namespace {

/// xz -9 asks for 65 MiB; a file that asks for more than this is broken or meant to hurt.
constexpr std::uint64_t kMemoryLimitBytes = std::uint64_t{256} << 20U;

class XzSource final : public ByteSource {
public:
  XzSource(std::unique_ptr<ByteSource> compressed, std::string name)
      : compressed_{std::move(compressed)}, name_{std::move(name)}, input_(kCompressedBufferBytes) {}
  XzSource(XzSource const&) = delete;
  XzSource& operator=(XzSource const&) = delete;
  ~XzSource() override { lzma_end(&stream_); }

  [[nodiscard]] Result<void> start() {
    auto const code = lzma_stream_decoder(&stream_, kMemoryLimitBytes, LZMA_CONCATENATED);
    if (code != LZMA_OK) return fail(ErrorKind::io, Layer::request, name_ + ": no memory to decompress xz data");
    return {};
  }

  [[nodiscard]] Result<std::size_t> read(std::span<char> buffer) override {
    stream_.next_out = reinterpret_cast<std::uint8_t*>(buffer.data());
    stream_.avail_out = buffer.size();
    while (!ended_ && stream_.avail_out == buffer.size()) {
      if (stream_.avail_in == 0 && !input_over_) {
        auto const count = compressed_->read(input_);
        if (!count) return count;
        input_over_ = *count == 0;
        stream_.next_in = reinterpret_cast<std::uint8_t const*>(input_.data());
        stream_.avail_in = *count;
      }
      auto const code = lzma_code(&stream_, input_over_ ? LZMA_FINISH : LZMA_RUN);
      if (code == LZMA_STREAM_END) {
        ended_ = true;
      } else if (code != LZMA_OK) {
        return broken(code);
      }
    }
    return buffer.size() - stream_.avail_out;
  }

private:
  [[nodiscard]] tl::unexpected<Error> broken(lzma_ret code) const {
    auto const at = " after " + format_count(stream_.total_in) + " compressed bytes";
    std::string what;
    if (code == LZMA_BUF_ERROR) {
      what = "the xz data end in the middle" + at + "; expected a whole .xz file (was it copied in full?)";
    } else if (code == LZMA_MEMLIMIT_ERROR) {
      what = "decompressing needs more than " + format_bytes(kMemoryLimitBytes) + "; expected a file made by xz -9 or less";
    } else if (code == LZMA_MEM_ERROR) {
      return fail(ErrorKind::io, Layer::request, name_ + ": no memory to decompress xz data");
    } else if (code == LZMA_OPTIONS_ERROR) {
      what = "the xz data use options that this liblzma does not know" + at;
    } else {
      what = "the xz data are corrupt" + at + "; expected a whole .xz file";
    }
    return fail(ErrorKind::parse, Layer::request, name_ + ": " + what);
  }

  std::unique_ptr<ByteSource> compressed_;
  std::string name_;
  std::vector<char> input_;
  lzma_stream stream_{};  // all zero is LZMA_STREAM_INIT, without its old-style casts
  bool input_over_ = false;
  bool ended_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> make_xz_source(std::unique_ptr<ByteSource> compressed, std::string name) {
  auto source = std::make_unique<XzSource>(std::move(compressed), std::move(name));
  if (auto started = source->start(); !started) return tl::unexpected{std::move(started.error())};
  return source;
}

}  // namespace headroom::trace
