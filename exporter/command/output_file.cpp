#include "command/output_file.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <limits>
#include <random>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command/output.hpp"
#include "command/output_place.hpp"

namespace headroom::command {
namespace {

constexpr mode_t kMode = S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;  // less the umask
constexpr mode_t kPrivate = S_IRUSR | S_IWUSR;

/// Of a descriptor that is not to block, such as a terminal that another program left so.
[[nodiscard]] bool waits_for_room(int descriptor) noexcept {
  pollfd waiting{.fd = descriptor, .events = POLLOUT, .revents = 0};
  return ::poll(&waiting, 1, -1) >= 0 || errno == EINTR;
}

/// What may be read by nobody else before it must not be so afterwards: rights of a group that could not be kept are only those that
/// all others have too.
void take_over(int descriptor, struct stat const& before) noexcept {
  constexpr auto kAsItIs = static_cast<uid_t>(-1);
  [[maybe_unused]] auto const is_kept = ::fchown(descriptor, before.st_uid, before.st_gid) == 0 ||
                                        ::fchown(descriptor, kAsItIs, before.st_gid) == 0;  // what came of it is seen below
  struct stat now{};
  auto mode = before.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
  if (::fstat(descriptor, &now) != 0 || now.st_gid != before.st_gid) {
    constexpr unsigned kGroupBits = 3;
    mode &= ~static_cast<mode_t>(S_IRWXG) | ((mode & S_IRWXO) << kGroupBits);
  }
  static_cast<void>(::fchmod(descriptor, mode));  // some file systems have no modes
}

[[nodiscard]] bool is_free(std::string const& name) noexcept {
  struct stat there{};
  return ::lstat(name.c_str(), &there) != 0;
}

/// 0, or why not: EEXIST where something is there already.
[[nodiscard]] int rename_to_new(char const* from, char const* to) noexcept {
  if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system that cannot do it, such as NFS: whoever makes the name has it, and may replace what is there, which is empty.
  auto const held = ::open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kPrivate);
  if (held < 0) return errno;
  static_cast<void>(::close(held));
  if (::rename(from, to) == 0) return 0;
  auto const why = errno;
  static_cast<void>(::unlink(to));
  return why;
}

}  // namespace

OutputFile::OutputFile(int descriptor, std::string name) noexcept : descriptor_{descriptor}, name_{std::move(name)} {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : descriptor_{std::exchange(other.descriptor_, -1)},
      name_{std::move(other.name_)},
      is_made_{other.is_made_},
      temporary_{std::move(other.temporary_)},
      path_{std::move(other.path_)},
      names_{std::move(other.names_)} {}

OutputFile::~OutputFile() { static_cast<void>(close()); }

tl::unexpected<Error> OutputFile::io_error(std::string_view what, int code) const {
  return fail(ErrorKind::io, Layer::request,
              printable(name_) + ": " + std::string{what} + ": " + std::generic_category().message(code));
}

int OutputFile::close() noexcept {
  auto const descriptor = std::exchange(descriptor_, -1);
  if (descriptor < 0 || descriptor == STDOUT_FILENO) return 0;
  // After EINTR the descriptor is gone all the same.
  return ::close(descriptor) == 0 || errno == EINTR ? 0 : errno;
}

Result<void> OutputFile::make(std::string path, unsigned mode) {
  is_made_ = true;
  path_ = std::move(path);
  constexpr int kTries = 64;
  std::random_device random;
  for (int i = 0; i < kTries; ++i) {
    TemporaryName name{path_ + '.' + std::to_string(::getpid()) + '.' + std::to_string(random()) + ".tmp"};
    descriptor_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (descriptor_ >= 0) {
      temporary_ = std::move(name);
      return {};
    }
    auto const why = errno;
    name.release();  // it is not ours
    errno = why;
    if (why != EEXIST && why != EINTR) break;
  }
  return io_error("cannot be made", errno);
}

Result<OutputFile> OutputFile::open(std::string const& path) {
  // A file that may grow no further is an error of write(), and no end of the command, which would leave half a file.
  static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
  if (path == "-") return OutputFile{STDOUT_FILENO, "standard output"};
  OutputFile file{-1, path};
  auto const place = output_place(path);
  if (place.descriptor) {
    // Opened once more it would begin at the file's first byte, where a shell's >> stands at its end.
    file.descriptor_ = ::fcntl(*place.descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (file.descriptor_ < 0) return file.io_error("cannot be opened", errno);
    return file;
  }
  struct stat there{};
  auto const exists = ::stat(path.c_str(), &there) == 0;
  if (!exists && errno != ENOENT) return file.io_error("cannot be made", errno);
  if (place.is_of_proc || (exists && !S_ISREG(there.st_mode))) {
    // Where another process's descriptor is a file, behind what is there: it is that one's.
    auto const where = exists && S_ISREG(there.st_mode) ? O_APPEND : 0;
    file.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | where);
    if (file.descriptor_ < 0) return file.io_error("cannot be opened", errno);
    return file;
  }
  if (auto made = file.make(place.path, exists ? kPrivate : kMode); !made) return tl::unexpected{std::move(made.error())};
  if (exists) take_over(file.descriptor_, there);
  return file;
}

Result<OutputFile> OutputFile::open_new(Names names) {
  static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
  std::uint64_t number = 1;
  while (!is_free(names(number))) ++number;
  OutputFile file{-1, names(number)};
  file.names_ = std::move(names);
  if (auto made = file.make(file.name_, kMode); !made) return tl::unexpected{std::move(made.error())};
  return file;
}

Result<void> OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    auto const written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && waits_for_room(descriptor_)) continue;
    if (written <= 0) return io_error("cannot be written", written < 0 ? errno : EIO);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

/// Another may have made the name that was free when this began.
Result<void> OutputFile::name_as_new() {
  for (std::uint64_t number = 1; number != std::numeric_limits<std::uint64_t>::max(); ++number) {
    name_ = names_(number);
    auto const why = rename_to_new(temporary_.c_str(), name_.c_str());
    if (why == 0) return {};
    if (why != EEXIST) return io_error("cannot be named", why);
  }
  return io_error("cannot be named", EEXIST);
}

Result<void> OutputFile::commit() {
  // Some file systems tell only here that there was no room.
  if (auto const code = close(); code != 0) return io_error("cannot be written", code);
  if (!is_made_) return {};
  if (names_) {
    if (auto named = name_as_new(); !named) return named;
  } else if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return io_error("cannot be named", errno);
  }
  temporary_.release();
  return {};
}

}  // namespace headroom::command
