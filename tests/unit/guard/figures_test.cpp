// What a guard says: budget, pressure, figures, printing, and how its builder makes it.
#include <sstream>
#include <string>
#include <vector>

#include "fake_stack.hpp"
#include "guards.hpp"
#include "scripted_resource.hpp"

namespace headroom::test {
namespace {

TEST(GuardBudget, is_the_ledgers_and_can_change_at_any_time) {
  auto host = host_guard(1024);
  EXPECT_EQ(host.guard.budget(), 1024U);
  EXPECT_EQ(host.guard.manager().budget(), MemoryBudget::with_limit(1024));
  auto held = take(host.guard, 1024);
  EXPECT_FALSE(host.guard.safe_alloc<std::byte>(1));
  host.guard.set_budget(1025);
  EXPECT_EQ(host.guard.budget(), 1025U);
  EXPECT_TRUE(host.guard.safe_alloc<std::byte>(1));
  EXPECT_FALSE(host.guard.safe_alloc<std::byte>(2));
  host.guard.set_budget(0);
  EXPECT_EQ(host.guard.budget(), 0U);
  EXPECT_EQ(host.guard.manager().budget_limit_bytes(), std::nullopt);
  EXPECT_TRUE(host.guard.safe_alloc<std::byte>(1 << 20)) << "without a budget";
  host.guard.manager().set_budget(MemoryBudget::with_limit(77));
  EXPECT_EQ(host.guard.budget(), 77U) << "one ledger: what its manager says, the guard says";
}

TEST(GuardBudget, lowered_below_use_takes_nothing_away_and_grants_nothing) {
  auto host = host_guard(4096);
  auto held = take(host.guard, 3000);
  std::vector<PressureChange> heard;
  ASSERT_TRUE(host.guard.add_pressure_listener([&](PressureChange const& change) { heard.push_back(change); }));
  host.guard.set_budget(1000);
  EXPECT_EQ(host.guard.stats().used, 3000U);
  EXPECT_EQ(host.guard.pressure_level(), PressureLevel::critical);
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].to, PressureLevel::critical);
  const auto refused = host.guard.safe_alloc<std::byte>(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().limit, 1000U);
  EXPECT_EQ(refused.error().current, 3000U);
  ASSERT_TRUE(host.guard.free(std::move(held)));
  EXPECT_EQ(heard.size(), 2U);
  EXPECT_EQ(heard.back().to, PressureLevel::none);
  EXPECT_TRUE(host.guard.safe_alloc<std::byte>(1000));
}

TEST(GuardPressure, is_the_seeds_function_of_claimed_bytes_and_budget) {
  constexpr std::pair<std::uint64_t, PressureLevel> kTable[] = {
      {0, PressureLevel::none},   {699, PressureLevel::none},   {700, PressureLevel::low},
      {890, PressureLevel::low},  {900, PressureLevel::medium}, {949, PressureLevel::medium},
      {950, PressureLevel::high}, {999, PressureLevel::high},   {1000, PressureLevel::critical}};
  for (auto const& [used, level] : kTable) {
    auto host = host_guard(1000);
    const auto held = host.guard.safe_alloc<std::byte>(used).value();
    EXPECT_EQ(host.guard.pressure_level(), level) << used;
    EXPECT_EQ(host.guard.stats().pressure, level) << used;
    host.guard.set_budget(0);
    EXPECT_EQ(host.guard.pressure_level(), PressureLevel::none) << "without a budget";
  }
}

