#include "base/quiet_writing.hpp"

#include <cerrno>
#include <ctime>

#include <pthread.h>

namespace headroom {
namespace {

constexpr int kSignals[] = {SIGXFSZ, SIGPIPE};

}  // namespace

QuietWriting::QuietWriting() noexcept : errno_before_{errno} {
  static_cast<void>(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_));
  sigset_t pending;
  sigset_t wanted;
  sigset_t before;
  sigemptyset(&wanted);
  sigemptyset(&unblock_);
  sigemptyset(&consume_);
  for (const int signal : kSignals) sigaddset(&wanted, signal);
  const bool knows_pending = sigpending(&pending) == 0;
  if (pthread_sigmask(SIG_BLOCK, &wanted, &before) != 0) return;
  for (const int signal : kSignals) {
    if (sigismember(&before, signal) == 0) sigaddset(&unblock_, signal);
    // One that was pending already is not ours to take away.
    if (knows_pending && sigismember(&pending, signal) == 0) sigaddset(&consume_, signal);
  }
}

QuietWriting::~QuietWriting() {
  const timespec at_once{};
  int taken = 0;
  do {
    taken = sigtimedwait(&consume_, nullptr, &at_once);
  } while (taken > 0 || (taken < 0 && errno == EINTR));
  static_cast<void>(pthread_sigmask(SIG_UNBLOCK, &unblock_, nullptr));
  static_cast<void>(pthread_setcancelstate(cancel_state_, nullptr));
  errno = errno_before_;
}

}  // namespace headroom
