// The guard's doors: what they hand out, what they take back, and what they refuse.
#include <array>
#include <concepts>
#include <sstream>
#include <thread>
#include <type_traits>
#include <vector>

#include "fake_stack.hpp"
#include "guards.hpp"
#include "scripted_resource.hpp"

// What a guard did not take is the caller's still, and what it took is empty: that is what many of these tests look at.
// NOLINTBEGIN(bugprone-use-after-move)

namespace headroom::test {
namespace {

constexpr HostOptions kReal{.total_bytes = 1 << 20, .touch_memory = true};

struct Pair {
  int first;
  float second;
};
enum class Colour : int { red = 1 };

template <class T>
concept Zeroable = requires(MemoryGuard const& guard) { guard.safe_alloc<T>(1); };
template <class T>
concept ZeroableWithHooks = requires(MemoryGuard const& guard) { guard.safe_alloc_with_hooks<T>(1); };
template <class T>
concept Copyable = requires(MemoryGuard const& guard, std::vector<T> const& data) { guard.safe_alloc_copy(data); };

}  // namespace
}  // namespace headroom::test

template <>  // NOLINTNEXTLINE(readability-identifier-naming): the trait's name
inline constexpr bool headroom::valid_as_zero_bits<headroom::test::Pair> = true;

namespace headroom::test {
namespace {

TEST(GuardShape, is_made_by_its_builder_alone_and_shared_by_copies) {
  EXPECT_FALSE(std::is_default_constructible_v<MemoryGuard>);
  EXPECT_FALSE((std::is_constructible_v<MemoryGuard, Device>));
  EXPECT_FALSE((std::is_constructible_v<MemoryGuard, GpuMemoryManager>));
  EXPECT_FALSE(std::is_aggregate_v<MemoryGuard>);
  EXPECT_TRUE(std::is_copy_constructible_v<MemoryGuard> && std::is_move_constructible_v<MemoryGuard>);
  auto host = host_guard(1000);
  MemoryGuard moved = std::move(host.guard);
  const auto buffer = take(host.guard, 700);
  EXPECT_EQ(moved.stats().used, 700U);
  EXPECT_EQ(moved, host.guard);
}

TEST(GuardShape, every_member_may_be_called_by_several_threads_at_once) {
  auto host = host_guard(1 << 20);
  MemoryGuard const& guard = host.guard;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&guard, name = "hook-" + std::to_string(thread)] {
      for (int round = 0; round < 50; ++round) {
        EXPECT_TRUE(guard.register_hook({.name = name, .callback = [](HookContext const&) { return 0U; }}));
        const auto listener = guard.add_pressure_listener([](PressureChange const&) {});
        guard.on_oom([] {});
        guard.set_oom_policy(OomPolicy::retry_after_free());
        guard.set_budget(1 << 20);
        auto first = guard.safe_alloc<int>(100).value();
        const auto second = guard.safe_alloc_with_hooks<int>(100).value();
        const auto third = guard.safe_alloc_copy(std::vector<int>(100)).value();
        EXPECT_GE(guard.stats().used, 1200U);
        EXPECT_EQ(guard.budget(), 1U << 20);
        EXPECT_EQ(guard.pressure_level(), PressureLevel::none);
        EXPECT_EQ(guard.oom_policy(), OomPolicy::retry_after_free());
        EXPECT_EQ(guard.device().name(), "host");
        EXPECT_FALSE(guard.has_reservation());
        EXPECT_EQ(guard.release_reservation(), 0U);
        EXPECT_FALSE(guard.to_string().empty());
        guard.reset_peak_stats();
        EXPECT_TRUE(guard.free(std::move(first)));
        EXPECT_TRUE(guard.remove_pressure_listener(listener.value()));
        EXPECT_TRUE(guard.remove_hook(name));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(guard.stats().claimed, 0U);
  expect_clean(guard);
}

TEST(GuardShape, zeroed_elements_must_be_plain_data_of_which_zeros_are_a_value) {
  static_assert(Zeroable<int> && Zeroable<double> && Zeroable<std::byte> && Zeroable<std::array<float, 4>> && Zeroable<Pair>);
  static_assert(!Zeroable<Colour>);                                          // has no 0
  static_assert(!Zeroable<std::string> && !Zeroable<std::unique_ptr<int>>);  // not plain
  static_assert(ZeroableWithHooks<int> && ZeroableWithHooks<Pair> && !ZeroableWithHooks<Colour>);
  static_assert(Copyable<Colour> && Copyable<Pair> && !Copyable<std::string>);
}

TEST(Guard, hands_out_zeroed_memory_where_there_was_something_else) {
  auto host = host_guard(0, OomPolicy::fail(), kReal);
  {
    auto first = host.guard.safe_alloc<int>(64).value();
    for (int& value : first.host_span()) value = -1;
  }
  for (const bool hooks : {false, true}) {
    auto again = hooks ? host.guard.safe_alloc_with_hooks<int>(64).value() : host.guard.safe_alloc<int>(64).value();
    ASSERT_EQ(again.host_span().size(), 64U);
    for (int& value : again.host_span()) {
      EXPECT_EQ(value, 0);
      value = -1;
    }
  }
}

TEST(Guard, hands_out_a_copy_of_host_data) {
  auto host = host_guard(4096, OomPolicy::fail(), kReal);
  std::vector<Colour> data(100, Colour::red);
  data[42] = static_cast<Colour>(7);
  auto buffer = host.guard.safe_alloc_copy(data).value();
  data.assign(100, Colour{});
  ASSERT_EQ(buffer.size(), 100U);
  EXPECT_EQ(buffer.host_span()[0], Colour::red);
  EXPECT_EQ(buffer.host_span()[42], static_cast<Colour>(7));
  EXPECT_EQ(buffer.host_span()[99], Colour::red);
  EXPECT_EQ(host.guard.stats().used, 400U);
  // By an explicit type, and of an array.
  const std::array<std::uint16_t, 3> words{1, 2, 3};
  EXPECT_EQ(host.guard.safe_alloc_copy<std::uint16_t>(words).value().size_bytes(), 6U);
  EXPECT_EQ(host.guard.safe_alloc_copy(words).value().host_span()[2], 3U);
  // … and of spans, constant or not.
  const std::span<std::uint16_t const> constant{words};
  EXPECT_EQ(host.guard.safe_alloc_copy(constant).value().host_span()[0], 1U);
  EXPECT_EQ(host.guard.safe_alloc_copy(std::span{data}).value().size(), 100U);
}

TEST(Guard, empty_requests_succeed_and_hold_nothing) {
  auto host = host_guard(0);
  host.guard.set_budget(1);
  EXPECT_EQ(host.guard.safe_alloc<int>(0).value().data(), nullptr);
  EXPECT_EQ(host.guard.safe_alloc_with_hooks<int>(0).value().data(), nullptr);
  EXPECT_EQ(host.guard.safe_alloc_copy(std::vector<int>{}).value().data(), nullptr);
  EXPECT_TRUE(host.guard.free(TrackedBuffer<int>{}));
  EXPECT_EQ(host.guard.stats().claimed, 0U);
}

TEST(Guard, admits_an_exact_fit_and_refuses_the_next_byte_without_a_call_into_the_device) {
  auto scripted = scripted_manager();
  auto guard = MemoryGuardBuilder(scripted.manager).budget_bytes(1024).build().value();
  const auto held = guard.manager().alloc<std::byte>(1024).value();
  EXPECT_EQ(scripted.resource->allocations(), 1U);
  const std::vector<std::byte> one(1);
  for (auto const& refused :
       {guard.safe_alloc<std::byte>(1), guard.safe_alloc_with_hooks<std::byte>(1), guard.safe_alloc_copy(one)}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
    EXPECT_EQ(refused.error().layer, Layer::manager);
    EXPECT_EQ(refused.error().requested, 1U);
    EXPECT_EQ(refused.error().current, 1024U);
    EXPECT_EQ(refused.error().required, 1025U);
    EXPECT_EQ(refused.error().limit, 1024U);
  }
  EXPECT_EQ(scripted.resource->allocations(), 1U) << "the device was asked for what the budget refuses";
  EXPECT_EQ(guard.stats().refusals, 3U);
}

TEST(Guard, takes_a_buffer_of_its_ledger_whichever_door_it_came_by) {
  auto host = host_guard(4096);
  GpuMemoryManager manager = host.guard.manager();
  auto plain = manager.alloc<float>(100).value();
  auto own = host.guard.safe_alloc<float>(100).value();
  EXPECT_EQ(host.guard.stats().used, 800U);
  ASSERT_TRUE(host.guard.free(std::move(plain)));
  EXPECT_EQ(plain.data(), nullptr);
  EXPECT_EQ(manager.allocated_bytes(), 400U);
  ASSERT_TRUE(host.guard.free(std::move(own)));
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
}

TEST(Guard, lowers_the_figures_only_after_the_device_took_the_memory) {
  auto host = host_guard(4096);
  auto buffer = take(host.guard, 1000);
  host.resource->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver, .device_code = 700});
  EXPECT_FALSE(host.guard.free(std::move(buffer)));
  EXPECT_EQ(host.guard.stats().claimed, 1000U);
  EXPECT_EQ(host.guard.stats().used, 1000U);
}

TEST(Guard, a_free_that_the_device_refuses_leaves_the_buffer_in_the_callers_hands) {
  auto host = host_guard(4096);
  auto buffer = take(host.guard, 1000);
  std::byte* const address = buffer.data();
  host.resource->faults().add(
      {.operation = FaultOperation::deallocate, .times = 2, .kind = ErrorKind::driver, .device_code = 700});
  for (std::uint64_t tries = 1; tries <= 2; ++tries) {
    const auto freed = host.guard.free(std::move(buffer));
    ASSERT_FALSE(freed);
    EXPECT_EQ(freed.error().kind, ErrorKind::driver);
    EXPECT_EQ(freed.error().device_code, 700);
    EXPECT_EQ(buffer.data(), address);
    EXPECT_EQ(buffer.size_bytes(), 1000U);
    EXPECT_EQ(host.guard.manager().deallocation_failure_count(), tries);
    EXPECT_EQ(host.guard.manager().deallocation_failure_bytes(), 0U) << "it has an owner: nothing stands in quarantine";
    expect_clean(host.guard);
  }
  ASSERT_TRUE(host.guard.free(std::move(buffer)));
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(host.guard.stats().claimed, 0U);
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
  expect_clean(host.guard);
}

TEST(Guard, a_buffer_whose_free_was_refused_is_released_by_its_destructor_all_the_same) {
  auto host = host_guard(4096);
  {
    auto buffer = take(host.guard, 1000);
    host.resource->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver, .device_code = 700});
    EXPECT_FALSE(host.guard.free(std::move(buffer)));
  }
  EXPECT_EQ(host.guard.stats().claimed, 0U);
  EXPECT_EQ(host.guard.manager().deallocation_failure_count(), 1U);
  expect_clean(host.guard);
}

