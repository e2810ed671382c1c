// A scheduler of its own for a handful of threads: one runs at a time, and who runs next is chosen by a seed.
//
// Every thread is a real one. At each named test point of the library and at each step of its own it may hand its turn over. Where the
// library would sleep in the kernel (base/test_wait.hpp) the thread is marked as asleep instead, until it is woken or its deadline has
// come in a time of the schedule's own, which moves only here. Hence the same seed is the same schedule, whatever the machine does.
//
// What it finds beside the failures of the program that runs in it:
//   every thread asleep, no deadline pending       a deadlock of waits
//   the thread whose turn it is is stuck           a lock of the library that another thread holds while it does not run, or itself:
//   in the kernel while nobody else runs           it was held over a callback, a point or a wait
//   too many steps                                 a livelock
// Each ends the process at once, with the seed, the command to repeat it, and where every thread stands: threads that are stuck cannot
// be ended otherwise.
//
// Only in builds with test points. One schedule at a time; run() belongs to one thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/test_wait.hpp"

namespace headroom::test {

/// Small and the same everywhere: splitmix64.
class Random {
public:
  explicit Random(std::uint64_t seed) noexcept : state_{seed} {}
  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t end) noexcept { return next() % end; }
  bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }

private:
  std::uint64_t state_;
};

class Schedule {
public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kMostThreads = 6;
  static constexpr std::uint64_t kMostSteps = 200'000;

  struct Totals {
    std::uint64_t steps = 0, switches = 0, sleeps = 0, timeouts = 0;
  };

  Schedule();
  ~Schedule();
  Schedule(Schedule const&) = delete;
  Schedule& operator=(Schedule const&) = delete;

  /// Runs all bodies to their end under the schedule of this seed. Returns the hash of the schedule: of who stood where, in order.
  std::uint64_t run(std::uint64_t seed, std::vector<std::function<void()>> const& bodies);

  /// A step of the program itself. `what` must live as long as the program: it is what a report says of the thread.
  void step(std::string_view what) noexcept;
  /// A lock of the program: waits without a deadline while another thread of the schedule holds it.
  void lock(int& owner) noexcept;
  void unlock(int& owner) noexcept;
  /// Number of the calling thread; −1: it is none of the schedule's.
  [[nodiscard]] static int self() noexcept;

  /// Called when every thread is asleep, before time moves: may find that one of them should not be.
  std::function<void()> on_all_asleep;
  /// A line on what the program does, for reports. Must take no lock: one may be what everybody is stuck at.
  std::function<std::string()> describe;
  [[nodiscard]] bool sleeps_on(int thread, void const* key) const noexcept;
  [[nodiscard]] Totals const& totals() const noexcept { return totals_; }
  /// Says why, and ends the process.
  [[noreturn]] void fail(std::string const& why) const;

private:
  static constexpr Time kNever = Time::max();
  enum class State : std::uint8_t { idle, runnable, asleep, done };
  struct Thread {
    std::thread thread{};
    std::function<void()> const* body = nullptr;
    // 1: it is this thread's turn. Written by who hands over (release) and by the thread itself, which waits on it (acquire): all of
    // the schedule's state is handed over with it.
    std::atomic<std::uint32_t> turn{0};
    std::atomic<int> tid{0};  // written once by the thread, read by the watchdog; relaxed: a number
    State state = State::idle;
    void const* key = nullptr;
    Time deadline{};
    TestPoint point{};  // passed last
    bool passed_any = false;
    std::string_view doing = "has not begun";
  };

  static void handle_point(TestPoint point) noexcept;
  static Time now() noexcept;
  static bool sleep(void const* key, Time deadline) noexcept;
  static void wake(void const* key) noexcept;

  void serve(int index);
  void pass(std::uint64_t what) noexcept;
  void block(void const* key, Time deadline) noexcept;
  void hand_over(int from, bool may_stay) noexcept;
  void give_turn(int to) noexcept;
  void take_turn(int index) noexcept;
  [[nodiscard]] std::size_t runnable() const noexcept;
  void wake_due() noexcept;
  void watch();
  [[nodiscard]] bool all_stuck() const;

  std::array<Thread, kMostThreads> threads_;
  // All handed over with the turn.
  std::size_t count_ = 0;
  std::uint64_t seed_ = 0;
  Random random_{0};
  Time time_{};
  std::uint64_t hash_ = 0;
  Totals totals_;
  // Written by whose turn it is, read by the watchdog, which only looks whether it moves; relaxed.
  std::atomic<std::uint64_t> progress_{0};
  // Written by ~Schedule before it hands everybody a turn, read with the turn.
  bool over_ = false;

  std::mutex mutex_;  // guards finished_, which the last thread of a run sets
  std::condition_variable changed_;
  bool finished_ = false;
};

}  // namespace headroom::test
