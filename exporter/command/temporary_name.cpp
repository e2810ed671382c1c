#include "command/temporary_name.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <list>
#include <utility>

#include <unistd.h>

namespace headroom::command {
namespace {

// Written by the thread that has a TemporaryName, read by the signal handler, in whichever thread it runs: release, acquire, so that it
// sees the text too. Null: there is none.
constinit std::atomic<char const*> to_unlink{nullptr};
static_assert(std::atomic<char const*>::is_always_lock_free);

/// A handler in another thread may still read a name that was released meanwhile. A command has one file, or a few.
std::list<std::string>& kept_names() {
  static std::list<std::string> names;
  return names;
}

extern "C" void unlink_and_end(int number) {
  if (auto const* const name = to_unlink.exchange(nullptr, std::memory_order_acq_rel); name != nullptr) {
    static_cast<void>(::unlink(name));
  }
  // The disposition is the default again (SA_RESETHAND), and the signal comes once the handler has returned.
  static_cast<void>(std::raise(number));
}

void catch_signals() noexcept {
  for (int const number : std::array{SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGXCPU}) {
    struct sigaction now{};
    if (sigaction(number, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction action{};
    action.sa_handler = unlink_and_end;
    sigemptyset(&action.sa_mask);
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(number, &action, nullptr);
  }
}

}  // namespace

TemporaryName::TemporaryName(std::string name) : name_{kept_names().emplace_back(std::move(name)).c_str()} {
  to_unlink.store(name_, std::memory_order_release);
  catch_signals();
}

TemporaryName::TemporaryName(TemporaryName&& other) noexcept : name_{std::exchange(other.name_, nullptr)} {}

TemporaryName& TemporaryName::operator=(TemporaryName&& other) noexcept {
  std::swap(name_, other.name_);
  return *this;
}

TemporaryName::~TemporaryName() {
  if (name_ == nullptr) return;
  static_cast<void>(::unlink(name_));
  release();
}

void TemporaryName::release() noexcept {
  to_unlink.store(nullptr, std::memory_order_release);
  name_ = nullptr;
}

}  // namespace headroom::command