// A buffer may have come by an overlay that nobody has a handle of any more: its last buffer keeps the runtime, whoever frees that one.
TEST(Guard, freeing_an_overlays_last_buffer_lets_go_of_its_runtime) {
  FakeRuntime base;
  auto const guard =
      MemoryGuardBuilder(GpuMemoryManager::create(base.device, MemoryBudget::with_limit(1000)).value()).build().value();
  std::weak_ptr<FakeStack> stack;
  Bytes buffer;
  {
    auto decorated = std::make_shared<FakeStack>(base.host, FakeStackOptions{});
    stack = decorated;
    auto runtime = DeviceRuntime::create(base.device, {.stack = std::move(decorated)}).value();
    auto overlay = guard.manager().with_runtime_overlay(std::move(runtime)).value();
    buffer = overlay.alloc<std::byte>(100).value();
  }
  ASSERT_FALSE(stack.expired());
  ASSERT_TRUE(guard.free(std::move(buffer)));
  EXPECT_TRUE(stack.expired());
}

TEST(Guard, a_buffer_of_another_guard_is_refused_and_stays_intact) {
  auto mine = host_guard(4096);
  auto other = host_guard(4096);
  auto buffer = take(other.guard, 512);
  EventWatch watch;
  const auto freed = mine.guard.free(std::move(buffer));
  ASSERT_FALSE(freed);
  EXPECT_EQ(freed.error().kind, ErrorKind::wrong_owner);
  EXPECT_EQ(freed.error().layer, Layer::guard);
  EXPECT_EQ(buffer.size_bytes(), 512U);
  for (auto const& guard : {mine.guard, other.guard}) {
    expect_clean(guard);
    EXPECT_EQ(guard.manager().deallocation_failure_count(), 0U) << "misuse is no failure of the device";
  }
  EXPECT_EQ(mine.guard.stats().claimed, 0U);
  EXPECT_EQ(other.guard.stats().used, 512U);
  EXPECT_EQ(other.resource->usage().live, 512U);
  const auto misuse = snapshot_of(mine.guard.manager()).free_failures;
  EXPECT_EQ(misuse[static_cast<std::size_t>(ErrorKind::wrong_owner)], 1U);
  EXPECT_EQ(watch.count(mine.guard.manager(), flight::EventKind::free_failed), 1U);
  ASSERT_TRUE(other.guard.free(std::move(buffer)));
  EXPECT_EQ(other.guard.stats().claimed, 0U);
}

