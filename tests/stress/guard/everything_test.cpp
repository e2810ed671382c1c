// One guard from all sides at once, on as many threads as the machine likes to run in whatever order: all doors, hooks that free, lie,
// throw, register and remove, listeners that allocate and leave, budgets and policies that change, a callback, faults of the device.
// Runs by the clock (HEADROOM_STRESS_SECONDS); what it asserts does not depend on it. For ThreadSanitizer above all: the simulator has
// one thread at a time.
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <deque>
#include <iostream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "guards.hpp"
#include "scale.hpp"
#include "schedule.hpp"

namespace headroom::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kThreads = 8;
constexpr std::uint64_t kLargestBudget = 64 * 1024;

constexpr std::uint64_t kReservation = 2048, kEmergency = 4096;

HostGuard guard_that_holds_back() {
  auto resource = HostResource::create({.total_bytes = 48 * 1024, .touch_memory = false}).value();
  auto guard = MemoryGuardBuilder(host_device_over(resource).value())
                   .budget_bytes(kLargestBudget)
                   .reserve_bytes(kReservation)
                   .release_reservation_on_oom(true)
                   .emergency_reserve_bytes(kEmergency)
                   .build()
                   .value();
  return {resource, guard};
}

/// What all threads share. The shelf has a lock of its own, held over no call of the library.
struct Shared {
  HostGuard host = guard_that_holds_back();
  MemoryGuard guard = host.guard;
  GpuMemoryManager manager = host.guard.manager();
  std::mutex mutex;  // guards shelf
  std::deque<Bytes> shelf;
  // Any thread, relaxed: sums that are read when all threads have ended.
  std::atomic<std::uint64_t> operations{0}, granted{0}, failed{0}, broken{0}, reserve_failures{0}, hook_runs{0}, checkpoints{0},
      notices{0}, names{0}, failed_frees{0};

