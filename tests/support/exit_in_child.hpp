// How a forked child ends that exits as a program does: with destructors of statics and exit handlers.
//
// It has no thread of its parent's but one, so a leak checker has nobody to ask about what the others held: it finds that leaked, or waits
// for them for ever. It looks at the parent only.
#pragma once

#include <chrono>
#include <cstdlib>
#include <thread>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace headroom::test {

inline bool is_forked_child = false;

/// Waits for the child; its exit status, −1 when it had to be killed: it hung. No child of these tests takes a second on a machine that
/// has time for it, and the machine may have none.
inline int wait_for(pid_t child) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + 4min;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return -1;
    }
    std::this_thread::sleep_for(5ms);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

constexpr int kOrdinaryExit = 7;

/// Runs `body` in a child that then exits; kOrdinaryExit unless something stood in its way.
template <class Body>
int exit_status_of(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    is_forked_child = true;
    body();
    std::exit(kOrdinaryExit);
  }
  return wait_for(child);
}

}  // namespace headroom::test

#if defined(__SANITIZE_ADDRESS__)
/// Asked by the leak checker when a process exits.
extern "C" [[gnu::used]] inline int __lsan_is_turned_off() { return headroom::test::is_forked_child ? 1 : 0; }
#endif