TEST(GuardPressure, listeners_hear_of_every_door_and_can_be_removed) {
  auto host = host_guard(1000);
  std::vector<std::pair<PressureLevel, PressureLevel>> heard;
  const auto id =
      host.guard.add_pressure_listener([&](PressureChange const& change) { heard.emplace_back(change.from, change.to); });
  ASSERT_TRUE(id);
  using enum PressureLevel;
  {
    const auto held = take(host.guard, 800);
  }
  {
    const auto held = host.guard.safe_alloc_with_hooks<std::byte>(920).value();
  }
  {
    const auto held = host.guard.safe_alloc_copy(std::vector<std::byte>(960)).value();
  }
  {
    const auto held = host.guard.manager().alloc<std::byte>(1000).value();
  }
  {
    const auto held = host.guard.manager().reserve_bytes(700).value();
  }
  EXPECT_EQ(heard, (std::vector<std::pair<PressureLevel, PressureLevel>>{{none, low},
                                                                         {low, none},
                                                                         {none, medium},
                                                                         {medium, none},
                                                                         {none, high},
                                                                         {high, none},
                                                                         {none, critical},
                                                                         {critical, none},
                                                                         {none, low},
                                                                         {low, none}}));
  {
    const auto held = take(host.guard, 100);
  }
  EXPECT_EQ(heard.size(), 10U) << "no change, no notice";
  auto other = host_guard(1000);
  EXPECT_FALSE(other.guard.remove_pressure_listener(*id)) << "another guard's";
  EXPECT_TRUE(host.guard.remove_pressure_listener(*id));
  EXPECT_FALSE(host.guard.remove_pressure_listener(*id));
  {
    const auto held = take(host.guard, 800);
  }
  EXPECT_EQ(heard.size(), 10U);
}

TEST(GuardPressure, listeners_end_with_their_guard) {
  auto host = host_guard(1000);
  GpuMemoryManager manager = host.guard.manager();
  std::uint64_t calls = 0;
  {
    auto second = MemoryGuardBuilder(manager).build().value();
    ASSERT_TRUE(second.add_pressure_listener([&](PressureChange const&) { ++calls; }));
    const auto held = take(host.guard, 800);
    EXPECT_EQ(calls, 1U);
  }
  EXPECT_EQ(calls, 2U);
  const auto held = take(host.guard, 800);
  EXPECT_EQ(calls, 2U) << "the guard that they were added to is gone";
}

TEST(GuardPressure, the_margin_is_the_builders) {
  EXPECT_EQ(changes_at_a_boundary(0, 10), 20U);
  EXPECT_EQ(changes_at_a_boundary({}, 10), 1U);
}

TEST(GuardStats, are_one_consistent_reading_of_the_managers_books) {
  auto host = host_guard(4096, OomPolicy::fail(), {.total_bytes = 1 << 20, .touch_memory = false});
  auto first = take(host.guard, 1024);
  {
    const auto second = take(host.guard, 2048);
    const auto reservation = host.guard.manager().reserve_bytes(512).value();
    const GuardStats stats = host.guard.stats();
    EXPECT_EQ(stats.used, 3072U);
    EXPECT_EQ(stats.claimed, 3584U);
    EXPECT_EQ(stats.budget, 4096U);
    EXPECT_EQ(stats.live_allocations, 2U);
    EXPECT_EQ(stats.device_total, 1U << 20);
    EXPECT_EQ(stats.device_free, (1U << 20) - 3072U);
    EXPECT_FALSE(host.guard.safe_alloc<std::byte>(1024));
  }
  const GuardStats stats = host.guard.stats();
  EXPECT_EQ(stats.used, 1024U);
  EXPECT_EQ(stats.peak, 3072U);
  EXPECT_EQ(stats.refusals, 1U);
  EXPECT_EQ(stats.recoveries, 0U);
  host.guard.reset_peak_stats();
  EXPECT_EQ(host.guard.stats().peak, 1024U);
  EXPECT_EQ(host.guard.manager().peak_bytes(), 1024U);
}

TEST(GuardStats, leave_out_what_the_device_does_not_say) {
  auto scripted = scripted_manager();
  auto guard = MemoryGuardBuilder(scripted.manager).build().value();
  EXPECT_EQ(guard.stats().device_free, std::nullopt);
  EXPECT_EQ(guard.stats().device_total, std::nullopt);
}

