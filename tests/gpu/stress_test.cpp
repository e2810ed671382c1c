// Eight threads, each with eight streams: blocks are written, read and written again on other streams, handed to other threads and freed
// while all of that is still under way. What was read is compared with what was written. HEADROOM_STRESS_SECONDS says for how long.
#include <algorithm>
#include <array>
#include <atomic>
#include <iostream>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <headroom/device_account.hpp>
#include <headroom/launch.hpp>
#include <headroom/logging_resource.hpp>
#include <headroom/runtime.hpp>

#include "gpu_support.hpp"
#include "scale.hpp"

namespace headroom::gpu {
namespace {

constexpr std::size_t kThreads = 8;
constexpr std::size_t kStreams = 8;
constexpr std::uint64_t kSample = 16 * 1024;  // bytes of each block that are looked at
constexpr std::uint64_t kLargest = 4 * kMiB;
constexpr std::size_t kShelf = 32;  // blocks that lie between two threads

/// A block and the byte that it is full of.
struct Written {
  TrackedBuffer<std::byte> buffer;
  std::byte value{};
};

struct World {
  DeviceRuntime runtime;
  GpuMemoryManager manager;
  std::chrono::steady_clock::time_point end;
  std::mutex mutex{};
  std::vector<Written> shelf{};  // under the mutex
  // Sums over all threads: added to by each when it ends, read when all have; relaxed, the joins order them.
  std::atomic<std::uint64_t> blocks{0}, looked_at{0}, wrong{0}, refused{0}, passed_on{0};
};

/// A sample on its way to the host.
struct Sample {
  std::byte* bytes = nullptr;
  cudaEvent_t arrived = nullptr;
  std::optional<std::byte> expected{};  ///< absent: nothing is under way
};

class Worker {
public:
  Worker(World& world, std::array<StreamLease, kStreams> const& streams, unsigned seed)
      : world_(world), streams_(streams), random_(seed), memory_(kStreams * kSample) {
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      samples_[i].bytes = memory_.get() + i * kSample;
      EXPECT_TRUE(ok(cudaEventCreateWithFlags(&samples_[i].arrived, cudaEventDisableTiming)));
    }
  }
  ~Worker() {
    for (auto& sample : samples_) {
      judge(sample);
      cudaEventDestroy(sample.arrived);
    }
    world_.blocks += blocks_;
    world_.looked_at += looked_at_;
    world_.wrong += wrong_;
    world_.refused += refused_;
    world_.passed_on += passed_on_;
  }
  Worker(Worker const&) = delete;
  Worker& operator=(Worker const&) = delete;

  void run() {
    while (std::chrono::steady_clock::now() < world_.end && !::testing::Test::HasFailure()) {
      auto written = random_() % 4 == 0 ? take_from_shelf() : make();
      if (!written) continue;
      for (auto uses = random_() % 3; uses > 0; --uses) use_elsewhere(*written);
      if (random_() % 4 == 0) pass_on(*std::move(written));
      // Else it is freed here, whatever is still under way on other streams.
    }
  }

private:
  [[nodiscard]] StreamId any_stream() { return streams_[random_() % kStreams].id(); }

  [[nodiscard]] std::optional<Written> make() {
    const std::uint64_t bytes = kSample + random_() % (kLargest - kSample);
    auto block = world_.manager.alloc<std::byte>(bytes, {.stream = any_stream()});
    if (!block) {
      // The budget is far above what can be live at once, but another thread may be late with frees that are pending.
      EXPECT_EQ(block.error().kind, ErrorKind::over_budget) << block.error().to_string();
      ++refused_;
      return std::nullopt;
    }
    ++blocks_;
    Written written{.buffer = *std::move(block)};
    const auto home = written.buffer.stream();
    written.value = next_value();
    EXPECT_TRUE(ok(cudaMemsetAsync(written.buffer.data(), std::to_integer<int>(written.value), bytes, cuda(home))));
    return written;
  }

  void use_elsewhere(Written& written) {
    if (random_() % 3 == 0) {
      const auto stream = any_stream();
      auto launch = Launch::on(world_.runtime, stream);
      EXPECT_TRUE(ok(launch.writes(written.buffer).prepare()));
      written.value = next_value();
      EXPECT_TRUE(ok(cudaMemsetAsync(written.buffer.data(), std::to_integer<int>(written.value), written.buffer.size_bytes(),
                                     cuda(stream))));
      EXPECT_TRUE(ok(launch.finish()));
    }
    const auto stream = any_stream();
    auto& sample = samples_[next_sample_++ % samples_.size()];
    judge(sample);
    const std::uint64_t from = random_() % (written.buffer.size_bytes() - kSample + 1);
    auto launch = Launch::on(world_.runtime, stream);
    EXPECT_TRUE(ok(launch.reads(written.buffer).prepare()));
    EXPECT_TRUE(ok(cudaMemcpyAsync(sample.bytes, written.buffer.data() + from, kSample, cudaMemcpyDeviceToHost, cuda(stream))));
    EXPECT_TRUE(ok(launch.finish()));
    EXPECT_TRUE(ok(cudaEventRecord(sample.arrived, cuda(stream))));
    sample.expected = written.value;
  }

