#include "trace/byte_source.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace headroom::trace {
namespace {

using namespace std::string_view_literals;

constexpr auto kXzMagic =
    "\xFD"
    "7zXZ\0"sv;
constexpr auto kGzipMagic = "\x1F\x8B"sv;

std::string system_reason(int code) { return std::generic_category().message(code); }

/// A file descriptor, with the first bytes kept back so that they can be looked at before they are delivered: standard input may
/// be a pipe, which cannot be rewound.
class FileSource final : public ByteSource {
public:
  FileSource(int descriptor, bool owned, std::string name) : descriptor_{descriptor}, owned_{owned}, name_{std::move(name)} {}
  /// `already_read`: what somebody took from the descriptor before; at most as many as fit first_bytes_.
  FileSource(int descriptor, std::string_view already_read, std::string name) : FileSource{descriptor, false, std::move(name)} {
    peeked_ = already_read.copy(first_bytes_.data(), first_bytes_.size());
  }
  FileSource(FileSource const&) = delete;
  FileSource& operator=(FileSource const&) = delete;
  ~FileSource() override {
    // Nothing was written: a failing close loses nothing.
    if (owned_) static_cast<void>(::close(descriptor_));
  }

  /// Six bytes of the beginning or more; fewer only where the file is shorter.
  [[nodiscard]] Result<std::string_view> peek() {
    while (peeked_ < kXzMagic.size()) {
      auto const count = read_descriptor(std::span{first_bytes_}.subspan(peeked_, kXzMagic.size() - peeked_));
      if (!count) return tl::unexpected{count.error()};
      if (*count == 0) break;
      peeked_ += *count;
    }
    return std::string_view{first_bytes_.data(), peeked_};
  }

  [[nodiscard]] Result<std::size_t> read(std::span<char> buffer) override {
    if (delivered_ < peeked_) {
      auto const count = std::min(buffer.size(), peeked_ - delivered_);
      std::copy_n(first_bytes_.data() + delivered_, count, buffer.data());
      delivered_ += count;
      return count;
    }
    return read_descriptor(buffer);
  }

private:
  [[nodiscard]] Result<std::size_t> read_descriptor(std::span<char> buffer) {
    while (true) {
      auto const count = ::read(descriptor_, buffer.data(), buffer.size());
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno == EINTR) continue;
      return fail(ErrorKind::io, Layer::request, name_ + ": cannot be read: " + system_reason(errno));
    }
  }

  int descriptor_;
  bool owned_;
  std::string name_;
  std::array<char, TraceReader::kMaxFirstBytes> first_bytes_{};
  std::size_t peeked_ = 0;
  std::size_t delivered_ = 0;
};

/// `file` with the decompressor on top that its first bytes ask for.
[[nodiscard]] Result<OpenedSource> decompressed(std::unique_ptr<FileSource> file, std::string const& name) {
  auto const first_bytes = file->peek();
  if (!first_bytes) return tl::unexpected{first_bytes.error()};

  auto compression = TraceCompression::none;
  Result<std::unique_ptr<ByteSource>> bytes;
  if (first_bytes->starts_with(kXzMagic)) {
    compression = TraceCompression::xz;
    bytes = make_xz_source(std::move(file), name);
  } else if (first_bytes->starts_with(kGzipMagic)) {
    compression = TraceCompression::gzip;
    bytes = make_gzip_source(std::move(file), name);
  } else {
    bytes = std::move(file);
  }
  if (!bytes) return tl::unexpected{std::move(bytes.error())};
  return OpenedSource{.bytes = std::move(*bytes), .compression = compression};
}

}  // namespace

Result<OpenedSource> open_byte_source(std::string const& path, std::string const& name) {
  auto const is_stdin = path == "-";
  // A NUL would silently open another file than the one that was named.
  if (path.find('\0') != std::string::npos) return fail(ErrorKind::io, Layer::request, "a file name cannot contain a NUL byte");
  auto const descriptor = is_stdin ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return fail(ErrorKind::io, Layer::request, name + ": cannot be opened: " + system_reason(errno));
  return decompressed(std::make_unique<FileSource>(descriptor, !is_stdin, name), name);
}

Result<OpenedSource> resume_byte_source(int descriptor, std::string_view first_bytes, std::string const& name) {
  if (first_bytes.size() > TraceReader::kMaxFirstBytes) {
    return fail(ErrorKind::invalid_argument, Layer::request,
                name + ": " + std::to_string(first_bytes.size()) + " bytes read already; expected at most " +
                    std::to_string(TraceReader::kMaxFirstBytes));
  }
  return decompressed(std::make_unique<FileSource>(descriptor, first_bytes, name), name);
}

}  // namespace headroom::trace
