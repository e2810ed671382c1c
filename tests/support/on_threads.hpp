// The same work on many threads at once.
#pragma once

#include <barrier>
#include <thread>
#include <vector>

namespace headroom::test {

/// Runs `body(index)` on that many threads, all let go at once, and returns when all are through.
template <class Body>
void on_threads(int count, Body&& body) {
  std::barrier start{count};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      body(i);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace headroom::test
