#include "command/source.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <headroom/byte_size.hpp>
#include <headroom/flight_format.hpp>

#include "command/output.hpp"

namespace headroom::command {
namespace {

constexpr std::uint64_t kMostFlightBytes = std::uint64_t{1} << 30U;  // the largest flight file that is read

[[nodiscard]] tl::unexpected<Error> io_error(std::string const& name, std::string_view what, int code) {
  return fail(ErrorKind::io, Layer::request, name + ": " + std::string{what} + ": " + std::generic_category().message(code));
}

/// As much as `into` has room for; less only at the end.
[[nodiscard]] Result<std::size_t> read_fully(int descriptor, std::span<char> into, std::string const& name) {
  std::size_t done = 0;
  while (done < into.size()) {
    auto const count = ::read(descriptor, into.data() + done, into.size() - done);
    if (count == 0) break;
    if (count > 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      return io_error(name, "cannot be read", errno);
    }
  }
  return done;
}

}  // namespace

/// Aligned as a flight file in memory must be.
struct Source::Bytes {
  struct alignas(64) Line {
    std::array<char, 64> bytes;
  };
  std::vector<Line> lines;
  std::size_t size = 0;

  /// The place for `count` more bytes.
  [[nodiscard]] std::span<char> grow(std::size_t count) {
    lines.resize((size + count + sizeof(Line) - 1) / sizeof(Line));
    return {reinterpret_cast<char*>(lines.data()) + size, count};
  }
  [[nodiscard]] std::span<const std::byte> all() const noexcept {
    return {reinterpret_cast<std::byte const*>(lines.data()), size};
  }
};

Source::Source(int descriptor, bool is_stdin, std::string path, std::string name) noexcept
    : descriptor_{descriptor}, is_stdin_{is_stdin}, path_{std::move(path)}, name_{std::move(name)} {}

Source::Source(Source&& other) noexcept
    : descriptor_{std::exchange(other.descriptor_, -1)},
      is_stdin_{other.is_stdin_},
      is_regular_{other.is_regular_},
      path_{std::move(other.path_)},
      name_{std::move(other.name_)},
      warning_{std::move(other.warning_)},
      first_bytes_{other.first_bytes_},
      first_count_{other.first_count_},
      bytes_{std::move(other.bytes_)},
      guarded_{std::move(other.guarded_)} {}

Source::~Source() {
  // Nothing was written: a failing close loses nothing.
  if (descriptor_ >= 0 && !is_stdin_) static_cast<void>(::close(descriptor_));
}

Result<Source> Source::open(std::string path) {
  auto const is_stdin = path == "-";
  auto name = is_stdin ? std::string{"standard input"} : path;
  auto const descriptor = is_stdin ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return io_error(name, "cannot be opened", errno);
  Source source{descriptor, is_stdin, std::move(path), std::move(name)};
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return io_error(source.name_, "cannot be examined", errno);
  source.is_regular_ = S_ISREG(status.st_mode);
  if (auto const good = source.read_first_bytes(); !good) return tl::unexpected{good.error()};
  return source;
}

Result<void> Source::read_first_bytes() {
  static_assert(sizeof first_bytes_ == sizeof flight::kMagic && sizeof first_bytes_ <= TraceReader::kMaxFirstBytes);
  auto const count = read_fully(descriptor_, first_bytes_, name_);
  if (!count) return tl::unexpected{count.error()};
  first_count_ = *count;
  return {};
}

SourceKind Source::kind() const noexcept {
  std::uint64_t magic = 0;
  if (first_count_ == sizeof magic) std::memcpy(&magic, first_bytes_.data(), sizeof magic);
  if (magic == flight::kMagic) return SourceKind::flight;
  // No history is JSON: what is no post-mortem either is told so by its reader.
  auto const begin = first_bytes().find_first_not_of(" \n\r\t");
  return begin != std::string_view::npos && first_bytes()[begin] == '{' ? SourceKind::dump : SourceKind::history;
}

Result<flight::FlightView> Source::flight() {
  // By its path: a view of a living process asks the file itself whether its writer lives.
  if (is_file()) {
    // A person may name a link; FlightView follows none, since what lies in a folder for all may be anybody's.
    std::error_code unresolved;
    auto const resolved = std::filesystem::canonical(path_, unresolved);
    auto opened = GuardedFlight::open(unresolved ? path_ : resolved.string());
    if (!opened) return tl::unexpected{std::move(opened.error())};
    guarded_ = std::move(*opened);
    return guarded_->view();
  }
  if (auto const read = read_rest(kMostFlightBytes, "a flight file"); !read) return tl::unexpected{read.error()};
  return flight::FlightView::over(bytes_->all(), name_);
}

Result<void> Source::was_whole() const {
  if (!guarded_ || !guarded_->was_truncated()) return {};
  return fail(ErrorKind::io, Layer::request, name_ + ": was truncated while it was read; nothing was made of it");
}

Result<void> Source::read_rest(std::uint64_t most, std::string_view expected) {
  constexpr std::size_t kPiece = std::size_t{1} << 20U;
  if (bytes_) return {};
  bytes_ = std::make_unique<Bytes>();
  auto const begin = bytes_->grow(first_count_);
  std::memcpy(begin.data(), first_bytes_.data(), first_count_);
  bytes_->size = first_count_;
  while (true) {
    auto const count = read_fully(descriptor_, bytes_->grow(kPiece), name_);
    if (!count) return tl::unexpected{count.error()};
    bytes_->size += *count;
    if (*count < kPiece) return {};
    if (bytes_->size > most) {
      return fail(
          ErrorKind::parse, Layer::request,
          name_ + ": more than " + format_count(most) + " bytes; expected " + std::string{expected} + ", which has fewer");
    }
  }
}

Result<PostMortem> Source::post_mortem() {
  if (auto const read = read_rest(kMostDumpBytes, "a post-mortem"); !read) return tl::unexpected{read.error()};
  auto const bytes = bytes_->all();
  auto dump = read_post_mortem({reinterpret_cast<char const*>(bytes.data()), bytes.size()}, name_);
  bytes_.reset();
  if (dump && dump->truncated && dump->process.run == 0 && dump->ledgers.empty()) {
    return fail(ErrorKind::parse, Layer::request,
                name_ + ": truncated before it says which process it is of; expected a post-mortem");
  }
  return dump;
}

Result<std::string_view> Source::post_mortem_text() {
  if (auto const read = read_rest(kMostDumpBytes, "a post-mortem"); !read) return tl::unexpected{read.error()};
  auto const bytes = bytes_->all();
  std::string_view const text{reinterpret_cast<char const*>(bytes.data()), bytes.size()};
  auto const dump = read_post_mortem(text, name_);
  if (!dump) return tl::unexpected{dump.error()};
  if (dump->truncated) return fail(ErrorKind::parse, Layer::request, name_ + ": truncated; expected a whole post-mortem");
  return text;
}

Result<TraceReader> Source::history() {
  if (kind() != SourceKind::history) {
    return fail(ErrorKind::parse, Layer::request,
                name_ +
                    ": byte 0: " + (kind() == SourceKind::flight ? "a flight file (HRFLGHT1)" : "'{', as a post-mortem begins") +
                    "; expected a recorded history: RMM's CSV log, or a memory snapshot of PyTorch; plain, .xz or .gz");
  }
  return TraceReader::resume(descriptor_, first_bytes(), name_);
}

Result<std::unique_ptr<follow::Source>> Source::records() {
  switch (kind()) {
    case SourceKind::flight: {
      auto view = flight();
      if (!view) return tl::unexpected{std::move(view.error())};
      return is_file() ? follow::flight_source(std::move(*view)) : follow::flight_copy_source(std::move(*view));
    }
    case SourceKind::dump: {
      auto dump = post_mortem();
      if (!dump) return tl::unexpected{std::move(dump.error())};
      if (dump->truncated && dump->ledgers.empty()) {
        return fail(ErrorKind::parse, Layer::request,
                    name_ + ": truncated before the books of its process; expected a post-mortem");
      }
      if (dump->truncated) {
        warning_ = name_ + ": truncated: what is told is whole, but more may be missing";
        complain("headroom", warning_);
      }
      return post_mortem_source(std::move(*dump), name_);
    }
    case SourceKind::history: break;
  }
  auto reader = history();
  if (!reader) return tl::unexpected{std::move(reader.error())};
  return follow::history_source(std::move(*reader));
}

std::optional<Source::Position> Source::position() const noexcept {
  if (!is_regular_) return std::nullopt;
  auto const at = ::lseek(descriptor_, 0, SEEK_CUR);
  struct stat status{};
  if (at < 0 || ::fstat(descriptor_, &status) != 0) return std::nullopt;
  return Position{.read = static_cast<std::uint64_t>(at), .size = static_cast<std::uint64_t>(status.st_size)};
}

}  // namespace headroom::command
