#include "trace/byte_source.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace headroom::trace {
namespace {

using namespace std::string_view_literals;

constexpr auto kXzMagic =
    "\xFD"
    "7zXZ\0"sv;
constexpr auto kGzipMagic = "\x1F\x8B"sv;

std::string system_reason(int code) { return std::generic_category().message(code); }

tl::unexpected<Error> cannot_be_read(std::string const& name, int code) {
  return fail(ErrorKind::io, Layer::request, name + ": cannot be read: " + system_reason(code));
}

/// A file descriptor, with the first bytes kept back so that they can be looked at before they are delivered: standard input may
/// be a pipe, which cannot be rewound.
class FileSource final : public ByteSource {
public:
  /// `already_read`: what somebody took from the descriptor before; at most as many as fit first_bytes_.
  FileSource(std::shared_ptr<OpenFile const> file, std::string_view already_read, std::string name)
      : file_{std::move(file)}, name_{std::move(name)}, peeked_{already_read.copy(first_bytes_.data(), first_bytes_.size())} {}

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
      auto const count = ::read(file_->descriptor(), buffer.data(), buffer.size());
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno == EINTR) continue;
      return cannot_be_read(name_, errno);
    }
  }

  std::shared_ptr<OpenFile const> file_;
  std::string name_;
  std::array<char, TraceReader::kMaxFirstBytes> first_bytes_{};
  std::size_t peeked_ = 0;
  std::size_t delivered_ = 0;
};

/// A regular file from some byte on, whatever the descriptor's position is.
class PlaceSource final : public ByteSource {
public:
  PlaceSource(std::shared_ptr<OpenFile const> file, std::uint64_t begin, std::string name)
      : file_{std::move(file)}, place_{begin}, name_{std::move(name)} {}

  [[nodiscard]] Result<std::size_t> read(std::span<char> buffer) override {
    while (true) {
      auto const count = ::pread(file_->descriptor(), buffer.data(), buffer.size(), static_cast<off_t>(place_));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return cannot_be_read(name_, errno);
      place_ += static_cast<std::uint64_t>(count);
      static_cast<void>(::lseek(file_->descriptor(), static_cast<off_t>(place_), SEEK_SET));  // for who watches the progress
      return static_cast<std::size_t>(count);
    }
  }

private:
  std::shared_ptr<OpenFile const> file_;
  std::uint64_t place_;
  std::string name_;
};

[[nodiscard]] Result<std::unique_ptr<ByteSource>> decompressor(std::unique_ptr<ByteSource> file, TraceCompression compression,
                                                               std::string const& name) {
  switch (compression) {
    case TraceCompression::xz: return make_xz_source(std::move(file), name);
    case TraceCompression::gzip: return make_gzip_source(std::move(file), name);
    case TraceCompression::none: break;
  }
  return file;
}

/// `file` with the decompressor on top that its first bytes ask for.
[[nodiscard]] Result<OpenedSource> decompressed(std::shared_ptr<OpenFile const> file, std::string_view already_read,
                                                std::string const& name) {
  OpenedSource opened{.bytes = {}, .file = file, .begin = file->begin(already_read.size())};
  auto source = std::make_unique<FileSource>(std::move(file), already_read, name);
  auto const first_bytes = source->peek();
  if (!first_bytes) return tl::unexpected{first_bytes.error()};
  if (first_bytes->starts_with(kXzMagic)) opened.compression = TraceCompression::xz;
  if (first_bytes->starts_with(kGzipMagic)) opened.compression = TraceCompression::gzip;
  auto bytes = decompressor(std::move(source), opened.compression, name);
  if (!bytes) return tl::unexpected{std::move(bytes.error())};
  opened.bytes = std::move(*bytes);
  return opened;
}

}  // namespace

OpenFile::~OpenFile() {
  // Nothing was written that anybody needs: a failing close loses nothing.
  if (owned_) static_cast<void>(::close(descriptor_));
}

std::optional<std::uint64_t> OpenFile::begin(std::size_t taken) const noexcept {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  auto const position = ::lseek(descriptor_, 0, SEEK_CUR);
  // Whoever took bytes from elsewhere than from in front of the position keeps a file that is read once.
  if (position < 0 || static_cast<std::uint64_t>(position) < taken) return std::nullopt;
  return static_cast<std::uint64_t>(position) - taken;
}

Result<std::unique_ptr<ByteSource>> source_from(std::shared_ptr<OpenFile const> file, std::uint64_t begin,
                                                TraceCompression compression, std::string const& name) {
  return decompressor(std::make_unique<PlaceSource>(std::move(file), begin, name), compression, name);
}

Result<OpenedSource> open_byte_source(std::string const& path, std::string const& name) {
  auto const is_stdin = path == "-";
  // A NUL would silently open another file than the one that was named.
  if (path.find('\0') != std::string::npos) return fail(ErrorKind::io, Layer::request, "a file name cannot contain a NUL byte");
  auto const descriptor = is_stdin ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return fail(ErrorKind::io, Layer::request, name + ": cannot be opened: " + system_reason(errno));
  return decompressed(std::make_shared<OpenFile const>(descriptor, !is_stdin), {}, name);
}

Result<OpenedSource> resume_byte_source(int descriptor, std::string_view first_bytes, std::string const& name) {
  if (first_bytes.size() > TraceReader::kMaxFirstBytes) {
    return fail(ErrorKind::invalid_argument, Layer::request,
                name + ": " + std::to_string(first_bytes.size()) + " bytes read already; expected at most " +
                    std::to_string(TraceReader::kMaxFirstBytes));
  }
  return decompressed(std::make_shared<OpenFile const>(descriptor, false), first_bytes, name);
}

}  // namespace headroom::trace
