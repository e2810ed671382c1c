#include "new_file.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <random>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace headroom::viewer {
namespace {

constexpr mode_t kMode = S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;  // less the umask

/// Links to nowhere are something, too.
bool is_there(std::string const& path) noexcept {
  struct stat there{};
  return ::lstat(path.c_str(), &there) == 0;
}

tl::unexpected<Error> io_error(std::string const& path, std::string const& what) {
  return fail(ErrorKind::io, Layer::request, path + ": " + what);
}

tl::unexpected<Error> system_error(std::string const& path, int code) {
  return io_error(path, std::generic_category().message(code));
}

tl::unexpected<Error> taken(std::string const& path) {
  return io_error(path, "is there already; expected a name that nothing has yet");
}

/// 0, or why not. A file system without links, such as that of a memory stick, renames.
int name_as_new(char const* from, char const* to) noexcept {
  if (::link(from, to) == 0) {
    static_cast<void>(::unlink(from));
    return 0;
  }
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) return errno;
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0 ? 0 : errno;
}

}  // namespace

NewFile::NewFile(int descriptor, std::string path, std::string unfinished) noexcept
    : descriptor_{descriptor}, path_{std::move(path)}, unfinished_{std::move(unfinished)} {}

NewFile::NewFile(NewFile&& other) noexcept
    : descriptor_{std::exchange(other.descriptor_, -1)},
      path_{std::move(other.path_)},
      unfinished_{std::exchange(other.unfinished_, {})} {}

NewFile::~NewFile() {
  if (descriptor_ >= 0) static_cast<void>(::close(descriptor_));
  if (!unfinished_.empty()) static_cast<void>(::unlink(unfinished_.c_str()));
}

Result<NewFile> NewFile::open(std::string path) {
  if (is_there(path)) return taken(path);
  constexpr int kTries = 64;
  std::random_device random;
  for (int count = 0; count < kTries; ++count) {
    auto unfinished = path + '.' + std::to_string(random()) + ".part";
    auto const descriptor = ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kMode);
    if (descriptor >= 0) return NewFile{descriptor, std::move(path), std::move(unfinished)};
    if (errno != EEXIST && errno != EINTR) break;
  }
  return system_error(path, errno);
}

Result<void> NewFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    auto const written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return system_error(path_, written < 0 ? errno : EIO);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return success();
}

Result<void> NewFile::finish() {
  // Some file systems tell only here that there was no room.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) return system_error(path_, errno);
  auto const why = name_as_new(unfinished_.c_str(), path_.c_str());
  if (why == EEXIST) return taken(path_);
  if (why != 0) return system_error(path_, why);
  unfinished_.clear();
  return success();
}

std::string free_name(std::string const& stem, std::string_view extension) {
  auto name = stem + std::string{extension};
  for (std::uint64_t number = 2; is_there(name); ++number) name = stem + '-' + std::to_string(number) + std::string{extension};
  return name;
}

}  // namespace headroom::viewer
