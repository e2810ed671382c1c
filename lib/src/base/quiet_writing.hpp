// Writing to a descriptor that is not ours without harm to the thread that does it.
#pragma once

#include <csignal>

namespace headroom {

/// What a file descriptor would do to the thread while it is written: a signal that ends the program at RLIMIT_FSIZE or at a pipe whose
/// reader has gone, a cancellation half way, another errno. None of it happens while this lives: write() says EFBIG or EPIPE.
class QuietWriting {
public:
  QuietWriting() noexcept;
  ~QuietWriting();
  QuietWriting(QuietWriting const&) = delete;
  QuietWriting& operator=(QuietWriting const&) = delete;

private:
  int errno_before_;
  int cancel_state_ = 0;
  sigset_t unblock_{};  // those that were not blocked before
  sigset_t consume_{};  // those that were not pending before: what is pending at the end is of our making
};

}  // namespace headroom
