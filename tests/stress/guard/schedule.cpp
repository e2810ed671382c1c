#include "schedule.hpp"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <sstream>

#include <sched.h>
#include <unistd.h>

namespace headroom::test {
namespace {

using namespace std::chrono_literals;

constexpr std::array<std::string_view, kTestPointCount> kPointNames{
    "allocate_before_claim",     "allocate_after_claim",   "allocate_after_driver",  "allocate_after_slot",
    "allocate_after_admit",      "book_before_publish",    "book_before_record",     "free_before_driver",
    "free_after_driver",         "free_after_slot",        "free_after_retire",      "free_after_unclaim",
    "claim_before_retry",        "refusal_before_book",    "refusal_before_record",  "free_failed_before_move",
    "free_failed_before_record", "operation_before_end",   "book_before_peak",       "unclaim_before_wake",
    "unclaim_before_judge",      "budget_before_wake",     "pressure_before_record", "wait_before_epoch",
    "wait_before_sleep",         "lane_before_give_back",  "reserve_before_claim",   "reserve_after_claim",
    "reserve_after_unspent",     "spend_before_unspent",   "spend_after_unspent",    "drop_before_unspent",
    "drop_after_unspent",        "drop_after_unclaim",     "return_before_retire",   "return_before_unclaim",
    "room_before_claim",         "room_after_claim",       "claim_before_exchange",  "flush_asked",
    "pressure_before_note",      "notices_before_give_up", "notices_after_give_up",  "open_before_generation",
    "read_before_earlier",       "hook_before_wait",       "removal_before_wait",    "listeners_locked"};
static_assert(!kPointNames.back().empty());

thread_local constinit int self_index = -1;
// The one that runs. Written by the constructor and the destructor, read by its threads, which start after and end before; relaxed
// would do.
constinit std::atomic<Schedule*> present{nullptr};

constexpr std::uint64_t kStep = kTestPointCount, kSleep = kStep + 1, kTimeout = kStep + 2, kEnd = kStep + 3;

// What a thread that sleeps in the kernel looks like: state S. One that waits for a processor is R, and never taken for stuck.
char kernel_state(int tid) {
  std::ifstream file{"/proc/self/task/" + std::to_string(tid) + "/stat"};
  std::string line;
  std::getline(file, line);
  const auto end = line.rfind(')');
  return end == std::string::npos || end + 2 >= line.size() ? '?' : line[end + 2];
}

// Every thread on one processor: only one runs, and a wake-up across processors costs ten times as much. Where it is not allowed the
// schedule is the same, only slower.
void stay_on_one_processor() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    static_cast<void>(sched_setaffinity(0, sizeof one, &one));
    return;
  }
}

}  // namespace

int Schedule::self() noexcept { return self_index; }

Schedule::Schedule() {
  static constexpr TestWaits kWaits{.now = &Schedule::now, .sleep = &Schedule::sleep, .wake = &Schedule::wake};
  present.store(this);
  test_waits.store(&kWaits, std::memory_order_release);
  test_point_handler.store(&Schedule::handle_point, std::memory_order_release);
  for (std::size_t i = 0; i < kMostThreads; ++i) threads_[i].thread = std::thread{[this, i] { serve(static_cast<int>(i)); }};
}

Schedule::~Schedule() {
  over_ = true;
  for (std::size_t i = 0; i < kMostThreads; ++i) give_turn(static_cast<int>(i));
  for (Thread& thread : threads_) thread.thread.join();
  test_point_handler.store(nullptr, std::memory_order_release);
  test_waits.store(nullptr, std::memory_order_release);
  present.store(nullptr);
}

std::uint64_t Schedule::run(std::uint64_t seed, std::vector<std::function<void()>> const& bodies) {
  count_ = bodies.size();
  seed_ = seed;
  random_ = Random{seed ^ 0x5EED5EED5EED5EEDU};
  time_ = Time{1h};
  hash_ = 14695981039346656037U;
  totals_ = {};
  finished_ = false;
  for (std::size_t i = 0; i < count_; ++i) {
    Thread& thread = threads_[i];
    thread.body = &bodies[i];
    thread.state = State::runnable;
    thread.key = nullptr;
    thread.passed_any = false;
    thread.doing = "has not begun";
  }
  give_turn(static_cast<int>(random_.below(count_)));
  watch();
  return hash_;
}