  void judge(Sample& sample) {
    if (!sample.expected) return;
    EXPECT_TRUE(ok(cudaEventSynchronize(sample.arrived)));
    ++looked_at_;
    wrong_ += wrong_bytes({sample.bytes, kSample}, *sample.expected) != 0 ? 1U : 0U;
    sample.expected.reset();
  }

  [[nodiscard]] std::optional<Written> take_from_shelf() {
    const std::lock_guard lock(world_.mutex);
    if (world_.shelf.empty()) return std::nullopt;
    std::swap(world_.shelf[random_() % world_.shelf.size()], world_.shelf.back());
    std::optional<Written> taken{std::move(world_.shelf.back())};
    world_.shelf.pop_back();
    return taken;
  }

  void pass_on(Written written) {
    const std::lock_guard lock(world_.mutex);
    if (world_.shelf.size() == kShelf) return;
    world_.shelf.push_back(std::move(written));
    ++passed_on_;
  }

  /// Never 0, and never the same twice in a row.
  [[nodiscard]] std::byte next_value() {
    value_ = static_cast<std::uint8_t>(value_ % 255 + 1);
    return std::byte{value_};
  }

  World& world_;
  std::array<StreamLease, kStreams> const& streams_;
  std::minstd_rand random_;
  Pinned memory_;
  std::array<Sample, kStreams> samples_{};
  std::size_t next_sample_ = 0;
  std::uint8_t value_ = static_cast<std::uint8_t>(random_() % 255);
  std::uint64_t blocks_ = 0, looked_at_ = 0, wrong_ = 0, refused_ = 0, passed_on_ = 0;
};

class Stress : public Gpu {};

TEST_F(Stress, eight_threads_on_eight_streams_each_see_only_their_own_bytes_and_leave_clean_books) {
  constexpr std::uint64_t kDeviceBudget = 512 * kMiB;
  const auto pool = make_pool();
  auto stack = GlobalDeviceBudget::create(pool.device, MemoryBudget::with_limit(kDeviceBudget),
                                          LoggingResource::create(pool.resource).value())
                   .value();
  auto runtime = DeviceRuntime::create(pool.device, {.stack = stack, .max_streams = kThreads * kStreams}).value();
  auto manager =
      GpuMemoryManager::with_runtime(pool.device, MemoryBudget::with_limit(kDeviceBudget), runtime, "gpu-stress").value();
  World world{.runtime = runtime,
              .manager = manager,
              .end = std::chrono::steady_clock::now() +
                     std::chrono::duration_cast<std::chrono::steady_clock::duration>(test::stress_time(3.0))};

  // Leases outlive all blocks: a block on the shelf is freed on the stream of the thread that made it.
  std::array<std::array<StreamLease, kStreams>, kThreads> leases;
  for (auto& of_thread : leases) {
    for (auto& lease : of_thread) lease = runtime.acquire_stream().value();
  }
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { Worker{world, leases[i], i + 1}.run(); });
  }
  for (auto& thread : threads) thread.join();
  world.shelf.clear();

  EXPECT_EQ(world.wrong, 0U) << "of " << world.looked_at << " samples";
  EXPECT_GT(world.looked_at, 0U);
  EXPECT_TRUE(ok(manager.reap_pending_deallocations()));
  const auto report = manager.audit();
  EXPECT_TRUE(report.clean()) << report.to_string();
  EXPECT_EQ(report.claimed, 0U);
  EXPECT_LE(report.peak, kDeviceBudget);
  const auto stats = manager.stats();
  EXPECT_EQ(stats.allocations, world.blocks);
  EXPECT_EQ(stats.frees, world.blocks);
  EXPECT_EQ(stats.refusals, world.refused);
  EXPECT_EQ(manager.deallocation_failure_count(), 0U);
  const auto account = stack->account().stats();
  EXPECT_EQ(account.claimed, 0U);
  EXPECT_EQ(account.allocated, 0U);
  EXPECT_EQ(account.pending_free, 0U);
  EXPECT_EQ(pool.resource->bytes_outstanding(), 0U);
  const auto usage = pool.resource->pool_usage();
  ASSERT_TRUE(ok(usage));
  EXPECT_EQ(usage->used, 0U);
  std::cout << world.blocks << " blocks, " << world.looked_at << " samples of " << kSample << " bytes looked at, " << world.wrong
            << " wrong, " << world.passed_on << " blocks passed to other threads, " << world.refused << " refused\n";
}

}  // namespace
}  // namespace headroom::gpu