TEST(Guard, buffers_that_are_destroyed_without_free_are_released_the_same_way) {
  auto host = host_guard(4096);
  for (int round = 0; round < 100; ++round) {
    const auto zeroed = take(host.guard, 2048);
    const auto copied = host.guard.safe_alloc_copy(std::vector<int>(512)).value();
    EXPECT_EQ(host.guard.stats().used, 4096U);
  }
  EXPECT_EQ(host.guard.stats().claimed, 0U);
  EXPECT_EQ(host.guard.stats().live_allocations, 0U);
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
  expect_clean(host.guard);
}

TEST(Guard, buffers_outlive_every_handle_of_their_guard) {
  std::optional<Bytes> buffer;
  auto manager = [&] {
    auto host = host_guard(4096);
    buffer = take(host.guard, 100);
    return host.guard.manager();
  }();
  EXPECT_EQ(manager.allocated_bytes(), 100U);
  buffer.reset();
  EXPECT_EQ(manager.claimed_bytes(), 0U);
}

TEST(Guard, memory_that_cannot_be_filled_is_given_back) {
  auto host = host_guard(4096);
  for (const FaultOperation stage : {FaultOperation::fill, FaultOperation::copy}) {
    host.resource->faults().add({.operation = stage, .kind = ErrorKind::driver, .device_code = 700});
    const std::vector<std::byte> data(500);
    const auto refused = stage == FaultOperation::fill ? host.guard.safe_alloc<std::byte>(500) : host.guard.safe_alloc_copy(data);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::driver);
    EXPECT_EQ(refused.error().device_code, 700);
    EXPECT_EQ(refused.error().requested, 500U);
    EXPECT_NE(refused.error().message.find("could not be filled"), std::string::npos) << refused.error().message;
  }
  EXPECT_EQ(host.guard.stats().claimed, 0U);
  EXPECT_EQ(host.guard.stats().refusals, 2U);
  EXPECT_EQ(host.guard.manager().alloc_count(), 2U) << "two calls";
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
  expect_clean(host.guard);
}