TEST(GuardShape, lends_its_device_and_its_manager) {
  auto resource = HostResource::create({.touch_memory = false}).value();
  const auto device = host_device_over(resource).value();
  auto manager = GpuMemoryManager::create(device, MemoryBudget::with_limit(100), "lent").value();
  auto guard = MemoryGuardBuilder(manager).build().value();
  EXPECT_EQ(guard.device(), device);
  EXPECT_EQ(guard.shared_device(), device);
  EXPECT_EQ(guard.manager().name(), "lent");
  EXPECT_EQ(guard.manager().ledger_cell(), manager.ledger_cell());
  EXPECT_EQ(guard.budget(), 100U) << "a manager keeps its own budget where the builder names none";
}

TEST(GuardShape, stands_on_a_manager_with_a_runtime_and_goes_through_its_stack) {
  auto resource = HostResource::create({.touch_memory = false}).value();
  const auto device = host_device_over(resource).value();
  auto runtime = DeviceRuntime::create(device).value();
  auto manager = GpuMemoryManager::with_runtime(device, MemoryBudget::with_limit(1000), runtime).value();
  auto guard = MemoryGuardBuilder(manager).build().value();
  auto raw = manager.alloc_raw(400, AllocTag{}).value();
  EXPECT_EQ(guard.stats().used, 400U);
  auto typed = take(guard, 600);
  EXPECT_FALSE(guard.safe_alloc<std::byte>(1));
  ASSERT_TRUE(guard.free(std::move(typed)));
  EXPECT_EQ(guard.stats().used, 400U);
}

TEST(GuardShape, prints_itself_its_figures_and_its_policy) {
  auto device = host_device({.touch_memory = false}).value();
  auto guard = MemoryGuardBuilder(device).name("printed").budget_bytes(2048).build().value();
  const auto held = take(guard, 1536);
  ASSERT_TRUE(guard.register_hook({.name = "one", .callback = [](HookContext const&) { return 0U; }}));
  std::ostringstream out;
  out << guard;
  EXPECT_EQ(out.str(),
            "guard of 'printed' on 'host': 1.5 KiB of 2 KiB claimed, pressure low, 1 hook, policy fail, no reservation");
  out.str({});
  out << OomPolicy::wait_and_retry(std::chrono::milliseconds{200}) << ", " << OomPolicy::retry_after_free() << ", "
      << OomPolicy::checkpoint_and_fail();
  EXPECT_EQ(out.str(), "wait 200 ms and retry, retry after free, checkpoint and fail");
  out.str({});
  out << guard.stats();
  EXPECT_NE(out.str().find("1.5 KiB of 2 KiB used"), std::string::npos) << out.str();
}

TEST(GuardBuilder, refuses_what_makes_no_sense_and_leaves_no_trace) {
  auto host = host_manager(MemoryBudget::with_limit(100), {.total_bytes = 4096, .touch_memory = false});
  const auto no_limit = MemoryGuardBuilder(host.manager).budget_bytes(50).callback_limit(std::chrono::nanoseconds{0}).build();
  ASSERT_FALSE(no_limit);
  EXPECT_EQ(no_limit.error().kind, ErrorKind::invalid_argument);
  const auto no_memory = MemoryGuardBuilder(host.manager).budget_bytes(50).reserve_bytes(8192).build();
  ASSERT_FALSE(no_memory);
  EXPECT_EQ(no_memory.error().kind, ErrorKind::device_out_of_memory);
  const auto no_budget = MemoryGuardBuilder(host.manager).budget_bytes(50).reserve_bytes(64).emergency_reserve_bytes(51).build();
  ASSERT_FALSE(no_budget);
  EXPECT_EQ(no_budget.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(host.manager.budget(), MemoryBudget::with_limit(100));
  EXPECT_EQ(host.manager.claimed_bytes(), 0U);
  EXPECT_EQ(host.resource->bytes_outstanding(), 0U);
}

}  // namespace
}  // namespace headroom::test
