// Memory that is used on other streams than its own: in order when declared, and what happens when it is not.
#include <optional>
#include <vector>

#include <headroom/launch.hpp>
#include <headroom/runtime.hpp>

#include "gpu_support.hpp"
#include "kernels.hpp"

namespace headroom::gpu {
namespace {

constexpr std::uint64_t kBytes = 32 * kMiB;
constexpr int kBlocksAfter = 8;  // that come after the freed one while the copy is held back
constexpr int kOld = 0x11;
constexpr int kNew = 0x22;

class CrossStream : public Gpu {
protected:
  void SetUp() override {
    Gpu::SetUp();
    if (IsSkipped()) return;
    pool_.emplace(make_pool({.release_threshold_bytes = UINT64_MAX}));
    runtime_.emplace(DeviceRuntime::create(pool_->device).value());
    manager_.emplace(GpuMemoryManager::with_runtime(pool_->device, MemoryBudget::unlimited(), *runtime_).value());
  }
  void TearDown() override {
    if (manager_) {
      EXPECT_TRUE(ok(manager_->reap_pending_deallocations()));
      const auto report = manager_->audit();
      EXPECT_TRUE(report.clean()) << report.to_string();
      EXPECT_EQ(report.claimed, 0U);
      EXPECT_EQ(pool_->resource->bytes_outstanding(), 0U);
    }
    Gpu::TearDown();
  }
  [[nodiscard]] TrackedBuffer<std::byte> allocate(StreamLease const& stream, std::uint64_t bytes = kBytes) {
    return manager_->alloc<std::byte>(bytes, {.tag = {}, .stream = stream.id(), .alignment = kMinimumAlignment}).value();
  }

  struct Race {
    std::uint64_t wrong = 0;  ///< bytes of the copy that are not the old ones
    bool reused = false;      ///< the block's address was handed out again while the copy was still held back
  };
  /// A block with old bytes is copied on another stream, which is held back; it is freed, and whatever comes next on its own stream
  /// writes new bytes. Then the copy may run.
  [[nodiscard]] Race copy_late(bool declared);

