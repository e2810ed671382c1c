#include "fork_registry.hpp"

#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include <pthread.h>

namespace headroom::exporter {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<ForkAware>> entries;
};

/// Never destroyed: threads and exit handlers may come after every static's destructor.
Registry& registry() {
  static Registry& instance = *std::make_unique<Registry>().release();
  return instance;
}

void before_fork() {
  registry().mutex.lock();
  for (auto const& entry : registry().entries) entry->before_fork();
}

void after_fork_in_parent() {
  for (auto const& entry : registry().entries) entry->after_fork_in_parent();
  registry().mutex.unlock();
}

void after_fork_in_child() {
  for (auto const& entry : registry().entries) entry->after_fork_in_child();
  registry().mutex.unlock();
}

void stop_all_at_exit() {
  std::vector<std::shared_ptr<ForkAware>> entries;
  {
    const std::lock_guard lock{registry().mutex};
    entries = registry().entries;
  }
  for (auto const& entry : entries) entry->stop_at_exit();
}

void install_handlers() {
  static const bool installed = [] {
    // Without them a fork would leave the child with copies of our sockets; nothing better can be done about a failure.
    (void)pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
    (void)std::atexit(&stop_all_at_exit);
    return true;
  }();
  (void)installed;
}

}  // namespace

void stop_at_exit_before_statics() {
  // Handlers and destructors of statics run in the reverse of their order. The one that came with the first entry, a thread without
  // requests perhaps, may be older than those statics; it finds nothing left to do then.
  static const bool registered = std::atexit(&stop_all_at_exit) == 0;
  (void)registered;
}

void add_fork_aware(std::shared_ptr<ForkAware> entry) {
  install_handlers();
  const std::lock_guard lock{registry().mutex};
  registry().entries.push_back(std::move(entry));
}

void remove_fork_aware(ForkAware const& entry) noexcept {
  const std::lock_guard lock{registry().mutex};
  std::erase_if(registry().entries, [&entry](auto const& listed) { return listed.get() == &entry; });
}

}  // namespace headroom::exporter
