// headroom: threads of ours run no handler of the program's.
#pragma once

#include <csignal>

#include <pthread.h>

namespace headroom::exporter {

/// Threads made while this lives take no signals: those belong to the program. Faults stay unblocked, since a blocked fault
/// kills the process without its own handlers having a say.
class BlockSignals {
public:
  BlockSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&all, fault);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { (void)pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(BlockSignals const&) = delete;
  BlockSignals& operator=(BlockSignals const&) = delete;

private:
  sigset_t before_{};
};

}  // namespace headroom::exporter
