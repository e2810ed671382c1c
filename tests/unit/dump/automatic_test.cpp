// The post-mortem that a failing program writes by itself: when it does, and what it says.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <headroom/guard.hpp>
#include <headroom/resource_decorator.hpp>
#include <headroom/tag.hpp>

#include "guards.hpp"
#include "on_threads.hpp"
#include "own_process.hpp"

namespace headroom::test {
namespace {

TEST_F(AutomaticDeathTest, a_guard_that_gives_up_leaves_one_that_tells_the_failure) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(100 * kMiB, OomPolicy::retry_after_free());
    auto weights = guard.safe_alloc<std::byte>(60 * kMiB, AllocTag{"weights"}).value();
    auto cache = guard.safe_alloc<std::byte>(30 * kMiB, AllocTag{R"(cache "q"\)"}).value();
    CHECK(guard.register_hook(
        {.name = "useless", .estimated_free_bytes = 5 * kMiB, .callback = [](HookContext const&) { return kMiB; }}));
    CHECK(post_mortem_counts().written == 0 && last_post_mortem().empty());

    const auto refused = guard.safe_alloc_with_hooks<std::byte>(20 * kMiB, AllocTag{"activations"});
    CHECK(!refused && refused.error().kind == ErrorKind::over_budget && *refused.error().requested == 20 * kMiB);
    CHECK(post_mortem_counts().written == 1 && post_mortem_counts().failed == 0);

    const auto dump = only_dump(folder);
    CHECK(dump.complete && !dump.truncated && dump.reason_kind == "allocation_failed");
    CHECK(dump.failure && dump.failure->requested_bytes == 20 * kMiB);
    CHECK(dump.failure->kind == ErrorKind::over_budget && dump.failure->layer == Layer::manager);
    CHECK(dump.failure->tag == "activations" && dump.failure->site.find("automatic_test.cpp") != std::string::npos);
    CHECK(dump.failure->claimed_bytes == 90 * kMiB && dump.failure->limit_bytes == 100 * kMiB &&
          dump.failure->required_bytes == 110 * kMiB);
    CHECK(dump.failure->outcome == "failed" && dump.failure->thread == static_cast<std::uint64_t>(gettid()));
    CHECK(dump.failure->message == refused.error().message);
    CHECK(dump.failure->holders.size() == 2 && dump.failure->holders[0].name == "weights" &&
          dump.failure->holders[0].bytes == 60 * kMiB);
    CHECK(dump.failure->holders[1].name == R"(cache "q"\)");
    CHECK(dump.failure->hooks.size() == 1 && dump.failure->hooks[0].name == "useless" &&
          dump.failure->hooks[0].result == "freed_nothing");
    CHECK(dump.failure->hooks[0].estimate_bytes == 5 * kMiB && dump.failure->hooks[0].reported_bytes == kMiB);
    CHECK(dump.failure->hooks[0].shortfall_bytes == 10 * kMiB);
    CHECK(dump.failure->policy_steps.size() == 2 && dump.failure->policy_steps[0].step == "retried" &&
          dump.failure->policy_steps[0].policy == "retry_after_free" && dump.failure->policy_steps[1].step == "gave_up");
    // Its totals are those of the books.
    const auto stats = guard.stats();
    CHECK(dump.ledgers.size() == 1);
    CHECK(dump.ledgers[0].allocated == stats.used && dump.ledgers[0].claimed == stats.claimed &&
          dump.ledgers[0].peak == stats.peak);
    CHECK(dump.live_bytes == stats.used && dump.live_allocations == stats.live_allocations && dump.live.size() == 2);
    CHECK(dump.live[0].bytes == 60 * kMiB && dump.label(dump.live[0].tag) == "weights");
    CHECK(dump.hooks.size() == 1 && dump.hooks[0].runs == 1);
    CHECK(dump.process.pid == static_cast<std::uint64_t>(getpid()) && !dump.events.empty());
    const auto name = folder.names(kFolder).at(0);
    CHECK(name.find('.' + std::to_string(getpid()) + '.') != std::string::npos && name.ends_with(".1.post-mortem.json"));
  });
}

/// Whether so little time has passed that there cannot be a second one.
class OneMinute {
public:
  [[nodiscard]] bool is_not_over() const { return std::chrono::steady_clock::now() - begin_ < std::chrono::seconds{59}; }

private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

TEST_F(AutomaticDeathTest, there_is_one_a_minute_and_the_rest_are_counted) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    const OneMinute minute;
    auto [resource, guard] = host_guard(kMiB);
    for (int i = 0; i < 5; ++i) CHECK(!guard.safe_alloc<std::byte>(2 * kMiB));
    const auto counts = post_mortem_counts();
    CHECK(counts.written + counts.skipped == 5 && folder.names(kFolder).size() == counts.written);
    if (minute.is_not_over()) CHECK(counts.written == 1);
  });
}

