// headroom: what must happen to running threads around fork() and exit().
//
// fork() copies the memory of all threads but only one of the threads. Whatever registers here is told before (so that it can
// bring its locks into a known state), and after, in the parent and in the child. An entry is owned by the registry as long as
// it is listed, and in a child for ever: its destructor would wait for threads that do not exist.
//
// Thread safety: all functions from any thread.
#pragma once

#include <memory>

namespace headroom::exporter {

class ForkAware {
public:
  ForkAware() = default;
  ForkAware(ForkAware const&) = delete;
  ForkAware& operator=(ForkAware const&) = delete;
  virtual ~ForkAware() = default;

  virtual void before_fork() noexcept = 0;
  virtual void after_fork_in_parent() noexcept = 0;
  virtual void after_fork_in_child() noexcept = 0;  ///< only what a signal handler may do
  virtual void stop_at_exit() noexcept = 0;         ///< takes itself off the list
};

/// Everything listed is stopped at exit; from the first call of this on, before any static is destroyed that was there by then. Statics of
/// other libraries that our threads use are made before it.
void stop_at_exit_before_statics();
void add_fork_aware(std::shared_ptr<ForkAware> entry);
void remove_fork_aware(ForkAware const& entry) noexcept;

}  // namespace headroom::exporter