  void put(Bytes buffer) {
    const std::scoped_lock lock{mutex};
    shelf.push_back(std::move(buffer));
  }
  Bytes take_one() {
    const std::scoped_lock lock{mutex};
    if (shelf.empty()) return {};
    Bytes buffer = std::move(shelf.front());
    shelf.pop_front();
    return buffer;
  }
  /// What the device refuses to take goes to quarantine with the buffer's end.
  std::uint64_t give_back(Bytes buffer) {
    const std::uint64_t bytes = buffer.size_bytes();
    if (guard.free(std::move(buffer))) return bytes;
    failed_frees.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  template <class T>
  Bytes note(Result<T> result) {
    if (result) {
      granted.fetch_add(1, std::memory_order_relaxed);
      return *std::move(result);
    }
    failed.fetch_add(1, std::memory_order_relaxed);
    if (result.error().message.find("a later try met another error") != std::string::npos) {
      broken.fetch_add(1, std::memory_order_relaxed);
    }
    EXPECT_TRUE(result.error().kind == ErrorKind::over_budget || result.error().kind == ErrorKind::device_out_of_memory ||
                result.error().kind == ErrorKind::driver)
        << result.error().to_string();
    return {};
  }
};

std::uint64_t run_hook(Shared& shared, std::string const& name, std::uint64_t kind);

void register_hook(Shared& shared, Random& random) {
  const std::string name = "hook-" + std::to_string(shared.names.fetch_add(1, std::memory_order_relaxed) % 6);
  const std::uint64_t kind = random.below(7);
  EXPECT_TRUE(
      shared.guard.register_hook({.name = name,
                                  .priority = static_cast<std::int32_t>(random.below(3)),
                                  .execution_overhead_bytes = random.one_in(3) ? 4096U : 0U,
                                  .callback = [&shared, name, kind](HookContext const&) { return run_hook(shared, name, kind); },
                                  .time_limit = random.one_in(2) ? std::chrono::nanoseconds{100us} : 1s}));
}

std::uint64_t run_hook(Shared& shared, std::string const& name, std::uint64_t kind) {
  shared.hook_runs.fetch_add(1, std::memory_order_relaxed);
  switch (kind) {
    case 0:
    case 1: return shared.give_back(shared.take_one());
    case 2: return std::uint64_t{1} << 40;  // a lie
    case 3: throw std::runtime_error{"a hook on purpose"};
    case 4: shared.guard.remove_hook(name); return 0;
    case 5: {
      Random random{shared.hook_runs.load(std::memory_order_relaxed)};
      if (shared.names.load(std::memory_order_relaxed) < 100'000) register_hook(shared, random);
      shared.guard.remove_hook("hook-" + std::to_string(random.below(6)));
      return 0;
    }
    default:
      if (Bytes got = shared.note(shared.guard.safe_alloc_with_hooks<std::byte>(128)); got.size_bytes() != 0)
        shared.put(std::move(got));
      return shared.give_back(shared.take_one());
  }
}

OomPolicy any_policy(Random& random) {
  switch (random.below(5)) {
    case 0: return OomPolicy::fail();
    case 1: return OomPolicy::retry_after_free();
    case 2: return OomPolicy::checkpoint_and_fail();
    case 3: return OomPolicy::wait_and_retry(0ns);
    default: return OomPolicy::wait_and_retry(std::chrono::microseconds{50 + random.below(500)});
  }
}

class Worker {
public:
  Worker(Shared& shared, std::uint64_t seed) : shared_{shared}, random_{seed} {}

  void step() {
    shared_.operations.fetch_add(1, std::memory_order_relaxed);
    const std::uint64_t choice = random_.below(100);
    if (choice < 50) return allocate();
    if (choice < 72) return free_one();
    if (choice < 76) return reserve();
    if (choice < 80) return register_hook(shared_, random_);
    if (choice < 85) {
      shared_.guard.remove_hook("hook-" + std::to_string(random_.below(6)));
      return;
    }
    if (choice < 88) return listen();
    if (choice < 91) return stop_listening();
    if (choice < 94) return shared_.guard.set_budget(8192 + random_.below(kLargestBudget - 8192));
    if (choice < 96) return shared_.guard.set_oom_policy(any_policy(random_));
    if (choice < 97) return set_callback();
    if (choice < 98) {
      static_cast<void>(shared_.manager.retry_failed_deallocations());
      return;
    }
    const GuardStats stats = shared_.guard.stats();
    EXPECT_LE(stats.used, stats.claimed);
    EXPECT_LE(stats.claimed, kLargestBudget);
    EXPECT_LE(stats.used, stats.peak);
    EXPECT_LE(shared_.host.resource->bytes_outstanding(), 48U * 1024U);
  }

  void finish() {
    held_.clear();
    while (!listeners_.empty()) stop_listening();
  }

private:
  void allocate() {
    const std::uint64_t bytes = 1 + random_.below(random_.one_in(8) ? 24 * 1024 : 4096);
    const AllocOptions options{.tag = {}, .stream = {}, .alignment = kMinimumAlignment};
    Bytes got;
    switch (random_.below(8)) {
      case 0: got = shared_.note(shared_.guard.safe_alloc<std::byte>(bytes)); break;
      case 1: got = shared_.note(shared_.guard.safe_alloc_copy(std::vector<std::byte>(bytes))); break;
      case 2: got = shared_.note(shared_.manager.alloc<std::byte>(bytes, options)); break;
      default: got = shared_.note(shared_.guard.safe_alloc_with_hooks<std::byte>(bytes)); break;
    }
    if (got.size_bytes() == 0) return;
    if (random_.one_in(3)) return shared_.put(std::move(got));
    held_.push_back(std::move(got));
    if (held_.size() > 6) held_.pop_front();  // its destructor frees it
  }

  void free_one() {
    if (held_.empty() || random_.one_in(2)) {
      static_cast<void>(shared_.give_back(shared_.take_one()));
      return;
    }
    Bytes buffer = std::move(held_.front());
    held_.pop_front();
    static_cast<void>(shared_.give_back(std::move(buffer)));
  }

  void reserve() {
    auto reservation = shared_.manager.reserve_bytes(1 + random_.below(8192));
    if (!reservation) {
      shared_.reserve_failures.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    Bytes got = shared_.note(reservation->alloc<std::byte>(1 + random_.below(8192)));
    if (got.size_bytes() != 0) held_.push_back(std::move(got));
  }

  void listen() {
    if (listeners_.size() > 2) return stop_listening();
    // The listener finds its own id here: it may be called before add_pressure_listener returned.
    auto id = std::make_shared<std::atomic<std::uint64_t>>(0);
    const std::uint64_t kind = random_.below(5);
    const auto added = shared_.guard.add_pressure_listener([&shared = shared_, id, kind](PressureChange const& change) {
      EXPECT_NE(change.from, change.to);
      shared.notices.fetch_add(1, std::memory_order_relaxed);
      if (kind == 0) {
        if (Bytes got = shared.note(shared.guard.safe_alloc<std::byte>(64)); got.size_bytes() != 0) shared.put(std::move(got));
      } else if (kind == 1) {
        if (const std::uint64_t own = id->load(); own != 0) shared.guard.remove_pressure_listener(ListenerId{own});
      } else if (kind == 2) {
        static_cast<void>(shared.give_back(shared.take_one()));
      } else if (kind == 3) {
        throw std::runtime_error{"a listener on purpose"};
      }
    });
    ASSERT_TRUE(added);
    id->store(static_cast<std::uint64_t>(*added));
    listeners_.push_back(*added);
  }
  void stop_listening() {
    if (listeners_.empty()) return;
    shared_.guard.remove_pressure_listener(listeners_.front());
    listeners_.pop_front();
  }

  void set_callback() {
    const bool throws = random_.one_in(3);
    shared_.guard.on_oom([&shared = shared_, throws] {
      shared.checkpoints.fetch_add(1, std::memory_order_relaxed);
      static_cast<void>(shared.give_back(shared.take_one()));
      if (throws) throw std::runtime_error{"a callback on purpose"};
    });
  }

  Shared& shared_;
  Random random_;
  std::deque<Bytes> held_;
  std::deque<ListenerId> listeners_;
};

TEST(GuardStress, all_doors_hooks_listeners_policies_and_budgets_at_once) {
  Shared shared;
  FaultPlan& faults = shared.host.resource->faults();
  faults.add({.operation = FaultOperation::allocate, .nth = 61, .every = 61, .times = kFaultForever});
  faults.add({.operation = FaultOperation::allocate, .nth = 97, .every = 97, .times = kFaultForever, .kind = ErrorKind::driver});
  faults.add(
      {.operation = FaultOperation::deallocate, .nth = 53, .every = 53, .times = kFaultForever, .kind = ErrorKind::driver});
  faults.add({.operation = FaultOperation::fill, .nth = 89, .every = 89, .times = kFaultForever});
  const auto until = std::chrono::steady_clock::now() + stress_time(2);
  std::barrier start{static_cast<std::ptrdiff_t>(kThreads)};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Worker worker{shared, i + 1};
      start.arrive_and_wait();
      while (std::chrono::steady_clock::now() < until && !::testing::Test::HasFailure()) {
        for (int step = 0; step < 32; ++step) worker.step();
      }
      worker.finish();
    });
  }
  for (auto& thread : threads) thread.join();

