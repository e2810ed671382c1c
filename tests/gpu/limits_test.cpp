// Budgets over real pools: exactly at the limit, and one budget for several managers.
#include <headroom/device_account.hpp>
#include <headroom/launch.hpp>
#include <headroom/runtime.hpp>

#include "gpu_support.hpp"
#include "scale.hpp"

namespace headroom::gpu {
namespace {

constexpr std::uint64_t kLimit = 256 * kMiB;

class Limits : public Gpu {
protected:
  static std::shared_ptr<GlobalDeviceBudget> budget_on(Device const& device) {
    return GlobalDeviceBudget::create(device, MemoryBudget::with_limit(kLimit)).value();
  }
};

TEST_F(Limits, a_tight_loop_at_exactly_the_limit_is_never_refused) {
  const auto pool = make_pool();
  auto runtime = DeviceRuntime::create(pool.device, {.stack = budget_on(pool.device)}).value();
  auto manager = GpuMemoryManager::with_runtime(pool.device, MemoryBudget::with_limit(kLimit), runtime).value();
  const auto stream = runtime.acquire_stream().value();
  const std::uint64_t rounds = test::scaled(2000);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    auto block = manager.alloc<std::byte>(kLimit, {.stream = stream.id()});
    ASSERT_TRUE(ok(block)) << "in round " << round;
  }
  EXPECT_EQ(manager.stats().refusals, 0U);
  EXPECT_EQ(manager.peak_bytes(), kLimit);
  EXPECT_FALSE(manager.alloc<std::byte>(kLimit + 1));
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

// Every free has to wait for another stream here, so that the next request always meets a budget that is still spent.
TEST_F(Limits, a_tight_loop_whose_frees_wait_for_another_stream_is_never_refused) {
  const auto pool = make_pool();
  auto runtime = DeviceRuntime::create(pool.device, {.stack = budget_on(pool.device)}).value();
  auto manager = GpuMemoryManager::with_runtime(pool.device, MemoryBudget::with_limit(kLimit), runtime).value();
  const auto own = runtime.acquire_stream().value();
  const auto other = runtime.acquire_stream().value();
  const std::uint64_t rounds = test::scaled(300);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    auto block = manager.alloc<std::byte>(kLimit, {.stream = own.id()});
    ASSERT_TRUE(ok(block)) << "in round " << round;
    auto launch = Launch::on(runtime, other.id());
    ASSERT_TRUE(ok(launch.writes(*block).prepare()));
    ASSERT_TRUE(ok(cudaMemsetAsync(block->data(), 1, kLimit, cuda(other.id()))));
    ASSERT_TRUE(ok(launch.finish()));
  }
  EXPECT_EQ(manager.stats().refusals, 0U);
  EXPECT_TRUE(ok(manager.reap_pending_deallocations()));
  EXPECT_EQ(pool.resource->bytes_outstanding(), 0U);
}

// One manager over a pool, one over cudaMalloc: the same card, told by its UUID, and so the same budget.
TEST_F(Limits, one_device_budget_holds_for_managers_of_different_resources) {
  const auto pool = make_pool();
  const auto direct = make_direct();
  ASSERT_FALSE(pool.resource->device_uuid().empty());
  EXPECT_EQ(pool.resource->device_uuid(), direct.resource->device_uuid());
  const auto pool_budget = budget_on(pool.device);
  const auto direct_budget = budget_on(direct.device);
  EXPECT_EQ(pool_budget->account(), direct_budget->account());
  auto pool_runtime = DeviceRuntime::create(pool.device, {.stack = pool_budget}).value();
  auto direct_runtime = DeviceRuntime::create(direct.device, {.stack = direct_budget}).value();
  auto first = GpuMemoryManager::with_runtime(pool.device, MemoryBudget::unlimited(), pool_runtime).value();
  auto second = GpuMemoryManager::with_runtime(direct.device, MemoryBudget::unlimited(), direct_runtime).value();

  auto most = first.alloc<std::byte>(200 * kMiB).value();
  const auto refused = second.alloc<std::byte>(56 * kMiB + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().layer, Layer::device_account);
  EXPECT_EQ(refused.error().current, 200 * kMiB);
  EXPECT_EQ(refused.error().required, kLimit + 1);
  EXPECT_EQ(refused.error().limit, kLimit);
  EXPECT_EQ(second.claimed_bytes(), 0U);
  auto rest = second.alloc<std::byte>(56 * kMiB);
  ASSERT_TRUE(ok(rest)) << "an exact fit";
  EXPECT_FALSE(first.alloc<std::byte>(1));
  EXPECT_TRUE(ok(most.release()));
  auto next = second.alloc<std::byte>(200 * kMiB);
  EXPECT_TRUE(ok(next)) << "what one gave back the other may have, pending or not";
  EXPECT_EQ(pool_budget->account().claimed_bytes(), kLimit);
  EXPECT_TRUE(ok(next->release()));
  EXPECT_TRUE(ok(rest->release()));
  EXPECT_TRUE(ok(pool_runtime.reap_pending()));
  EXPECT_TRUE(ok(direct_runtime.reap_pending()));
  EXPECT_EQ(pool_budget->account().claimed_bytes(), 0U);
}

}  // namespace
}  // namespace headroom::gpu