TEST_F(AutomaticDeathTest, of_many_that_fail_at_once_one_writes) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    const OneMinute minute;
    const auto made = host_guard(kMiB);
    std::atomic<int> refused{0};
    on_threads(8, [&](int) {
      for (int i = 0; i < 20; ++i) refused += made.guard.safe_alloc<std::byte>(2 * kMiB) ? 0 : 1;
    });
    CHECK(refused == 160);
    const auto counts = post_mortem_counts();
    CHECK(counts.written + counts.skipped == 160 && counts.failed == 0 && folder.names(kFolder).size() == counts.written);
    if (minute.is_not_over()) CHECK(counts.written == 1);
    const auto dump = load_post_mortem(last_post_mortem());
    CHECK(dump && dump->failure && dump->failure->requested_bytes == 2 * kMiB);
  });
}

TEST_F(AutomaticDeathTest, what_a_hook_mends_or_a_plain_manager_refuses_leaves_none) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    const auto made = host_guard(100 * kMiB);
    auto const& guard = made.guard;
    Cache cache;
    cache.blocks.push_back(take(guard, 90 * kMiB));
    CHECK(guard.register_hook({.name = "cache", .callback = [&](HookContext const&) { return cache.free_one(guard); }}));
    CHECK(guard.safe_alloc_with_hooks<std::byte>(20 * kMiB));
    CHECK(!guard.manager().alloc<std::byte>(200 * kMiB));           // over budget: an answer
    CHECK(!guard.safe_alloc<std::uint64_t>(std::size_t{1} << 61));  // overflow: no shortage
    CHECK(folder.names(kFolder).empty() && post_mortem_counts().written == 0 && post_mortem_counts().skipped == 0);
  });
}

TEST_F(AutomaticDeathTest, a_device_without_memory_leaves_one_through_a_plain_manager_too) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, manager] = host_manager(MemoryBudget::unlimited(), {.total_bytes = 64 * kMiB, .touch_memory = false});
    const auto refused = manager.alloc<std::byte>(65 * kMiB);
    CHECK(!refused && refused.error().kind == ErrorKind::device_out_of_memory);
    const auto dump = only_dump(folder);
    CHECK(dump.reason_kind == "device_out_of_memory" && dump.failure && dump.failure->requested_bytes == 65 * kMiB);
    CHECK(dump.failure->device_free_bytes == 64 * kMiB && dump.devices.size() == 1 && dump.devices[0].total_bytes == 64 * kMiB);
  });
}

TEST_F(AutomaticDeathTest, what_a_hook_asks_for_in_vain_is_not_the_failure_to_tell_of) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(8 * kMiB, OomPolicy::fail(), {.total_bytes = 64 * kMiB, .touch_memory = false});
    auto other = GpuMemoryManager::create(guard.shared_device(), MemoryBudget::unlimited()).value();
    CHECK(guard.register_hook({.name = "greedy", .callback = [&](HookContext const&) {
                                 CHECK(!other.alloc<std::byte>(65 * kMiB));
                                 return std::uint64_t{0};
                               }}));
    CHECK(!guard.safe_alloc_with_hooks<std::byte>(9 * kMiB));
    CHECK(post_mortem_counts().skipped == 1 && post_mortem_counts().written == 1);
    CHECK(only_dump(folder).failure->requested_bytes == 9 * kMiB);
  });
}

TEST_F(AutomaticDeathTest, what_a_listener_asks_for_in_vain_is_not_the_failure_to_tell_of) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(100 * kMiB, OomPolicy::fail(), {.total_bytes = 200 * kMiB, .touch_memory = false});
    auto other = GpuMemoryManager::create(guard.shared_device(), MemoryBudget::unlimited()).value();
    CHECK(guard.add_pressure_listener([&](PressureChange const&) { CHECK(!other.alloc<std::byte>(300 * kMiB)); }));
    auto held = take(guard, 75 * kMiB);
    CHECK(post_mortem_counts().skipped == 1 && post_mortem_counts().written == 0);
    CHECK(!guard.safe_alloc<std::byte>(90 * kMiB));
    CHECK(post_mortem_counts().skipped == 1 && post_mortem_counts().written == 1);
    CHECK(only_dump(folder).failure->requested_bytes == 90 * kMiB);
  });
}

TEST_F(AutomaticDeathTest, what_the_checkpoint_asks_for_in_vain_leaves_the_story_whole) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(8 * kMiB, OomPolicy::checkpoint_and_fail());
    const auto ask = [&guard = guard] { return guard.safe_alloc<std::byte>(9 * kMiB).has_value(); };  // one size, one site
    CHECK(guard.on_oom([&] { CHECK(!ask()); }));
    CHECK(!ask());
    CHECK(post_mortem_counts().skipped == 1 && post_mortem_counts().written == 1);
    const auto dump = only_dump(folder);
    CHECK(dump.failure->policy_steps.size() == 2 && dump.failure->policy_steps[0].step == "checkpoint" &&
          dump.failure->policy_steps[1].step == "gave_up");
    const auto first = std::ranges::find(dump.events, flight::EventKind::refusal, &flight::Event::kind);
    CHECK(first != dump.events.end() && dump.failure->ticks == first->ticks);
  });
}

