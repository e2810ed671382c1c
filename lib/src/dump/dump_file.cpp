#include "dump/dump_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <pthread.h>
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

int open_new(int folder, char const* name) noexcept {
  const AboveStandard others;
  for (;;) {
    const int descriptor = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
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

QuietWriting::QuietWriting() noexcept : errno_before_{errno} {
  static_cast<void>(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_));
  sigset_t pending;
  sigset_t wanted;
  sigset_t before;
  sigemptyset(&pending);
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGXFSZ);
  was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
  masked_ = pthread_sigmask(SIG_BLOCK, &wanted, &before) == 0 && sigismember(&before, SIGXFSZ) == 0;
}

QuietWriting::~QuietWriting() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGXFSZ);
  if (!was_pending_) {
    const timespec at_once{};
    while (sigtimedwait(&wanted, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  }
  if (masked_) static_cast<void>(pthread_sigmask(SIG_UNBLOCK, &wanted, nullptr));
  static_cast<void>(pthread_setcancelstate(cancel_state_, nullptr));
  errno = errno_before_;
}

FileOutcome write_file(int folder, char const* temporary, char const* name, WriteRequest const& request,
                       Workspace& workspace) noexcept {
  const QuietWriting quiet;
  const int descriptor = open_new(folder, temporary);
  if (descriptor < 0) return {.error = errno};
  FileOutcome outcome = fill(descriptor, request, workspace);
  // Some file systems tell only here that there was no room. After EINTR the descriptor is gone all the same.
  if (close(descriptor) != 0 && errno != EINTR && outcome.error == 0) outcome.error = errno;
  if (outcome.error == 0 && renameat(folder, temporary, folder, name) != 0) outcome.error = errno;
  if (outcome.error != 0) static_cast<void>(unlinkat(folder, temporary, 0));
  return outcome;
}

}  // namespace headroom::dump
