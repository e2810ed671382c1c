// Timer signals into allocating threads; the handlers allocate too.
#include <atomic>
#include <bit>
#include <csignal>
#include <ctime>
#include <iostream>
#include <optional>
#include <thread>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

#include "base/test_point.hpp"
#include "flight/recorder.hpp"
#include "flight/thread_state.hpp"
#include "managers.hpp"
#include "scale.hpp"

namespace headroom::test {
namespace {

using flight::EventKind;
using flight::FlightView;

#if defined(__SANITIZE_THREAD__)
constexpr bool kSignalsAreDelayed = true;  // ThreadSanitizer hands signals over at the next call that it knows
#else
constexpr bool kSignalsAreDelayed = false;
#endif

GpuMemoryManager* signalled = nullptr;
AllocTag handler_tag;
std::atomic<std::uint64_t> handler_runs{0};
std::atomic<std::uint64_t> handler_failures{0};

// Sizes tell who allocated: a handler's are odd, a thread's even.
void allocate_in_handler(int) {
  const int error = errno;
  handler_runs.fetch_add(1, std::memory_order_relaxed);
  if (!signalled->alloc<std::byte>(2001, handler_tag)) handler_failures.fetch_add(1, std::memory_order_relaxed);
  errno = error;
}

// Signals a thread after `first_ns` and then every `interval_ns` until it is destroyed.
class Timer {
public:
  Timer(pid_t thread, long interval_ns) : Timer(thread, interval_ns, interval_ns) {}
  Timer(pid_t thread, long interval_ns, long first_ns) {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGUSR2;
    event._sigev_un._tid = thread;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) return;
    made_ = true;
    itimerspec often{};
    often.it_value.tv_nsec = first_ns;
    often.it_interval.tv_nsec = interval_ns;
    timer_settime(timer_, 0, &often, nullptr);
  }
  ~Timer() {
    if (made_) timer_delete(timer_);
  }
  Timer(Timer const&) = delete;
  Timer& operator=(Timer const&) = delete;

private:
  timer_t timer_{};
  bool made_ = false;
};

pid_t thread_id() { return static_cast<pid_t>(syscall(SYS_gettid)); }

class Handler {
public:
  explicit Handler(GpuMemoryManager& manager) {
    signalled = &manager;
    handler_tag = AllocTag{"in a handler"};
    handler_runs = handler_failures = 0;
    allocate_in_handler(0);  // names are looked up the first time, which may take memory: never in a handler
    struct sigaction action{};
    action.sa_handler = allocate_in_handler;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR2, &action, &before_);
  }
  ~Handler() { sigaction(SIGUSR2, &before_, nullptr); }
  Handler(Handler const&) = delete;
  Handler& operator=(Handler const&) = delete;

private:
  struct sigaction before_{};
};

struct Heads {
  std::uint64_t main = 0, refused = 0;
};
Heads heads_now() {
  Heads heads;
  const auto view = FlightView::of_this_process().value();
  for (auto const& lane : view.lanes()) heads.main += lane.main_head;
  const auto process = view.process();
  heads.refused = process.refused_no_lane + process.refused_reentrant;
  return heads;
}

std::uint64_t slots_taken() {
  std::uint64_t taken = 0;
  for (std::uint32_t i = 0; i < flight::recorder.geometry[flight::Region::live_shares].count; ++i) {
    for (auto const& word : flight::recorder.shares[i].bitmap) taken += static_cast<std::uint64_t>(std::popcount(word.load()));
  }
  return taken;
}

// Reads the process's rings beside everything else; a record that mixes two others would break size, tag or flags.
class Watch {
public:
  explicit Watch(std::string thread_tag) : thread_tag_{std::move(thread_tag)} {}
  void look() {
    events_.clear();
    gaps_.clear();
    reader_.poll(events_, gaps_);
    for (auto const& event : events_) {
      if (event.kind != EventKind::allocate && event.kind != EventKind::free) continue;
      const auto tag = view_.label(event.tag());
      const bool handlers = event.bytes() == 2001 && tag == "in a handler";
      const bool threads = event.bytes() % 2 == 0 && event.bytes() <= 2000 && tag == thread_tag_;
      if (!handlers && !threads) ++bad_;
    }
  }
  [[nodiscard]] std::uint64_t bad() const noexcept { return bad_; }
  [[nodiscard]] std::uint64_t accepted_and_lost() const noexcept { return reader_.accepted() + reader_.lost(); }

private:
  std::string thread_tag_;
  FlightView view_ = FlightView::of_this_process().value();
  flight::EventReader reader_{view_};
  std::vector<flight::Event> events_;
  std::vector<flight::Gap> gaps_;
  std::uint64_t bad_ = 0;
};