TEST_F(AutomaticDeathTest, a_later_try_that_meets_another_error_leaves_the_story_whole) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(100 * kMiB);
    auto held = take(guard, 90 * kMiB);
    CHECK(guard.register_hook({.name = "gives", .callback = [&](HookContext const&) {
                                 CHECK(guard.free(std::move(held)));
                                 resource->faults().add({.kind = ErrorKind::driver, .device_code = 700});
                                 return 90 * kMiB;
                               }}));
    CHECK(!guard.safe_alloc_with_hooks<std::byte>(20 * kMiB));
    const auto dump = only_dump(folder);
    CHECK(dump.failure->kind == ErrorKind::over_budget && dump.failure->hooks.size() == 1 &&
          dump.failure->hooks[0].freed_bytes == 90 * kMiB);
    const auto first = std::ranges::find(dump.events, flight::EventKind::refusal, &flight::Event::kind);
    CHECK(first != dump.events.end() && dump.failure->ticks == first->ticks);
  });
}

/// A device that asks another manager for memory of its own, as one with a cache in host memory does.
class Borrowing final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "borrowing";
  Borrowing(InnerResource inner, GpuMemoryManager lender) noexcept
      : ResourceDecorator(std::move(inner)), lender_{std::move(lender)} {}
  [[nodiscard]] Result<Block> allocate(AllocRequest const& request) override {
    CHECK(!lender_.alloc<std::byte>(65 * kMiB));
    return ResourceDecorator::allocate(request);
  }

private:
  GpuMemoryManager lender_;
};

TEST_F(AutomaticDeathTest, what_fails_within_another_operation_is_counted) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, lender] = host_manager(MemoryBudget::unlimited(), {.total_bytes = 64 * kMiB, .touch_memory = false});
    auto device =
        Device::custom("borrowing", decorate<Borrowing>(HostResource::create({.touch_memory = false}).value(), lender).value());
    auto manager = GpuMemoryManager::create(device.value(), MemoryBudget::unlimited()).value();
    CHECK(manager.alloc<std::byte>(kMiB));
    CHECK(post_mortem_counts().skipped == 1 && post_mortem_counts().written == 0 && folder.names(kFolder).empty());
  });
}

TEST_F(AutomaticDeathTest, a_wait_that_ends_in_vain_is_told) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(8 * kMiB, OomPolicy::wait_and_retry(std::chrono::milliseconds{1}));
    auto held = take(guard, 4 * kMiB);
    CHECK(!guard.safe_alloc<std::byte>(5 * kMiB));
    const auto dump = only_dump(folder);
    CHECK(dump.failure->policy_steps.size() == 2 && dump.failure->policy_steps[0].step == "waited" &&
          dump.failure->policy_steps[0].policy == "wait_and_retry" && dump.failure->policy_steps[0].duration_ns >= 1'000'000 &&
          dump.failure->policy_steps[1].step == "gave_up" && dump.failure->outcome == "failed");
  });
}

TEST_F(AutomaticDeathTest, a_device_without_memory_for_what_was_reserved_leaves_one) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, manager] =
        host_manager(MemoryBudget::with_limit(100 * kMiB), {.total_bytes = 64 * kMiB, .touch_memory = false});
    auto reservation = manager.reserve_bytes(50 * kMiB).value();
    resource->faults().add({.kind = ErrorKind::device_out_of_memory});
    CHECK(!reservation.alloc<std::byte>(40 * kMiB));
    const auto dump = only_dump(folder);
    CHECK(dump.reason_kind == "device_out_of_memory" && dump.failure->requested_bytes == 40 * kMiB && dump.failure->ticks);
  });
}

TEST_F(AutomaticDeathTest, a_child_that_a_hook_forks_writes_none) {
  expect_in_own_process([](TemporaryFolder const& folder) {
    auto [resource, guard] = host_guard(kMiB);
    CHECK(guard.register_hook({.name = "forks", .callback = [&](HookContext const&) {
                                 const pid_t child = fork();
                                 if (child == 0) {
                                   const bool refused = !guard.safe_alloc<std::byte>(2 * kMiB);
                                   const auto counts = post_mortem_counts();
                                   _exit(refused && counts.written + counts.skipped + counts.failed == 0 ? 0 : 1);
                                 }
                                 int status = 1;
                                 CHECK(waitpid(child, &status, 0) == child && status == 0);
                                 CHECK(folder.names(kFolder).empty());
                                 return std::uint64_t{0};
                               }}));
    CHECK(!guard.safe_alloc_with_hooks<std::byte>(2 * kMiB));
    CHECK(only_dump(folder).failure->hooks.size() == 1);
  });
}

}  // namespace
}  // namespace headroom::test
