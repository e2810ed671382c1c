#include "command/output_file.hpp"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command/output.hpp"

namespace headroom::command {
namespace {

constexpr mode_t kMode = S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;  // less the umask

/// Of a descriptor that is not to block, such as a terminal that another program left so.
[[nodiscard]] bool waits_for_room(int descriptor) noexcept {
  pollfd waiting{.fd = descriptor, .events = POLLOUT, .revents = 0};
  return ::poll(&waiting, 1, -1) >= 0 || errno == EINTR;
}

}  // namespace

OutputFile::OutputFile(int descriptor, std::string name) noexcept : descriptor_{descriptor}, name_{std::move(name)} {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : descriptor_{std::exchange(other.descriptor_, -1)},
      name_{std::move(other.name_)},
      temporary_{std::exchange(other.temporary_, {})},
      path_{std::move(other.path_)} {}

OutputFile::~OutputFile() {
  static_cast<void>(close());
  if (!temporary_.empty()) static_cast<void>(::unlink(temporary_.c_str()));
}

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

Result<OutputFile> OutputFile::open(std::string const& path) {
  // A file that may grow no further is an error of write(), and no end of the command, which would leave half a file.
  static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
  if (path == "-") return OutputFile{STDOUT_FILENO, "standard output"};
  OutputFile file{-1, path};
  struct stat there{};
  auto const exists = ::stat(path.c_str(), &there) == 0;
  if (exists && !S_ISREG(there.st_mode)) {
    file.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (file.descriptor_ < 0) return file.io_error("cannot be opened", errno);
    return file;
  }
  std::error_code unresolved;
  auto const resolved = std::filesystem::canonical(path, unresolved);
  file.path_ = unresolved ? path : resolved.string();
  constexpr int kTries = 64;
  std::random_device random;
  for (int i = 0; i < kTries; ++i) {
    auto name = file.path_ + '.' + std::to_string(::getpid()) + '.' + std::to_string(random()) + ".tmp";
    file.descriptor_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kMode);
    if (file.descriptor_ >= 0) {
      file.temporary_ = std::move(name);
      return file;
    }
    if (errno != EEXIST && errno != EINTR) break;
  }
  return file.io_error("cannot be made", errno);
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

Result<void> OutputFile::commit() {
  // Some file systems tell only here that there was no room.
  if (auto const code = close(); code != 0) return io_error("cannot be written", code);
  if (temporary_.empty()) return {};
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return io_error("cannot be named", errno);
  temporary_.clear();
  return {};
}

}  // namespace headroom::command
