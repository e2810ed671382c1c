// A log written here is a history: our own reader takes it back, and a replay ends where the program ended.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/log_follower.hpp>

#include "followers.hpp"
#include "replays.hpp"

namespace headroom::test {
namespace {

using Action = TraceEvent::Action;

struct Step {
  Action action;
  std::uint64_t bytes;
  friend bool operator==(Step const&, Step const&) = default;
};

struct Program {
  TempFolder folder;
  std::shared_ptr<HostResource> host;
  std::shared_ptr<LoggingResource> log;
  std::shared_ptr<CsvSink> csv;
  std::string path;

  explicit Program(std::uint64_t device_bytes) : path{folder.path("log.csv")} {
    host = HostResource::create({.total_bytes = device_bytes, .touch_memory = false}).value();
    log = LoggingResource::create(host).value();
    csv = CsvSink::create(path).value();
  }
};

TEST(LogRoundTrip, a_replay_repeats_every_size_and_ends_in_the_same_state) {
  Program program{10'000'000};
  auto follower = follow(program.log.get(), {program.csv});
  auto manager = GpuMemoryManager::create(Device::custom("logged", program.log).value(), MemoryBudget::unlimited()).value();
  std::mt19937_64 random{42};
  std::vector<TrackedBuffer<std::byte>> held;
  std::vector<Step> steps;
  std::uint64_t failures = 0;
  for (int i = 0; i < 3'000; ++i) {
    if (held.empty() || random() % 5 < 3) {
      const std::uint64_t bytes = 1 + random() % 50'000;
      auto buffer = manager.alloc<std::byte>(bytes);
      steps.push_back({buffer ? Action::allocate : Action::allocate_failure, bytes});
      if (buffer) {
        held.push_back(std::move(*buffer));
      } else {
        ++failures;
      }
    } else {
      std::swap(held[random() % held.size()], held.back());
      steps.push_back({Action::free, held.back().size()});
      held.pop_back();
    }
    // A refusal is three records of the journal, the ledger's two among them, and that keeps 120 for its reader.
    if (i % 30 == 0) {
      ASSERT_TRUE(follower.flush());
    }
  }
  const std::uint64_t live = manager.allocated_bytes();
  const std::uint64_t peak = manager.peak_bytes();
  follower.stop();
  ASSERT_EQ(follower.lost(), 0U);
  ASSERT_GT(failures, 0U) << "the device was meant to fill up";

  const auto all = read_all(program.path);
  ASSERT_EQ(all.error, "");
  std::vector<Step> read;
  for (auto const& event : all.events) read.push_back({event.action, event.bytes});
  EXPECT_EQ(read, steps);
  EXPECT_TRUE(std::ranges::is_sorted(all.events, {}, &TraceEvent::time_us));
  for (auto const& event : all.events) EXPECT_EQ(event.pointer == 0, event.action == Action::allocate_failure);

  const auto summary = summarize_trace(program.path).value();
  EXPECT_EQ(summary.trace_failures, failures);
  EXPECT_EQ(summary.unmatched_frees, 0U);
  EXPECT_EQ(summary.duplicate_allocations, 0U);
  EXPECT_EQ(summary.size_mismatches, 0U);
  EXPECT_EQ(summary.live_bytes, live);
  EXPECT_EQ(summary.live_allocations, held.size());
  EXPECT_EQ(summary.peak_bytes, peak);

  const auto result = replayed(TraceHistory::load(program.path).value(), manager_with(MemoryBudget::unlimited()));
  EXPECT_EQ(result.figures().live_bytes, live);
  EXPECT_EQ(result.figures().live_allocations, held.size());
  EXPECT_EQ(result.figures().peak_bytes, peak);
  EXPECT_EQ(result.figures().refused, 0U);
  EXPECT_EQ(result.figures().unmatched_frees, 0U);
}

TEST(LogRoundTrip, threads_that_reuse_each_others_addresses_make_a_history_without_a_contradiction) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kPairs = 400;  // 800 lines a lane: none is overwritten before the flush
  Program program{std::uint64_t{1} << 20};
  auto follower = follow(program.log.get(), {program.csv});
  std::atomic<std::uint64_t> ready{0};
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      // All hold their lanes before any goes on: no lane serves two of them.
      const auto kept = program.log->allocate({.bytes = 100});
      ASSERT_TRUE(kept);
      ready.fetch_add(1);
      while (ready.load() != kThreads) std::this_thread::yield();
      for (std::uint64_t k = 0; k < kPairs; ++k) {
        // At the lowest hole that fits: the addresses of all threads' last frees.
        const auto block = program.log->allocate({.bytes = 256});
        ASSERT_TRUE(block);
        std::this_thread::yield();
        ASSERT_TRUE(program.log->deallocate(*block));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  follower.stop();
  EXPECT_EQ(follower.lost(), 0U);
  const auto summary = summarize_trace(program.path).value();
  EXPECT_EQ(summary.allocations, kThreads * (kPairs + 1));
  EXPECT_EQ(summary.frees, kThreads * kPairs);
  EXPECT_EQ(summary.unmatched_frees, 0U);
  EXPECT_EQ(summary.duplicate_allocations, 0U) << "an address was given out again before the line of its free";
  EXPECT_EQ(summary.size_mismatches, 0U);
  EXPECT_EQ(summary.live_bytes, kThreads * 100);
  EXPECT_EQ(summary.threads, kThreads);
}

TEST(LogRoundTrip, a_log_cut_in_half_is_refused_with_its_line) {
  Program program{std::uint64_t{1} << 30};
  {
    auto follower = follow(program.log.get(), {program.csv});
    for (std::uint64_t i = 1; i <= 100; ++i) pair(*program.log, i * 1'000);
  }
  std::ostringstream text;
  text << std::ifstream{program.path, std::ios::binary}.rdbuf();
  const std::string whole = text.str();
  std::string half = whole.substr(0, whole.size() / 2);
  // Where a line may end by chance, in its last column, there is nothing to notice.
  half.resize(half.rfind(',', half.rfind(',')) + 2);
  const auto lines = static_cast<std::uint64_t>(std::ranges::count(half, '\n'));
  ASSERT_GT(lines, 50U);
  const auto path = program.folder.write(half, "half.csv");
  const auto cut = read_all(path);
  EXPECT_EQ(cut.kind, ErrorKind::parse);
  EXPECT_THAT(cut.error, ::testing::HasSubstr(path + ":" + std::to_string(lines + 1) + ":"));
  EXPECT_THAT(cut.error, ::testing::HasSubstr("cut off"));
  EXPECT_EQ(cut.events.size(), lines - 1) << "all but the header and the broken line";
}

}  // namespace
}  // namespace headroom::test
