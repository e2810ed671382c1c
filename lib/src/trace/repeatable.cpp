#include "trace/repeatable.hpp"

#include <cerrno>
#include <cstdlib>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace headroom::trace {
namespace {

[[nodiscard]] std::string system_reason(int code) { return std::generic_category().message(code); }

/// A file in `folder` that goes with its descriptor; −1 and errno where there can be none.
[[nodiscard]] int nameless_file_in(std::string const& folder) {
  auto const descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
  // Not every file system has files without a name, and says so in two ways.
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
  auto pattern = folder + "/headroom-XXXXXX";
  auto const named = ::mkostemp(pattern.data(), O_CLOEXEC);
  if (named >= 0) static_cast<void>(::unlink(pattern.c_str()));
  return named;
}

struct TemporaryFile {
  std::shared_ptr<OpenFile const> file;
  std::string folder;
};

[[nodiscard]] Result<TemporaryFile> temporary_file(std::string const& name) {
  std::vector<std::string> folders{"/var/tmp", "/tmp"};
  if (auto const* const wished = ::secure_getenv("TMPDIR"); wished != nullptr && *wished != '\0')
    folders.insert(folders.begin(), wished);
  std::string reasons;
  for (auto const& folder : folders) {
    auto const descriptor = nameless_file_in(folder);
    if (descriptor >= 0) return TemporaryFile{.file = std::make_shared<OpenFile const>(descriptor, true), .folder = folder};
    reasons += (reasons.empty() ? "" : ", ") + folder + " (" + system_reason(errno) + ')';
  }
  return fail(ErrorKind::io, Layer::request,
              name + ": a snapshot is read more than once, and its copy cannot be made in any of " + reasons +
                  "; expected a regular file, or TMPDIR to name a folder with room");
}

[[nodiscard]] Result<void> write_fully(TemporaryFile const& copy, std::span<char const> bytes, std::string const& name) {
  while (!bytes.empty()) {
    auto const count = ::write(copy.file->descriptor(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return fail(ErrorKind::io, Layer::request,
                  name + ": its copy in " + copy.folder + " cannot be written: " + system_reason(errno) +
                      "; expected a regular file, or TMPDIR to name a folder with room");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

}  // namespace

Repeatable::Repeatable(std::shared_ptr<OpenFile const> file, std::uint64_t begin, TraceCompression compression, std::string name)
    : file_{std::move(file)}, begin_{begin}, compression_{compression}, name_{std::move(name)}, version_{version()} {}

Repeatable::Version Repeatable::version() const noexcept {
  constexpr std::int64_t kNsPerSecond = 1'000'000'000;
  struct stat status{};
  if (::fstat(file_->descriptor(), &status) != 0) return {};
  return {.size = status.st_size, .modified_ns = status.st_mtim.tv_sec * kNsPerSecond + status.st_mtim.tv_nsec};
}

Result<void> Repeatable::unchanged() const {
  if (version() == version_) return {};
  return fail(ErrorKind::io, Layer::request,
              name_ + ": was changed while it was read; expected a snapshot that nobody writes to any more");
}

Result<Repeatable> Repeatable::from(OpenedSource source, std::string name) {
  if (source.begin) return Repeatable{std::move(source.file), *source.begin, source.compression, std::move(name)};
  auto copy = temporary_file(name);
  if (!copy) return tl::unexpected{std::move(copy.error())};
  std::vector<char> piece(std::size_t{256} << 10U);
  while (true) {
    auto const count = source.bytes->read(piece);
    if (!count) return tl::unexpected{count.error()};
    if (*count == 0) break;
    if (auto written = write_fully(*copy, std::span{piece}.first(*count), name); !written) {
      return tl::unexpected{std::move(written.error())};
    }
  }
  return Repeatable{std::move(copy->file), 0, TraceCompression::none, std::move(name)};
}

Result<std::unique_ptr<ByteSource>> Repeatable::read_again() const {
  if (auto const same = unchanged(); !same) return tl::unexpected{same.error()};
  return source_from(file_, begin_, compression_, name_);
}

}  // namespace headroom::trace
