// The order of the steps of a wait: a clock, and wake-ups, that the test makes. Nothing here takes time.
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/test_wait.hpp"
#include "guards.hpp"
#include "stop_at.hpp"

namespace headroom::test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// While one lives, time is what the test says, and a sleep is over at once: it only leaves a note of what was slept on.
class OwnTime {
public:
  OwnTime() {
    now_ns = 0;
    step_after_first_ns = 0;
    const std::scoped_lock lock{mutex};
    keys.clear();
    test_waits.store(&kWaits, std::memory_order_release);
  }
  ~OwnTime() { test_waits.store(nullptr, std::memory_order_release); }
  OwnTime(OwnTime const&) = delete;
  OwnTime& operator=(OwnTime const&) = delete;

  static void pass(nanoseconds time) { now_ns += time.count(); }
  /// After its first reading, which is the time of the refusal.
  static void pass_after_the_first_reading(nanoseconds time) { step_after_first_ns = time.count(); }
  static std::multiset<void const*> slept_on() {
    const std::scoped_lock lock{mutex};
    return keys;
  }

private:
  using Time = std::chrono::steady_clock::time_point;
  static Time now() noexcept {
    const std::int64_t read = now_ns.load();
    now_ns += step_after_first_ns.exchange(0);
    return Time{hours{1}} + nanoseconds{read};
  }
  static bool sleep(void const* key, Time /*deadline*/) noexcept {
    {
      const std::scoped_lock lock{mutex};
      keys.insert(key);
    }
    std::this_thread::yield();
    return true;
  }
  static void wake(void const* /*key*/) noexcept {}
  static constexpr TestWaits kWaits{.now = now, .sleep = sleep, .wake = wake};
  static inline std::atomic<std::int64_t> now_ns{0}, step_after_first_ns{0};
  static inline std::mutex mutex;
  static inline std::multiset<void const*> keys;
};

flight::LedgerCell& cell_of(MemoryGuard const& guard) { return manager::RouteAccess::of(guard.manager()).ledger().cell(); }

// What comes back until the deadline is tried for: whether it has passed is asked before the try.
TEST(GuardWaitOrder, room_that_comes_between_a_failed_try_and_the_deadline_is_tried_for) {
  const OwnTime time;
  auto host = host_guard(1024, OomPolicy::wait_and_retry(milliseconds{10}));
  static Bytes held;
  static thread_local int claims = -1;
  held = take(host.guard, 1024);
  claims = 0;
  test_point_handler.store([](TestPoint at) noexcept {
    // The first claim is the request's, the second the wait's first try; both were refused.
    if (at != TestPoint::allocate_after_claim || claims < 0 || ++claims != 2) return;
    std::thread{[] { held = {}; }}.join();
    OwnTime::pass(milliseconds{10});
  });
  const auto granted = host.guard.safe_alloc<std::byte>(1024);
  test_point_handler.store(nullptr);
  EXPECT_TRUE(granted);
  EXPECT_EQ(claims, 3);
  claims = -1;
  held = {};
}

// A policy that changes once the request is announced moves the epoch. Read before that, it would be the old one, and the sleep the
// length of its timeout: this test would not end.
TEST(GuardWaitOrder, a_policy_that_changes_as_a_request_begins_to_wait_is_not_missed) {
  for (const OomPolicy next : {OomPolicy::fail(), OomPolicy::wait_and_retry(nanoseconds{0})}) {
    auto host = host_guard(1024, OomPolicy::wait_and_retry(hours{1}));
    const auto held = take(host.guard, 1024);
    std::optional<Result<Bytes>> result;
    while_stopped_at(
        TestPoint::wait_before_epoch, [&] { result = host.guard.safe_alloc<std::byte>(1); },
        [&] {
          EXPECT_EQ(waiters(host.guard), 1U);
          host.guard.set_oom_policy(next);
        });
    EXPECT_FALSE(*result);
    EXPECT_EQ(waiters(host.guard), 0U);
  }
}

