#include "dump/dump_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace headroom::dump {
namespace {

bool is_lack_of_room(int error) noexcept { return error == ENOSPC || error == EFBIG || error == EDQUOT; }

/// While it lives, a file that is opened is none of stdin, stdout and stderr: where one of them was closed, what others print would land
/// in the dump.
class AboveStandard {
public:
  AboveStandard() noexcept {
    while (count_ < held_.size()) {
      const int descriptor = open("/dev/null", O_RDWR | O_CLOEXEC);
      if (descriptor > STDERR_FILENO) close(descriptor);
      if (descriptor < 0 || descriptor > STDERR_FILENO) return;
      held_[count_++] = descriptor;
    }
  }
  ~AboveStandard() {
    while (count_ > 0) close(held_[--count_]);
  }
  AboveStandard(AboveStandard const&) = delete;
  AboveStandard& operator=(AboveStandard const&) = delete;

private:
  std::array<int, STDERR_FILENO + 1> held_{};
  std::size_t count_ = 0;
};

int open_above_standard(int folder, char const* name, int flags) noexcept {
  const AboveStandard others;
  for (;;) {
    const int descriptor = openat(folder, name, O_WRONLY | O_CLOEXEC | O_NOCTTY | flags, 0600);
    if (descriptor >= 0 || errno != EINTR) return descriptor;
  }
}

int write_once(int descriptor, WriteRequest const& request, Workspace& workspace) noexcept {
  DescriptorSink sink{descriptor};
  JsonStream json{sink, workspace.buffer};
  Writer{request, workspace, json}.write();
  return json.finish();
}

int start_over(int descriptor) noexcept {
  return ftruncate(descriptor, 0) == 0 && lseek(descriptor, 0, SEEK_SET) == 0 ? 0 : errno;
}

FileOutcome fill(int descriptor, WriteRequest const& request, Workspace& workspace) noexcept {
  const int error = write_once(descriptor, request, workspace);
  if (!is_lack_of_room(error) || !request.options.events || start_over(descriptor) != 0) return {.error = error};
  WriteRequest reduced = request;
  char const* const text = strerrordesc_np(error);
  reduced.events_left_out = text != nullptr ? text : "no room";
  reduced.options.most_live = std::min(reduced.options.most_live, kReducedLive);
  return {.error = write_once(descriptor, reduced, workspace), .reduced = true};
}

}  // namespace

int write_into(char const* name, WriteRequest const& request, Workspace& workspace) noexcept {
  const QuietWriting quiet;
  const int descriptor = open_above_standard(AT_FDCWD, name, O_TRUNC);
  if (descriptor < 0) return errno;
  const int error = write_once(descriptor, request, workspace);
  return close(descriptor) != 0 && errno != EINTR && error == 0 ? errno : error;
}

FileOutcome write_file(int folder, char const* temporary, char const* name, WriteRequest const& request,
                       Workspace& workspace) noexcept {
  const QuietWriting quiet;
  const int descriptor = open_above_standard(folder, temporary, O_CREAT | O_EXCL | O_NOFOLLOW);
  if (descriptor < 0) return {.error = errno};
  FileOutcome outcome = fill(descriptor, request, workspace);
  // Some file systems tell only here that there was no room. After EINTR the descriptor is gone all the same.
  if (close(descriptor) != 0 && errno != EINTR && outcome.error == 0) outcome.error = errno;
  if (outcome.error == 0 && renameat(folder, temporary, folder, name) != 0) outcome.error = errno;
  if (outcome.error != 0) static_cast<void>(unlinkat(folder, temporary, 0));
  return outcome;
}

}  // namespace headroom::dump