TEST(Guard, a_device_that_cannot_zero_memory_says_so) {
  auto scripted = scripted_manager();
  auto guard = MemoryGuardBuilder(scripted.manager).build().value();
  const auto refused = guard.safe_alloc<int>(16);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(scripted.resource->frees(), 1U);
  EXPECT_EQ(guard.stats().claimed, 0U);
}

TEST(Guard, sizes_that_cannot_be_represented_are_refused_before_anything_is_touched) {
  auto host = host_guard(1 << 30, OomPolicy::checkpoint_and_fail());
  std::uint64_t calls = 0;
  ASSERT_TRUE(host.guard.register_hook({.name = "h", .callback = [&](HookContext const&) { return ++calls; }}));
  host.guard.on_oom([&] { ++calls; });
  for (const std::uint64_t bytes : {SIZE_MAX, SIZE_MAX - 510, SIZE_MAX / 2 + 1}) {
    const auto refused = host.guard.safe_alloc_with_hooks<std::byte>(bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::overflow);
  }
  EXPECT_EQ(host.guard.safe_alloc_with_hooks<double>(std::uint64_t{1} << 61).error().kind, ErrorKind::overflow);
  EXPECT_EQ(calls, 0U) << "no memory that comes back could help";
  EXPECT_EQ(host.guard.stats().claimed, 0U);
}

// An independent counter, in the spirit of the seed: what is handed out at once is never more than the budget.
TEST(Guard, threads_together_never_hold_more_than_the_budget) {
  constexpr std::uint64_t kBudget = 10'000;
  auto host = host_guard(kBudget);
  std::atomic<std::uint64_t> live{0}, most{0}, granted{0};
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t round = 0; round < 2000; ++round) {
        const std::uint64_t bytes = 1 + (thread * 7919 + round * 104'729) % 4000;
        auto buffer =
            round % 2 == 0 ? host.guard.safe_alloc<std::byte>(bytes) : host.guard.safe_alloc_with_hooks<std::byte>(bytes);
        if (!buffer) continue;
        const std::uint64_t now = live.fetch_add(bytes) + bytes;
        for (std::uint64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        ++granted;
        live.fetch_sub(bytes);         // before the free: the counter is never above what is held
        if (round % 3 == 0) continue;  // the destructor frees it
        EXPECT_TRUE(host.guard.free(std::move(*buffer)));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GT(granted.load(), 0U);
  EXPECT_LE(most.load(), kBudget);
  EXPECT_LE(host.guard.stats().peak, kBudget);
  EXPECT_EQ(host.guard.stats().claimed, 0U);
  expect_clean(host.guard);
}

}  // namespace
}  // namespace headroom::test

// NOLINTEND(bugprone-use-after-move)