void Schedule::serve(int index) {
  stay_on_one_processor();
  Thread& me = threads_[static_cast<std::size_t>(index)];
  me.tid.store(gettid(), std::memory_order_relaxed);
  for (;;) {
    take_turn(index);
    if (over_) return;
    self_index = index;
    me.doing = "begins";
    (*me.body)();
    self_index = -1;
    me.state = State::done;
    me.doing = "is done";
    pass(kEnd + static_cast<std::uint64_t>(index));
    bool all_done = true;
    for (std::size_t i = 0; i < count_; ++i) all_done = all_done && threads_[i].state == State::done;
    if (!all_done) {
      hand_over(index, false);
      continue;
    }
    const std::scoped_lock lock{mutex_};
    finished_ = true;
    changed_.notify_all();
  }
}

void Schedule::give_turn(int to) noexcept {
  std::atomic<std::uint32_t>& turn = threads_[static_cast<std::size_t>(to)].turn;
  turn.store(1, std::memory_order_release);
  turn.notify_one();
}

void Schedule::take_turn(int index) noexcept {
  std::atomic<std::uint32_t>& turn = threads_[static_cast<std::size_t>(index)].turn;
  while (turn.load(std::memory_order_acquire) == 0) turn.wait(0, std::memory_order_acquire);
  turn.store(0, std::memory_order_relaxed);
}

std::size_t Schedule::runnable() const noexcept {
  std::size_t found = 0;
  for (std::size_t i = 0; i < count_; ++i) found += threads_[i].state == State::runnable ? 1U : 0U;
  return found;
}

void Schedule::wake_due() noexcept {
  for (std::size_t i = 0; i < count_; ++i) {
    Thread& thread = threads_[i];
    if (thread.state != State::asleep || thread.deadline > time_) continue;
    thread.state = State::runnable;
    ++totals_.timeouts;
    pass(kTimeout + i);
  }
}

// Who goes on. The turn comes back to `from` later, unless it is done.
void Schedule::hand_over(int from, bool may_stay) noexcept {
  time_ += 1us;
  // Now and then time passes while threads run, so that deadlines pass in the middle of things.
  if (random_.one_in(64)) time_ += std::chrono::microseconds{random_.below(4000)};
  wake_due();
  if (may_stay && !random_.one_in(4)) return;
  if (runnable() == 0) {
    if (on_all_asleep) on_all_asleep();
    Time first = kNever;
    for (std::size_t i = 0; i < count_; ++i) {
      if (threads_[i].state == State::asleep) first = std::min(first, threads_[i].deadline);
    }
    if (first == kNever) fail("deadlock: every thread sleeps, and no deadline is pending");
    time_ = std::max(time_, first);
    wake_due();
  }
  std::uint64_t chosen = random_.below(runnable());
  int to = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    if (threads_[i].state == State::runnable && chosen-- == 0) {
      to = static_cast<int>(i);
      break;
    }
  }
  if (to == from) return;
  ++totals_.switches;
  Thread const& me = threads_[static_cast<std::size_t>(from)];
  const bool comes_back = me.state != State::done;
  give_turn(to);
  if (comes_back) take_turn(from);
}

void Schedule::pass(std::uint64_t what) noexcept {
  const auto mix = [this](std::uint64_t value) { hash_ = (hash_ ^ value) * 1099511628211U; };
  mix(static_cast<std::uint64_t>(self_index) + 2);
  mix(what);
  mix(static_cast<std::uint64_t>(time_.time_since_epoch().count()));
  progress_.fetch_add(1, std::memory_order_relaxed);
  if (++totals_.steps > kMostSteps) fail("livelock: more than " + std::to_string(kMostSteps) + " steps");
}

void Schedule::step(std::string_view what) noexcept {
  threads_[static_cast<std::size_t>(self_index)].doing = what;
  pass(kStep);
  hand_over(self_index, true);
}