  std::optional<Pool> pool_;
  std::optional<DeviceRuntime> runtime_;
  std::optional<GpuMemoryManager> manager_;
};

CrossStream::Race CrossStream::copy_late(bool declared) {
  Race race;
  const Scratch copy{kBytes};
  const Pinned seen{kBytes};
  const auto own = runtime_->acquire_stream().value();
  const auto other = runtime_->acquire_stream().value();
  // The pool takes from the device now what it will need: nothing but the race is to happen behind the closed gate.
  std::vector<TrackedBuffer<std::byte>> later;
  for (int i = 0; i <= kBlocksAfter; ++i) later.push_back(allocate(own));
  later.clear();
  EXPECT_TRUE(ok(cudaStreamSynchronize(cuda(own.id()))));

  auto buffer = allocate(own);
  auto const* const address = buffer.data();
  EXPECT_TRUE(ok(cudaMemsetAsync(buffer.data(), kOld, kBytes, cuda(own.id()))));
  EXPECT_TRUE(ok(cudaStreamSynchronize(cuda(own.id()))));
  {
    Gate gate{cuda(other.id())};
    auto launch = Launch::on(*runtime_, other.id());
    if (declared) {
      EXPECT_TRUE(ok(launch.reads(buffer).prepare()));
    }
    EXPECT_TRUE(ok(cudaMemcpyAsync(copy.get(), buffer.data(), kBytes, cudaMemcpyDeviceToDevice, cuda(other.id()))));
    if (declared) {
      EXPECT_TRUE(ok(launch.finish()));
    }
    EXPECT_TRUE(ok(buffer.release()));
    // As many as the pool has room for: one of them gets the address, unless it is kept for the copy.
    for (int i = 0; i <= kBlocksAfter && !race.reused; ++i) {
      later.push_back(allocate(own));
      race.reused = later.back().data() == address;
      EXPECT_TRUE(ok(cudaMemsetAsync(later.back().data(), kNew, kBytes, cuda(own.id()))));
    }
    // Undeclared, nothing keeps the new bytes from being written before the copy. Declared, they may have to wait for the copy.
    if (!declared) {
      EXPECT_TRUE(ok(cudaStreamSynchronize(cuda(own.id()))));
    }
    gate.open();
    EXPECT_TRUE(ok(cudaStreamSynchronize(cuda(other.id()))));
    EXPECT_TRUE(ok(cudaStreamSynchronize(cuda(own.id()))));
  }
  EXPECT_TRUE(ok(cudaMemcpy(seen.get(), copy.get(), kBytes, cudaMemcpyDeviceToHost)));
  race.wrong = wrong_bytes(seen.bytes(), std::byte{kOld});
  return race;
}

TEST_F(CrossStream, a_declared_use_sees_its_bytes_although_the_block_was_freed_while_it_was_held_back) {
  for (int round = 0; round < 3; ++round) EXPECT_EQ(copy_late(true).wrong, 0U);
}

TEST_F(CrossStream, the_same_undeclared_reads_the_bytes_of_the_next_block) {
  const auto race = copy_late(false);
  ASSERT_TRUE(race.reused) << "the pool gave the address to nobody else, so nothing could go wrong";
  EXPECT_EQ(race.wrong, kBytes) << "this twin is wrong on purpose: if it is right, the test above shows nothing";
}

// own (held back): old bytes; second: new bytes over them; third: looks.
TEST_F(CrossStream, writes_and_reads_on_three_streams_happen_in_the_order_of_their_declarations) {
  const Pinned seen{kBytes};
  const auto own = runtime_->acquire_stream().value();
  const auto second = runtime_->acquire_stream().value();
  const auto third = runtime_->acquire_stream().value();
  for (int round = 0; round < 3; ++round) {
    auto buffer = allocate(own);
    Gate gate{cuda(own.id())};
    EXPECT_TRUE(ok(cudaMemsetAsync(buffer.data(), kOld, kBytes, cuda(own.id()))));
    auto writing = Launch::on(*runtime_, second.id());
    ASSERT_TRUE(ok(writing.writes(buffer).prepare()));
    EXPECT_TRUE(ok(cudaMemsetAsync(buffer.data(), kNew, kBytes, cuda(second.id()))));
    ASSERT_TRUE(ok(writing.finish()));
    auto reading = Launch::on(*runtime_, third.id());
    ASSERT_TRUE(ok(reading.reads(buffer).prepare()));
    EXPECT_TRUE(ok(cudaMemcpyAsync(seen.get(), buffer.data(), kBytes, cudaMemcpyDeviceToHost, cuda(third.id()))));
    ASSERT_TRUE(ok(reading.finish()));
    EXPECT_EQ(cudaStreamQuery(cuda(third.id())), cudaErrorNotReady) << "it comes after the stream that is held back";
    static_cast<void>(cudaGetLastError());
    gate.open();
    EXPECT_TRUE(ok(cudaStreamSynchronize(cuda(third.id()))));
    EXPECT_EQ(wrong_bytes(seen.bytes(), std::byte{kNew}), 0U);
  }
}

// Kernels instead of copies, many rounds, the free right behind the last use: what one round leaves undone the next one finds.
TEST_F(CrossStream, kernels_on_other_streams_find_every_word_as_it_was_written) {
  const auto kernels = Kernels::load();
  ASSERT_TRUE(ok(kernels)) << "the driver compiles tests/gpu/kernels.ptx";
  const Scratch counter{sizeof(std::uint64_t)};
  ASSERT_TRUE(ok(cudaMemset(counter.get(), 0, sizeof(std::uint64_t))));
  const auto first = runtime_->acquire_stream().value();
  const auto second = runtime_->acquire_stream().value();
  constexpr std::uint64_t kCount = 4 * kMiB / sizeof(std::uint64_t);
  for (std::uint64_t round = 0; round < 200; ++round) {
    auto const& home = round % 2 == 0 ? first : second;
    auto const& away = round % 2 == 0 ? second : first;
    auto buffer = allocate(home, kCount * sizeof(std::uint64_t));
    ASSERT_TRUE(ok(kernels->fill(buffer.data(), kCount, round, cuda(home.id()))));
    auto launch = Launch::on(*runtime_, away.id());
    ASSERT_TRUE(ok(launch.reads(buffer).prepare()));
    ASSERT_TRUE(ok(kernels->count_wrong(buffer.data(), kCount, round, counter.get(), cuda(away.id()))));
    ASSERT_TRUE(ok(launch.finish()));
    ASSERT_TRUE(ok(buffer.release()));
  }
  ASSERT_TRUE(ok(cudaDeviceSynchronize()));
  std::uint64_t wrong = 1;
  ASSERT_TRUE(ok(cudaMemcpy(&wrong, counter.get(), sizeof wrong, cudaMemcpyDeviceToHost)));
  EXPECT_EQ(wrong, 0U) << "words of 200 blocks of " << kCount;
  // The count itself can fail: looked for with another value, every word is wrong.
  auto buffer = allocate(first, kCount * sizeof(std::uint64_t));
  ASSERT_TRUE(ok(kernels->fill(buffer.data(), kCount, 1, cuda(first.id()))));
  ASSERT_TRUE(ok(kernels->count_wrong(buffer.data(), kCount, 2, counter.get(), cuda(first.id()))));
  ASSERT_TRUE(ok(cudaStreamSynchronize(cuda(first.id()))));
  ASSERT_TRUE(ok(cudaMemcpy(&wrong, counter.get(), sizeof wrong, cudaMemcpyDeviceToHost)));
  EXPECT_EQ(wrong, kCount);
}

}  // namespace
}  // namespace headroom::gpu
