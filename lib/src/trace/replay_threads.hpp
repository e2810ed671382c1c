// headroom: the threads of a replay, one for each recorded thread.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <headroom/error.hpp>

#include "trace/replay_steps.hpp"

namespace headroom::trace {

#if defined(__x86_64__)
inline void relax_cpu() noexcept { __builtin_ia32_pause(); }
#else
inline void relax_cpu() noexcept { std::this_thread::yield(); }
#endif

/// How often to look before sleeping: about as long as a hand-over to a thread that sleeps would take.
inline constexpr int kSpins = 200;

/// Runs body(thread index) in a thread for every recorded thread and waits for all; a single one runs here. Either all bodies run
/// or, when a thread cannot be started, none.
template <class Body>
[[nodiscard]] Result<void> run_threads(TraceHistory::Data const& data, Body const& body) {
  auto const count = static_cast<std::uint32_t>(data.thread_ids.size());
  if (count <= 1) {
    body(0U);
    return {};
  }
  constexpr int kClosed = 0, kOpen = 1, kCancelled = 2;
  std::atomic<int> gate{
      kClosed};  // written once, below; read by every thread; acquire and release are not needed but cost nothing
  auto const set_gate = [&gate](int state) {
    gate.store(state, std::memory_order_release);
    gate.notify_all();
  };
  std::vector<std::jthread> threads;  // joined before the gate goes
  threads.reserve(count);
  try {
    for (std::uint32_t index = 0; index < count; ++index) {
      threads.emplace_back([&body, &data, &gate, index] {
        // Before the thread's first event, so that its lane carries the name. The system keeps 15 characters.
        pthread_setname_np(pthread_self(), ("trace " + std::to_string(data.thread_ids[index])).substr(0, 15).c_str());
        gate.wait(kClosed, std::memory_order_acquire);
        if (gate.load(std::memory_order_acquire) == kOpen) body(index);
      });
    }
  } catch (std::system_error const& error) {
    set_gate(kCancelled);
    return fail(ErrorKind::io, Layer::request,
                data.name + ": thread " + std::to_string(threads.size() + 1) + " of " + std::to_string(count) +
                    " cannot be started: " + error.code().message());
  }
  set_gate(kOpen);
  return {};
}

}  // namespace headroom::trace