void Schedule::handle_point(TestPoint point) noexcept {
  if (self_index < 0) return;
  Schedule& schedule = *present.load();
  Thread& me = schedule.threads_[static_cast<std::size_t>(self_index)];
  me.point = point;
  me.passed_any = true;
  schedule.pass(static_cast<std::uint64_t>(point));
  // Passed under the list's mutex, as test_point.hpp says: noted, no more.
  if (point == TestPoint::hook_before_wait || point == TestPoint::removal_before_wait || point == TestPoint::flush_asked ||
      point == TestPoint::listeners_locked) {
    return;
  }
  schedule.hand_over(self_index, true);
}

Schedule::Time Schedule::now() noexcept { return self_index < 0 ? std::chrono::steady_clock::now() : present.load()->time_; }

bool Schedule::sleep(void const* key, Time deadline) noexcept {
  if (self_index < 0) return false;
  present.load()->block(key, deadline);
  return true;
}

void Schedule::block(void const* key, Time deadline) noexcept {
  Thread& me = threads_[static_cast<std::size_t>(self_index)];
  if (deadline <= time_) return;
  me.state = State::asleep;
  me.key = key;
  me.deadline = deadline;
  ++totals_.sleeps;
  pass(kSleep);
  hand_over(self_index, false);
  me.key = nullptr;
}

void Schedule::wake(void const* key) noexcept {
  Schedule* const schedule = present.load();
  if (self_index < 0 || schedule == nullptr) return;
  for (std::size_t i = 0; i < schedule->count_; ++i) {
    Thread& thread = schedule->threads_[i];
    if (thread.state == State::asleep && thread.key == key) thread.state = State::runnable;
  }
}

void Schedule::lock(int& owner) noexcept {
  while (owner != -1) block(&owner, kNever);
  owner = self_index;
}

void Schedule::unlock(int& owner) noexcept {
  owner = -1;
  wake(&owner);
}

bool Schedule::sleeps_on(int thread, void const* key) const noexcept {
  Thread const& of = threads_[static_cast<std::size_t>(thread)];
  return of.state == State::asleep && of.key == key;
}

// ── the watchdog ──

// Nothing moves, and every thread of the run sleeps in the kernel. One that is runnable only waits for a processor.
bool Schedule::all_stuck() const {
  for (std::size_t i = 0; i < count_; ++i) {
    if (kernel_state(threads_[i].tid.load(std::memory_order_relaxed)) != 'S') return false;
  }
  return true;
}

void Schedule::watch() {
  constexpr int kLooks = 30;  // each 100 ms after the last
  std::uint64_t seen = progress_.load(std::memory_order_relaxed);
  int stuck = 0;
  std::unique_lock lock{mutex_};
  while (!changed_.wait_for(lock, 100ms, [this] { return finished_; })) {
    const std::uint64_t now = progress_.load(std::memory_order_relaxed);
    stuck = now == seen && all_stuck() ? stuck + 1 : 0;
    seen = now;
    if (stuck == kLooks) {
      fail(
          "deadlock: the thread whose turn it is is stuck in the kernel, and nobody else runs: a lock of the library was held "
          "over a "
          "callback, a test point or a wait");
    }
  }
}

void Schedule::fail(std::string const& why) const {
  std::ostringstream out;
  out << "\nschedule: " << why << "\n  seed " << seed_ << ", after " << totals_.steps
      << " steps; again with HEADROOM_SEED=" << seed_ << " stress_guard --gtest_filter=GuardSimulator.*\n";
  if (describe) out << "  " << describe() << '\n';
  for (std::size_t i = 0; i < count_; ++i) {
    Thread const& thread = threads_[i];
    out << "  thread " << i << ": ";
    switch (thread.state) {
      case State::idle:
      case State::done: out << "done"; break;
      case State::runnable: out << "may run"; break;
      case State::asleep:
        out << "asleep on " << thread.key;
        if (thread.deadline == kNever) out << " without a deadline";
        break;
    }
    out << ", in " << thread.doing;
    if (thread.passed_any) out << ", last at point " << kPointNames[static_cast<std::size_t>(thread.point)];
    out << ", kernel state " << kernel_state(thread.tid.load(std::memory_order_relaxed)) << '\n';
  }
  std::cerr << out.str() << std::flush;
  std::_Exit(3);  // nothing can be unwound: threads are stuck inside calls that do not throw
}

}  // namespace headroom::test
