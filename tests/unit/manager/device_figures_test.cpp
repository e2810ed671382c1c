// What is published of the device: its memory, and what is used of it outside of this process's ledgers.
#include <headroom/device_account.hpp>

#include "device_budgets.hpp"
#include "managers.hpp"
#include "scripted_resource.hpp"

namespace headroom::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

const HostOptions kDevice{.total_bytes = 1000 * kMiB, .context_overhead_bytes = 40 * kMiB, .touch_memory = false};

TEST(DeviceFigures, are_there_from_the_start) {
  auto host = host_manager(MemoryBudget::unlimited(), kDevice);
  const auto seen = snapshot_of(host.manager);
  EXPECT_EQ(seen.device_total, 1000 * kMiB);
  EXPECT_EQ(seen.device_free, 960 * kMiB);
  EXPECT_EQ(seen.device_outside, 40 * kMiB);
}

TEST(DeviceFigures, are_as_last_seen_and_a_refresh_sees) {
  auto host = host_manager(MemoryBudget::unlimited(), kDevice);
  auto held = host.manager.alloc<std::byte>(100 * kMiB).value();
  const auto library = host.resource->allocate({.bytes = 7 * kMiB}).value();
  EXPECT_EQ(snapshot_of(host.manager).device_free, 960 * kMiB) << "an allocation that succeeds asks the driver nothing";
  host.manager.refresh_device_figures();
  EXPECT_EQ(snapshot_of(host.manager).device_free, 853 * kMiB);
  EXPECT_EQ(snapshot_of(host.manager).device_outside, 47 * kMiB) << "context and what the library took";
  ASSERT_TRUE(host.resource->deallocate(library));
  host.manager.set_budget(MemoryBudget::with_limit(500 * kMiB));
  EXPECT_EQ(snapshot_of(host.manager).device_outside, 40 * kMiB) << "a change of the budget looks too";
}

TEST(DeviceFigures, a_shortage_brings_them_up_to_date_and_a_refusal_by_the_budget_asks_no_driver) {
  auto host = host_manager(MemoryBudget::with_limit(900 * kMiB), kDevice);
  auto held = host.manager.alloc<std::byte>(600 * kMiB).value();
  EXPECT_FALSE(host.manager.alloc<std::byte>(400 * kMiB)) << "over budget";
  EXPECT_EQ(snapshot_of(host.manager).device_free, 960 * kMiB);
  const auto library = host.resource->allocate({.bytes = 200 * kMiB}).value();
  const auto refused = host.manager.alloc<std::byte>(300 * kMiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(refused.error().device_outside, 240 * kMiB);
  EXPECT_EQ(snapshot_of(host.manager).device_free, 160 * kMiB);
  EXPECT_EQ(snapshot_of(host.manager).device_outside, 240 * kMiB);
  ASSERT_TRUE(host.resource->deallocate(library));
}

TEST(DeviceFigures, neither_of_two_managers_of_one_device_is_outside) {
  auto host = HostResource::create(kDevice).value();
  const auto device = host_device_over(host).value();
  auto first = GpuMemoryManager::create(device, MemoryBudget::unlimited()).value();
  auto second = GpuMemoryManager::create(device, MemoryBudget::unlimited()).value();
  auto of_another_device = host_manager(MemoryBudget::unlimited(), kDevice);
  auto a = first.alloc<std::byte>(100 * kMiB).value();
  auto b = second.alloc<std::byte>(200 * kMiB).value();
  auto c = of_another_device.manager.alloc<std::byte>(300 * kMiB).value();
  first.refresh_device_figures();
  EXPECT_EQ(snapshot_of(first).device_outside, 40 * kMiB);
  EXPECT_EQ(snapshot_of(first).device_free, 660 * kMiB);
}

TEST(DeviceFigures, a_managers_blocks_are_counted_once_though_its_account_has_them_too) {
  auto host = HostResource::create(kDevice).value();
  const auto device = host_device_over(host).value();
  auto stack = GlobalDeviceBudget::create(device, MemoryBudget::unlimited()).value();
  if (!stack->account().ledger_cell()) GTEST_SKIP() << "earlier tests of this process took all cells";
  EXPECT_EQ(snapshot_of(stack->account()).device_outside, 40 * kMiB);
  auto manager =
      GpuMemoryManager::with_runtime(device, MemoryBudget::unlimited(), DeviceRuntime::create(device, {.stack = stack}).value())
          .value();
  auto held = manager.alloc<std::byte>(100 * kMiB).value();
  ASSERT_TRUE(manager.reap_pending_deallocations());
  for (auto const& seen : {snapshot_of(manager), snapshot_of(stack->account())}) {
    EXPECT_EQ(seen.device_free, 860 * kMiB) << seen.name;
    EXPECT_EQ(seen.device_outside, 40 * kMiB) << seen.name;
  }
}

TEST(DeviceFigures, rounding_and_caches_of_ones_own_are_not_outside) {
  HostOptions options = kDevice;
  options.granularity_bytes = 2 * kMiB;
  options.release_threshold_bytes = 500 * kMiB;
  auto host = host_manager(MemoryBudget::unlimited(), options);
  auto small = host.manager.alloc<std::byte>(1).value();
  ASSERT_TRUE(host.manager.alloc<std::byte>(100 * kMiB)->release());
  host.manager.refresh_device_figures();
  EXPECT_EQ(snapshot_of(host.manager).device_free, 858 * kMiB);
  EXPECT_EQ(snapshot_of(host.manager).device_outside, 40 * kMiB);
}

TEST(DeviceFigures, what_is_unknown_is_absent_and_never_0) {
  auto scripted = scripted_manager();
  scripted.manager.refresh_device_figures();
  const auto seen = snapshot_of(scripted.manager);
  EXPECT_FALSE(seen.device_total);
  EXPECT_FALSE(seen.device_free);
  EXPECT_FALSE(seen.device_outside);
}

// A cell is used again by the next manager, whatever its device tells.
TEST(DeviceFigures, of_an_earlier_manager_do_not_stay_in_its_cell) {
  std::optional<std::uint32_t> cell;
  {
    auto host = host_manager(MemoryBudget::unlimited(), kDevice);
    cell = host.manager.ledger_cell();
    ASSERT_TRUE(snapshot_of(host.manager).device_outside);
  }
  std::vector<ScriptedManager> next{scripted_manager()};
  while (next.back().manager.ledger_cell() != cell && next.size() < flight::kLedgerCount) next.push_back(scripted_manager());
  ASSERT_EQ(next.back().manager.ledger_cell(), cell);
  EXPECT_FALSE(snapshot_of(next.back().manager).device_free);
  EXPECT_FALSE(snapshot_of(next.back().manager).device_outside);
}

// The books of an account still hold what was left in its device; a device that gets its address is another one all the same.
TEST(DeviceFigures, what_was_left_in_a_device_that_is_gone_is_not_taken_for_anothers) {
  for (int round = 0; round < 8; ++round) {
    auto host = HostResource::create(kDevice).value();
    auto stack = GlobalDeviceBudget::create(host_device_over(host).value(), MemoryBudget::unlimited()).value();
    ASSERT_TRUE(stack->allocate({.bytes = 500 * kMiB}));  // and never freed
    stack.reset();
    host.reset();
    auto manager = host_manager(MemoryBudget::unlimited(), kDevice);
    EXPECT_EQ(snapshot_of(manager.manager).device_outside, 40 * kMiB);
  }
}

}  // namespace
}  // namespace headroom::test