  const GuardStats stats = shared.guard.stats();
  EXPECT_EQ(stats.refusals, shared.failed + shared.broken + stats.recoveries + shared.reserve_failures);
  EXPECT_EQ(stats.hooks_run, shared.hook_runs);
  EXPECT_EQ(stats.checkpoints, shared.checkpoints);
  EXPECT_EQ(waiters(shared.guard), 0U);
  expect_clean(shared.guard);

  faults.clear();
  shared.shelf.clear();
  for (int i = 0; i < 6; ++i) shared.guard.remove_hook("hook-" + std::to_string(i));
  static_cast<void>(shared.manager.retry_failed_deallocations());
  EXPECT_EQ(shared.manager.deallocation_failure_bytes(), 0U);
  // What is left is what the guard holds back itself.
  EXPECT_EQ(shared.manager.allocated_bytes(), 0U);
  EXPECT_LE(shared.guard.stats().claimed, kEmergency);
  EXPECT_EQ(shared.host.resource->bytes_outstanding(), shared.guard.stats().reservation);
  static_cast<void>(shared.guard.release_reservation());
  EXPECT_EQ(shared.host.resource->bytes_outstanding(), 0U);
  expect_clean(shared.guard);
  std::cout << "[ guard ] " << shared.operations << " operations on " << kThreads << " threads: " << shared.granted
            << " granted, " << shared.failed << " failed, " << stats.recoveries << " recovered, " << stats.waits << " waits, "
            << shared.hook_runs << " hook runs, " << shared.checkpoints << " callbacks, " << shared.notices << " notices, "
            << shared.failed_frees << " refused frees" << std::endl;
}

}  // namespace
}  // namespace headroom::test
