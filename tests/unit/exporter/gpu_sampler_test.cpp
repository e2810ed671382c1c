// Readings that come at once, late, or never. Nothing here depends on how long anything takes: sources wait for the test, and the test
// for them.
#include <headroom/gpu_sampler.hpp>

#include <atomic>
#include <semaphore>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

namespace headroom {
namespace {

using namespace std::chrono_literals;

constexpr auto kForEver = std::chrono::hours{1};

[[nodiscard]] std::vector<GpuDevice> gpus(std::uint32_t count) {
  std::vector<GpuDevice> list(count);
  for (std::uint32_t index = 0; index < count; ++index) list[index].index = index;
  return list;
}

/// Counts its readings; the nth tells of n GPUs.
struct Counting {
  std::atomic<std::uint32_t> readings{0};  // by the reading thread, read by the test after a sample; relaxed: a count
  [[nodiscard]] GpuSampler::Source source() {
    return [this] { return gpus(readings.fetch_add(1, std::memory_order_relaxed) + 1); };
  }
};

/// Hangs until the test opens the gate, at every reading.
class Hanging {
public:
  ~Hanging() { open(); }
  [[nodiscard]] GpuSampler::Source source() {
    return [gate = gate_, begun = begun_]() -> Result<std::vector<GpuDevice>> {
      begun->fetch_add(1, std::memory_order_relaxed);
      gate->acquire();
      return gpus(1);
    };
  }
  void open() { gate_->release(); }
  [[nodiscard]] int begun() const { return begun_->load(std::memory_order_relaxed); }

private:
  // Shared with a thread that may outlive the test.
  std::shared_ptr<std::counting_semaphore<>> gate_ = std::make_shared<std::counting_semaphore<>>(0);
  std::shared_ptr<std::atomic<int>> begun_ = std::make_shared<std::atomic<int>>(0);  // relaxed: a count
};

TEST(GpuSampler, reads_when_it_is_asked) {
  Counting counting;
  GpuSampler sampler{counting.source(), {.fresh = 0ms, .patience = kForEver, .max_age = kForEver}};
  EXPECT_EQ(counting.readings, 0U);
  EXPECT_EQ(sampler.sample()->devices.size(), 1U);
  EXPECT_EQ(sampler.sample()->devices.size(), 2U) << "anew, since nothing is fresh for 0 ms";
  EXPECT_FALSE(sampler.is_stuck());
}

TEST(GpuSampler, what_is_fresh_is_not_read_again) {
  Counting counting;
  GpuSampler sampler{counting.source(), {.fresh = kForEver, .patience = kForEver, .max_age = kForEver}};
  const auto first = sampler.sample();
  EXPECT_EQ(sampler.sample(), first);
  EXPECT_EQ(counting.readings, 1U);
}

TEST(GpuSampler, what_is_too_old_is_not_shown) {
  Counting counting;
  GpuSampler sampler{counting.source(), {.fresh = 0ms, .patience = kForEver, .max_age = -1ms}};
  EXPECT_EQ(sampler.sample(), nullptr);
  EXPECT_EQ(counting.readings, 1U);
}

TEST(GpuSampler, a_reading_that_hangs_is_left_alone_and_stays_the_only_one) {
  Hanging hanging;
  GpuSampler sampler{hanging.source(), {.fresh = 0ms, .patience = 1ms, .max_age = kForEver, .stuck_after = 0ms}};
  for (int look = 0; look < 20; ++look) EXPECT_EQ(sampler.sample(), nullptr);
  EXPECT_TRUE(sampler.is_stuck());
  EXPECT_LE(hanging.begun(), 1);
  hanging.open();
  while (sampler.is_stuck()) std::this_thread::yield();
  EXPECT_EQ(hanging.begun(), 1);
  EXPECT_NE(sampler.sample(), nullptr) << "late is better than never";
}

TEST(GpuSampler, the_last_reading_serves_while_the_next_one_hangs) {
  auto const gate = std::make_shared<std::counting_semaphore<>>(0);
  auto const first = std::make_shared<bool>(true);  // by one reading after another
  GpuSampler sampler{[gate, first]() -> Result<std::vector<GpuDevice>> {
                       if (!std::exchange(*first, false)) gate->acquire();
                       return gpus(3);
                     },
                     {.fresh = 0ms, .patience = kForEver, .max_age = kForEver, .stuck_after = 0ms}};
  const auto whole = sampler.sample();
  ASSERT_NE(whole, nullptr);
  std::thread asks{[&sampler] { EXPECT_EQ(sampler.sample()->devices.size(), 3U); }};
  while (!sampler.is_stuck()) std::this_thread::yield();
  gate->release();
  asks.join();
}

TEST(GpuSampler, an_error_is_a_reading_too) {
  GpuSampler sampler{[]() -> Result<std::vector<GpuDevice>> { return fail(ErrorKind::driver, Layer::driver, "not loaded"); },
                     {.fresh = 0ms, .patience = kForEver, .max_age = kForEver}};
  const auto sample = sampler.sample();
  ASSERT_TRUE(sample->error);
  EXPECT_EQ(sample->error->message, "not loaded");
  EXPECT_TRUE(sample->devices.empty());
}

TEST(GpuSampler, a_source_that_throws_is_an_error) {
  GpuSampler sampler{[]() -> Result<std::vector<GpuDevice>> { throw std::runtime_error("boom"); },
                     {.fresh = 0ms, .patience = kForEver, .max_age = kForEver}};
  EXPECT_EQ(sampler.sample()->error->message, "reading the GPUs: boom");
}

TEST(GpuSampler, a_missing_library_is_not_looked_for_at_every_scrape) {
  auto const looks = std::make_shared<std::atomic<int>>(0);
  GpuSampler sampler{[looks]() -> Result<std::vector<GpuDevice>> {
                       looks->fetch_add(1, std::memory_order_relaxed);
                       auto error = make_error(ErrorKind::driver, Layer::driver, "no library");
                       error.device_code = 12;
                       return tl::unexpected{std::move(error)};
                     },
                     {.fresh = 0ms, .patience = kForEver, .max_age = 0ms, .look_again = kForEver}};
  for (int look = 0; look < 100; ++look) EXPECT_TRUE(sampler.sample()->error);
  EXPECT_EQ(*looks, 1);
}

TEST(GpuSampler, many_threads_share_a_reading) {
  Counting counting;
  GpuSampler sampler{counting.source(), {.fresh = kForEver, .patience = kForEver, .max_age = kForEver}};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&sampler] { EXPECT_EQ(sampler.sample()->devices.size(), 1U); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counting.readings, 1U);
}

TEST(GpuSampler, ends_its_source_on_the_way_out) {
  auto const held = std::make_shared<int>(0);
  std::weak_ptr<int> const seen = held;
  {
    GpuSampler sampler{[held]() -> Result<std::vector<GpuDevice>> { return gpus(1); }, {.fresh = 0ms, .patience = kForEver}};
    EXPECT_NE(sampler.sample(), nullptr);
    EXPECT_EQ(seen.use_count(), 2);
  }
  while (seen.use_count() > 1) std::this_thread::yield();
}

TEST(GpuSampler, has_nothing_to_say_in_a_forked_child) {
  Counting counting;
  GpuSampler sampler{counting.source(), {.fresh = 0ms, .patience = kForEver, .max_age = kForEver}};
  EXPECT_NE(sampler.sample(), nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const bool is_still = sampler.sample() != nullptr && counting.readings == 1;  // the last reading, and no new one
    _exit(is_still ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(sampler.sample()->devices.size(), 2U) << "the parent goes on";
}

TEST(GpuSampler, a_fork_in_the_middle_of_a_reading_harms_neither) {
  Hanging hanging;
  GpuSampler sampler{hanging.source(), {.fresh = 0ms, .patience = 1ms, .max_age = kForEver, .stuck_after = 0ms}};
  EXPECT_EQ(sampler.sample(), nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(sampler.sample() == nullptr ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  hanging.open();
  while (sampler.is_stuck()) std::this_thread::yield();
  EXPECT_NE(sampler.sample(), nullptr);
}

}  // namespace
}  // namespace headroom