TEST(Signals, handlers_that_allocate_in_allocating_threads_leave_the_books_exact) {
  auto manager = null_manager(MemoryBudget::unlimited());
  const AllocTag tag{"in a thread"};
  {
    auto warm = manager.alloc<std::byte>(2, tag).value();
  }
  const Handler handler{manager};
  const auto before = heads_now();
  const std::uint64_t already = manager.stats().allocations;
  const std::uint64_t runs_before = handler_runs;
  Watch watch{"in a thread"};
  const std::uint64_t rounds = scaled(500'000);
  constexpr int kThreads = 3;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const Timer timer{thread_id(), 50'000 + 3000 * i};
      std::vector<TrackedBuffer<std::byte>> held(4);
      for (std::uint64_t round = 0; round < rounds; ++round) {
        held[round % held.size()] = manager.alloc<std::byte>(2 * (1 + round % 1000), tag).value();
        if (kSignalsAreDelayed && round % 256 == 0) usleep(1);
      }
      held.clear();
      --running;
    });
  }
  while (running > 0) watch.look();
  for (auto& thread : threads) thread.join();
  watch.look();
  const std::uint64_t handled = handler_runs - runs_before;
  const std::uint64_t allocations = kThreads * rounds + handled;
  const auto after = heads_now();
  std::cout << kThreads * rounds << " allocations in threads, " << handled << " in handlers, " << after.refused - before.refused
            << " events refused as re-entrant\n";
  EXPECT_GT(handled, 0U);
  EXPECT_EQ(handler_failures, 0U);
  EXPECT_EQ(manager.stats().allocations - already, allocations);
  EXPECT_EQ(manager.stats().frees - already, allocations);
  EXPECT_EQ(manager.allocated_bytes(), 0U);
  EXPECT_EQ(after.main - before.main + after.refused - before.refused, 2 * allocations);
  EXPECT_EQ(watch.bad(), 0U);
  const auto ledger = snapshot_of(manager);
  EXPECT_EQ(ledger.in_flight_bytes, 0U);
  EXPECT_EQ(tag_bytes(ledger, "in a thread") + tag_bytes(ledger, "in a handler"), 0U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

// A thread that ends gives its lane and its kept slots back: a handler at any of those steps must neither lose nor double one.
TEST(Signals, into_threads_that_start_and_end) {
  auto manager = null_manager(MemoryBudget::unlimited());
  const AllocTag tag{"in a thread"};
  {
    auto warm = manager.alloc<std::byte>(2, tag).value();
  }
  const Handler handler{manager};
  const std::uint64_t already = manager.stats().allocations;
  const std::uint64_t runs_before = handler_runs;
  const std::uint64_t rounds = scaled(4000);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    // Made by the thread itself with its last statement, so that signals fall into its end; deleted when it is gone.
    std::optional<Timer> timer;
    std::thread thread{[&] {
      std::vector<TrackedBuffer<std::byte>> held;
      for (int i = 0; i < 8; ++i) held.push_back(manager.alloc<std::byte>(2, tag).value());
      held.clear();
      timer.emplace(thread_id(), 30'000, 500 + static_cast<long>(round * 7 % 4000));
    }};
    thread.join();
  }
  const std::uint64_t handled = handler_runs - runs_before;
  std::cout << rounds << " threads, " << handled << " handlers in them\n";
  EXPECT_EQ(manager.stats().allocations - already, 8 * rounds + handled);
  EXPECT_EQ(manager.stats().frees - already, 8 * rounds + handled);
  EXPECT_EQ(manager.allocated_bytes(), 0U);
  EXPECT_EQ(FlightView::of_this_process()->process().lanes_in_use, 1U);
  EXPECT_LE(slots_taken(), flight::kSlotCache) << "slots of ended threads were lost";
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

#ifdef HEADROOM_TEST_POINTS
TEST(Signals, after_a_thread_returned_its_kept_slots_keep_none) {
  auto manager = null_manager(MemoryBudget::unlimited());
  {
    auto warm = manager.alloc<std::byte>(2).value();
  }
  const Handler handler{manager};
  const std::uint64_t taken = slots_taken();
  test_point_handler.store([](TestPoint at) noexcept {
    if (at == TestPoint::lane_before_give_back) std::raise(SIGUSR2);
  });
  for (int i = 0; i < 20; ++i) {
    std::thread{[&] { auto buffer = manager.alloc<std::byte>(2).value(); }}.join();
  }
  test_point_handler.store(nullptr);
  EXPECT_EQ(manager.stats().allocations, 42U);
  EXPECT_EQ(slots_taken(), taken);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}
#endif

}  // namespace
}  // namespace headroom::test
