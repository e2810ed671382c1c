#include "command/stop_signals.hpp"

#include <csignal>

namespace headroom::command {
namespace {

// Both written by the signal handler, so they must be lock-free; read by everyone, relaxed: nothing else is read through them.
constinit std::atomic<bool> stop{false};
constinit std::atomic<int> signal_seen{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

extern "C" void on_stop_signal(int number) {
  signal_seen.store(number, std::memory_order_relaxed);
  stop.store(true, std::memory_order_relaxed);
}

}  // namespace

std::atomic<bool> const& stop_flag() noexcept { return stop; }
void request_stop() noexcept { stop.store(true, std::memory_order_relaxed); }
int stop_signal() noexcept { return signal_seen.load(std::memory_order_relaxed); }

void catch_stop_signals() noexcept {
  struct sigaction action{};
  action.sa_handler = on_stop_signal;
  sigemptyset(&action.sa_mask);
  // Once only: whoever presses Ctrl-C twice means it.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace headroom::command
