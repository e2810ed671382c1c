// headroom: a lock that is had in the order of asking.
//
// std::mutex goes to whoever is fastest: threads that scrape in a loop can keep a newcomer out for half a minute on a busy machine, and
// meanwhile no short job would be seen. Use it where a lock is held for milliseconds and nobody may be kept waiting.
//
// For std::lock_guard. Cost: a wake of all who wait at each unlock; they are few.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace headroom::exporter {

class FairMutex {
public:
  void lock() {
    std::unique_lock held{mutex_};
    const std::uint64_t mine = next_++;
    turn_.wait(held, [&] { return serving_ == mine; });
  }
  void unlock() {
    {
      const std::lock_guard held{mutex_};
      ++serving_;
    }
    turn_.notify_all();
  }

private:
  std::mutex mutex_;  // guards the two below; never held for longer than it takes to count
  std::condition_variable turn_;
  std::uint64_t next_ = 0;
  std::uint64_t serving_ = 0;
};

}  // namespace headroom::exporter
