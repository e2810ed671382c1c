// The end of the device's memory, the pool's own figures, and what is left on the device when all is over.
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <headroom/device_account.hpp>
#include <headroom/launch.hpp>

#include "gpu_support.hpp"

namespace headroom::gpu {
namespace {

MemoryInfo memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_TRUE(ok(cudaMemGetInfo(&free, &total)));
  return {.total = total, .free = free};
}

class OutOfMemory : public Gpu {
protected:
  /// What a refusal by the device has to say, whichever resource asked.
  static void expect_refused(Error const& error, std::uint64_t requested) {
    EXPECT_EQ(error.kind, ErrorKind::device_out_of_memory) << error.to_string();
    EXPECT_EQ(error.requested, requested);
    EXPECT_EQ(error.device_code, cudaErrorMemoryAllocation);
    ASSERT_TRUE(error.device_free) << error.to_string();
    EXPECT_LE(*error.device_free, *memory().total);
    EXPECT_TRUE(ok(cudaPeekAtLastError())) << "the error is ours, and is taken back";
  }

  static void ask_for_more_than_there_is(Device const& device) {
    auto manager = GpuMemoryManager::create(device, MemoryBudget::unlimited()).value();
    auto small = manager.alloc<std::byte>(kMiB).value();
    const std::uint64_t too_much = *memory().total + kGiB;
    const auto refused = manager.alloc<std::byte>(too_much);
    ASSERT_FALSE(refused);
    expect_refused(refused.error(), too_much);
    EXPECT_LT(refused.error().device_free, *memory().total) << "the context and our own block are not free";
    EXPECT_EQ(manager.claimed_bytes(), kMiB) << "the refused claim went back";
    EXPECT_EQ(manager.stats().refusals, 1U);
    EXPECT_EQ(device.resource().bytes_outstanding(), kMiB);
    EXPECT_TRUE(ok(manager.alloc<std::byte>(kMiB))) << "a refusal breaks nothing";
    EXPECT_TRUE(ok(small.release()));
    EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
  }

