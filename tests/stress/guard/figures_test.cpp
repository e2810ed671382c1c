// What a guard promises, in printed figures: each line is what was measured, and asserted.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <headroom/guard.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/pressure.hpp>

#include "guards.hpp"
#include "policy_table.hpp"
#include "simulated_world.hpp"

namespace headroom::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(GuardFigures, policy_table_on_the_host) {
  print_and_check_policy_table("host, a device of 8 MiB, requests of 1 MiB", [] {
    return TableDevice{host_device({.total_bytes = 8 * kMiB, .touch_memory = false}).value(), kMiB};
  });
}

TEST(GuardFigures, a_hook_that_reports_what_it_freed_through_the_guard_admits_nothing_by_itself) {
  const auto host = HostResource::create({.touch_memory = false}).value();
  const auto counted = decorate<CountedDevice>(host).value();
  auto guard = MemoryGuardBuilder(Device::custom("counted", counted).value()).budget_bytes(2048).build().value();
  Cache cache;
  for (int i = 0; i < 4; ++i) cache.blocks.push_back(guard.safe_alloc<std::byte>(512).value());
  EXPECT_EQ(counted->live, 2048U);
  std::uint64_t reported = 0;
  ASSERT_TRUE(guard.register_hook({.name = "cache", .callback = [&](HookContext const&) {
                                     const std::uint64_t freed = cache.free_one(guard);
                                     reported += freed;
                                     return freed;
                                   }}));
  const auto refused = guard.safe_alloc_with_hooks<std::byte>(1024);
  ASSERT_FALSE(refused) << "1,536 live and 1,024 requested are 2,560";
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(reported, 512U);
  EXPECT_EQ(guard.stats().bytes_freed_by_hooks, 512U);
  EXPECT_EQ(counted->live, 1536U);
  EXPECT_EQ(counted->most, 2048U);
  std::cout << "[ hook ] budget 2048, requested 1024: 1 hook freed " << guard.stats().bytes_freed_by_hooks << " and reported "
            << reported << "; refused, " << counted->live << " live afterwards, never more than " << counted->most << " live\n";
  // Two such hooks are enough: 1,024 live and 1,024 requested.
  const auto granted = guard.safe_alloc_with_hooks<std::byte>(1024);
  EXPECT_TRUE(granted) << "the second block went as well";
  EXPECT_EQ(counted->live, 2048U);
  EXPECT_EQ(counted->most, 2048U);
  std::cout << "[ hook ] the same again: granted, " << counted->live << " live, never more than " << counted->most << " live"
            << std::endl;
}

// 699 of 1,000 is none, 700 is low; the margin of 1 % is 10 bytes: down to none only below 690.
TEST(GuardFigures, one_byte_at_a_boundary_a_hundred_thousand_times) {
  constexpr std::uint64_t kTimes = 100'000;
  for (const auto& [margin, expected] :
       {std::pair{std::optional<std::uint64_t>{}, std::uint64_t{1}}, {std::optional<std::uint64_t>{0}, 2 * kTimes}}) {
    const std::uint64_t heard = changes_at_a_boundary(margin, kTimes);
    EXPECT_EQ(heard, expected);
    std::cout << "[ boundary ] 699 bytes of 1000 and one more, " << kTimes << " times, margin "
              << (margin ? std::to_string(*margin) : "1 %") << ": " << heard << " transitions" << std::endl;
  }
}

// One thread has the memory whenever a request begins, and lets go when it sees somebody wait: every request waits, for memory that two
// others, which don't, may take first.
TEST(GuardFigures, three_hundred_requests_that_wait_beside_threads_that_do_not) {
  constexpr std::uint64_t kTries = 300;
  auto host = host_guard(1000, OomPolicy::wait_and_retry(std::chrono::hours{1}));
  auto manager = host.guard.manager();
  std::atomic<bool> over{false};
  std::atomic<bool> ready{false};  // set by the holder when it has the memory, cleared when the request is over
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) {
    others.emplace_back([&] {
      while (!over) {
        static_cast<void>(manager.alloc<std::byte>(600));  // had and given back at once, or refused
        std::this_thread::yield();
      }
    });
  }
  others.emplace_back([&] {
    for (std::uint64_t i = 0; i < kTries; ++i) {
      auto held = manager.alloc<std::byte>(600);
      while (!held) {
        std::this_thread::yield();
        held = manager.alloc<std::byte>(600);
      }
      ready = true;
      wait_until([&] { return waiters(host.guard) == 1; });
      EXPECT_TRUE(host.guard.free(*std::move(held)));
      wait_until([&] { return !ready; });
    }
  });
  std::uint64_t failed = 0;
  for (std::uint64_t i = 0; i < kTries; ++i) {
    wait_until([&] { return ready.load(); });
    failed += host.guard.safe_alloc<std::byte>(600) ? 0U : 1U;
    ready = false;
  }
  over = true;
  for (auto& thread : others) thread.join();
  EXPECT_EQ(failed, 0U);
  EXPECT_EQ(host.guard.stats().waits, kTries);
  EXPECT_EQ(host.guard.stats().recoveries, kTries);
  EXPECT_LE(host.guard.stats().peak, 1000U);
  expect_clean(host.guard);
  std::cout << "[ waiting ] " << kTries
            << " requests of 600 bytes under 1000, beside threads that do not wait: " << host.guard.stats().waits << " waited, "
            << failed << " failed before their deadline" << std::endl;
}

}  // namespace
}  // namespace headroom::test