// Those short of the device try, claim and give back. On the ledger's epoch two of them would wake each other for ever, and whoever
// waits for the budget with them.
TEST(GuardWaitOrder, those_short_of_the_device_do_not_sleep_on_the_ledgers_epoch) {
  const OwnTime time;
  auto host = host_guard(8192, OomPolicy::wait_and_retry(hours{1}),
                         {.total_bytes = 8192, .context_overhead_bytes = 4096, .touch_memory = false});
  auto held = take(host.guard, 4096);
  static std::atomic<std::uint64_t> tries;
  tries = 0;
  test_point_handler.store([](TestPoint at) noexcept { tries += at == TestPoint::allocate_after_claim ? 1 : 0; });
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> granted{0};
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] { granted += host.guard.safe_alloc<std::byte>(1024) ? 1U : 0U; });
  }
  wait_until([] { return tries >= 40; });
  // A thread sleeps after each try but its first, and one may be under way.
  const std::uint64_t tried = tries;
  const auto keys = OwnTime::slept_on();
  EXPECT_GE(keys.size() + 4, tried) << "nothing woke them";
  EXPECT_EQ(keys.count(&cell_of(host.guard).epoch), 0U);
  EXPECT_EQ(std::set<void const*>(keys.begin(), keys.end()).size(), 1U) << "the guard's own word";
  EXPECT_TRUE(host.guard.free(std::move(held)));
  for (auto& thread : threads) thread.join();
  test_point_handler.store(nullptr);
  EXPECT_EQ(granted.load(), 2U);
  expect_clean(host.guard);
}

TEST(GuardWaitOrder, those_short_of_the_budget_sleep_on_the_ledgers_epoch) {
  const OwnTime time;
  auto host = host_guard(1024, OomPolicy::wait_and_retry(hours{1}));
  auto held = take(host.guard, 1024);
  bool granted = false;
  std::thread asking{[&] { granted = host.guard.safe_alloc<std::byte>(1024).has_value(); }};
  wait_until([] { return OwnTime::slept_on().size() >= 3; });
  const auto keys = OwnTime::slept_on();
  EXPECT_EQ(keys.count(&cell_of(host.guard).epoch), keys.size());
  EXPECT_TRUE(host.guard.free(std::move(held)));
  asking.join();
  EXPECT_TRUE(granted);
}

// The figure begins where the deadline does: at the refusal, however late the wait itself begins.
TEST(GuardWaitOrder, the_time_of_a_wait_counts_from_the_refusal) {
  const OwnTime time;
  auto host = host_guard(100, OomPolicy::wait_and_retry(milliseconds{1}));
  const auto held = take(host.guard, 100);
  OwnTime::pass_after_the_first_reading(milliseconds{1});
  EXPECT_FALSE(host.guard.safe_alloc<std::byte>(1));
  EXPECT_EQ(snapshot_of(host.guard.manager()).guard.policy_wait_ns, 1'000'000U);
}

TEST(GuardWaitOrder, what_hooks_took_is_no_part_of_the_wait) {
  const OwnTime time;
  auto host = host_guard(100, OomPolicy::wait_and_retry(milliseconds{10}));
  const auto held = take(host.guard, 100);
  ASSERT_TRUE(host.guard.register_hook({.name = "slow", .callback = [](HookContext const&) {
                                          OwnTime::pass(milliseconds{7});
                                          return 0U;
                                        }}));
  ASSERT_TRUE(host.guard.register_hook({.name = "slower", .priority = 1, .callback = [](HookContext const&) {
                                          OwnTime::pass(milliseconds{5});
                                          return 0U;
                                        }}));
  EXPECT_FALSE(host.guard.safe_alloc_with_hooks<std::byte>(1));
  EXPECT_EQ(snapshot_of(host.guard.manager()).guard.policy_wait_ns, 0U) << "the deadline had passed: one try and no wait";
}

// ── who is asked, and who recovers ──

TEST(GuardWaitOrder, a_policy_that_comes_during_a_wait_is_counted_as_the_one_that_was_asked) {
  const OomPolicy kPatient = OomPolicy::wait_and_retry(hours{1});
  for (const OomPolicy next : {OomPolicy::fail(), OomPolicy::retry_after_free(), OomPolicy::checkpoint_and_fail()}) {
    SCOPED_TRACE(next.to_string());
    auto host = host_guard(1024, kPatient);
    const auto held = take(host.guard, 1024);
    std::thread asking{[&] { EXPECT_FALSE(host.guard.safe_alloc<std::byte>(1)); }};
    wait_until([&] { return waiters(host.guard) == 1; });
    host.guard.set_oom_policy(next);
    asking.join();
    std::array<std::uint64_t, 4> runs{};
    runs[static_cast<std::size_t>(OomPolicy::Kind::wait_and_retry)] = 1;
    runs[static_cast<std::size_t>(next.kind())] = 1;
    EXPECT_EQ(snapshot_of(host.guard.manager()).guard.policy_runs, runs);
  }
}

}  // namespace
}  // namespace headroom::test