  /// Takes the device's memory block by block until it says no. What was granted is good, and all of it comes back.
  static void take_all_there_is(Device const& device) {
    constexpr std::uint64_t kBlock = 4 * kGiB;
    auto manager = GpuMemoryManager::create(device, MemoryBudget::unlimited()).value();
    // What writing and looking take of the device they have before it is full.
    const Pinned seen{1};
    {
      auto small = manager.alloc<std::byte>(kMiB).value();
      EXPECT_TRUE(ok(cudaMemset(small.data(), 1, 1)));
      EXPECT_TRUE(ok(cudaMemcpy(seen.get(), small.data(), 1, cudaMemcpyDeviceToHost)));
    }
    const std::uint64_t most = *memory().total / kBlock + 1;
    std::vector<TrackedBuffer<std::byte>> held;
    std::optional<Error> end;
    while (!end && held.size() <= most) {
      auto block = manager.alloc<std::byte>(kBlock);
      if (block) {
        held.push_back(*std::move(block));
      } else {
        end = block.error();
      }
    }
    ASSERT_TRUE(end) << "the device gave more than it has";
    expect_refused(*end, kBlock);
    EXPECT_LT(end->device_free, kBlock + kGiB) << "full, up to what the driver keeps for itself and cannot piece together";
    EXPECT_EQ(manager.claimed_bytes(), held.size() * kBlock);
    const auto granted = held.size();
    EXPECT_EQ(manager.peak_bytes(), granted == 0 ? kMiB : granted * kBlock);
    std::cout << "granted " << granted << " blocks of 4 GiB; then: " << end->to_string() << '\n';
    if (granted != 0) {
      // The last byte of the last block is memory as any other.
      auto& last = held.back();
      EXPECT_TRUE(ok(cudaMemset(last.data() + kBlock - 1, 0x5a, 1)));
      EXPECT_TRUE(ok(cudaMemcpy(seen.get(), last.data() + kBlock - 1, 1, cudaMemcpyDeviceToHost)));
      EXPECT_EQ(*seen.get(), std::byte{0x5a});
    }
    held.clear();
    EXPECT_TRUE(ok(device.resource().reap_pending(ReapMode::synchronize)));
    EXPECT_EQ(manager.claimed_bytes(), 0U);
    EXPECT_EQ(device.resource().bytes_outstanding(), 0U);
    auto again = manager.alloc<std::byte>(kBlock);
    if (granted != 0) {
      EXPECT_TRUE(ok(again)) << "what was full is empty again";
    }
  }
};

TEST_F(OutOfMemory, of_the_pool_has_its_own_kind_and_the_free_figure) { ask_for_more_than_there_is(make_pool().device); }
TEST_F(OutOfMemory, of_cuda_malloc_has_its_own_kind_and_the_free_figure) { ask_for_more_than_there_is(make_direct().device); }
TEST_F(OutOfMemory, of_the_pool_comes_when_the_device_is_full_and_goes_when_it_is_empty) {
  take_all_there_is(make_pool().device);
}
TEST_F(OutOfMemory, of_cuda_malloc_comes_when_the_device_is_full_and_goes_when_it_is_empty) {
  take_all_there_is(make_direct().device);
}

class PoolFigures : public Gpu {};

// CUDA rounds what it hands out up, by less than a page of 2 MiB a block.
TEST_F(PoolFigures, used_and_peak_are_those_of_the_pool_itself) {
  constexpr std::uint64_t kBlock = 32 * kMiB;
  constexpr std::uint64_t kPage = 2 * kMiB;
  const auto pool = make_pool();
  auto manager = GpuMemoryManager::create(pool.device, MemoryBudget::unlimited()).value();
  const auto expect_same = [&](std::uint64_t blocks, std::uint64_t blocks_at_peak) {
    ASSERT_TRUE(ok(pool.resource->reap_pending(ReapMode::synchronize)));
    const auto usage = pool.resource->pool_usage();
    ASSERT_TRUE(ok(usage));
    EXPECT_EQ(manager.allocated_bytes(), blocks * kBlock);
    EXPECT_EQ(manager.peak_bytes(), blocks_at_peak * kBlock);
    EXPECT_EQ(pool.resource->bytes_outstanding(), blocks * kBlock);
    EXPECT_GE(usage->used, manager.allocated_bytes());
    EXPECT_LE(usage->used, manager.allocated_bytes() + blocks * kPage);
    EXPECT_GE(usage->used_high, manager.peak_bytes());
    EXPECT_LE(usage->used_high, manager.peak_bytes() + blocks_at_peak * kPage);
    EXPECT_GE(usage->reserved, usage->used);
    EXPECT_GE(usage->reserved_high, usage->used_high);
    std::cout << "ours: " << manager.allocated_bytes() << " used, peak " << manager.peak_bytes()
              << "; the pool's: " << usage->used << ", peak " << usage->used_high << "; it reserves " << usage->reserved << '\n';
  };
  std::vector<TrackedBuffer<std::byte>> held;
  for (std::uint64_t i = 1; i <= 6; ++i) {
    held.push_back(manager.alloc<std::byte>(kBlock).value());
    expect_same(i, i);
  }
  held.resize(2);
  expect_same(2, 6);
  for (int i = 0; i < 3; ++i) held.push_back(manager.alloc<std::byte>(kBlock).value());
  expect_same(5, 6);
  held.clear();
  expect_same(0, 6);
}

class MemoryBack : public Gpu {
protected:
  /// A bit of everything, in resources that end with it.
  static void work() {
    for (auto const& device : {make_pool().device, make_direct().device}) {
      auto stack = GlobalDeviceBudget::create(device, MemoryBudget::with_limit(kGiB)).value();
      auto runtime = DeviceRuntime::create(device, {.stack = stack}).value();
      auto manager = GpuMemoryManager::with_runtime(device, MemoryBudget::with_limit(512 * kMiB), runtime).value();
      const auto own = runtime.acquire_stream().value();
      const auto other = runtime.acquire_stream().value();
      for (std::uint64_t round = 1; round <= 20; ++round) {
        auto buffer = manager.alloc<std::byte>(round * kMiB, {.stream = own.id()}).value();
        EXPECT_TRUE(ok(cudaMemsetAsync(buffer.data(), 1, buffer.size_bytes(), cuda(own.id()))));
        if (!runtime.tracks_uses()) continue;
        auto launch = Launch::on(runtime, other.id());
        EXPECT_TRUE(ok(launch.writes(buffer).prepare()));
        EXPECT_TRUE(ok(cudaMemsetAsync(buffer.data(), 2, buffer.size_bytes(), cuda(other.id()))));
        EXPECT_TRUE(ok(launch.finish()));
      }
      EXPECT_FALSE(manager.alloc<std::byte>(600 * kMiB));
      EXPECT_FALSE(device.resource().allocate({.bytes = *memory().total + kGiB}));
      // Frees that are still pending when everything goes.
    }
  }
};

TEST_F(MemoryBack, all_of_it_is_free_again_when_resources_are_gone) {
  // The first rounds also fill what CUDA keeps for good: its own streams, code, the heap of the context.
  work();
  work();
  const auto before = memory();
  for (int round = 0; round < 3; ++round) work();
  const auto after = memory();
  EXPECT_EQ(after.total, before.total);
  EXPECT_GE(*after.free, *before.free) << *before.free - *after.free << " bytes did not come back";
}

// ── memory kept free ──

class KeptFree : public Gpu {
protected:
  static void leaves_a_gibibyte_to_others(std::shared_ptr<GlobalDeviceBudget> const& budget) {
    constexpr std::uint64_t kBlock = 2 * kGiB;
    std::vector<Block> held;
    std::optional<Error> end;
    const std::uint64_t most = *memory().total / kBlock + 1;
    while (!end && held.size() <= most) {
      auto block = budget->allocate({.bytes = kBlock});
      if (block) {
        held.push_back(*block);
      } else {
        end = block.error();
      }
    }
    ASSERT_TRUE(end) << "the device gave more than it has";
    EXPECT_EQ(end->kind, ErrorKind::over_budget) << end->to_string();
    EXPECT_EQ(end->layer, Layer::device_account) << end->to_string();
    void* others = nullptr;
    EXPECT_TRUE(ok(cudaMalloc(&others, kGiB))) << end->to_string();
    EXPECT_TRUE(ok(cudaFree(others)));
    std::cout << "kept 1 GiB beside " << held.size() << " blocks of 2 GiB; then: " << end->to_string() << '\n';
    for (auto const& block : held) EXPECT_TRUE(ok(budget->deallocate(block)));
    EXPECT_TRUE(ok(budget->reap_pending(ReapMode::synchronize)));
  }
};

TEST_F(KeptFree, beside_a_pool) {
  const auto pool = make_pool();
  leaves_a_gibibyte_to_others(
      GlobalDeviceBudget::create(pool.device, MemoryBudget::unlimited(), DeviceBudgetOptions{.keep_free_bytes = kGiB}).value());
}

TEST_F(KeptFree, beside_cuda_malloc) {
  const auto direct = make_direct();
  leaves_a_gibibyte_to_others(
      GlobalDeviceBudget::create(direct.device, MemoryBudget::unlimited(), DeviceBudgetOptions{.keep_free_bytes = kGiB}).value());
}

// Nothing that a block takes of the device may be more than its footprint, or it would be taken from what is kept free.
TEST_F(KeptFree, no_block_takes_more_than_its_footprint) {
  const auto pool = make_pool();
  const auto direct = make_direct();
  for (const std::uint64_t bytes : {std::uint64_t{1}, kMiB, 2 * kMiB + 1, 31 * kMiB, 33 * kMiB, 100 * kMiB + 3}) {
    for (auto const& device : {pool.device, direct.device}) {
      auto& resource = device.resource();
      ASSERT_TRUE(ok(resource.trim(0)));
      const std::uint64_t before = *memory().free;
      const auto block = resource.allocate({.bytes = bytes});
      ASSERT_TRUE(ok(block));
      const std::uint64_t after = *memory().free;
      const std::uint64_t taken = before > after ? before - after : 0;
      EXPECT_LE(taken, resource.footprint(bytes)) << bytes << " bytes of " << resource.name();
      std::cout << resource.name() << ": a block of " << bytes << " takes " << taken << '\n';
      ASSERT_TRUE(ok(resource.deallocate(*block)));
      ASSERT_TRUE(ok(resource.reap_pending(ReapMode::synchronize)));
    }
  }
}

}  // namespace
}  // namespace headroom::gpu
