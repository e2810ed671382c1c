// What a follower brings to its sinks: which lines, in which order, and what it says of those it lost.
#include <atomic>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>

#include "followers.hpp"
#include "scale.hpp"

namespace headroom::test {
namespace {

using Action = LogLine::Action;

std::vector<std::uint64_t> sizes_of(std::vector<LogLine> const& lines) {
  std::vector<std::uint64_t> sizes;
  for (auto const& line : lines) sizes.push_back(line.bytes);
  return sizes;
}

TEST(LogFollower, brings_lines_in_order_of_the_calls_with_everything_they_say) {
  const auto host = HostResource::create({.total_bytes = 1 << 20, .touch_memory = false}).value();
  const auto log = LoggingResource::create(host).value();
  const auto sink = memory();
  auto follower = follow(log.get(), {sink});
  const AllocTag tag{"followed"};
  const auto stream = log->create_stream().value();
  const auto block = log->allocate({.bytes = 1000, .alignment = 512, .stream = stream, .tag = tag.id()}).value();
  ASSERT_FALSE(log->allocate({.bytes = 1 << 21}));
  ASSERT_TRUE(log->deallocate(block));
  ASSERT_FALSE(log->deallocate(block));
  ASSERT_TRUE(follower.flush());

  auto lines = sink->lines();
  ASSERT_EQ(lines.size(), 4U);
  const auto thread = lines[0].thread;
  EXPECT_NE(thread, 0U);
  std::uint64_t time = 0;
  for (auto& line : lines) {
    EXPECT_GE(line.time_ns, time);
    time = std::exchange(line.time_ns, 0);
  }
  const LogLine allocated{.action = Action::allocate,
                          .log = log->number(),
                          .thread = thread,
                          .time_ns = 0,
                          .pointer = reinterpret_cast<std::uintptr_t>(block.pointer),
                          .bytes = 1000,
                          .alignment = 512,
                          .stream = stream.value,
                          .tag = "followed",
                          .error = {},
                          .error_from = {}};
  EXPECT_EQ(lines[0], allocated);
  const LogLine refused{.action = Action::allocate_failure,
                        .log = log->number(),
                        .thread = thread,
                        .time_ns = 0,
                        .pointer = 0,
                        .bytes = 1 << 21,
                        .alignment = 256,
                        .stream = 0,
                        .tag = "untagged",
                        .error = ErrorKind::device_out_of_memory,
                        .error_from = Layer::driver};
  EXPECT_EQ(lines[1], refused);
  auto freed = allocated;
  freed.action = Action::free;
  EXPECT_EQ(lines[2], freed);
  auto misused = allocated;
  misused.action = Action::free_failure;
  misused.error = ErrorKind::double_free;
  misused.error_from = Layer::resource;
  EXPECT_EQ(lines[3], misused);
  EXPECT_EQ(follower.lines(), 4U);
  EXPECT_EQ(follower.lost(), 0U);
  EXPECT_EQ(log->operations(), 4U);
}

TEST(LogFollower, times_are_those_of_the_wall_clock) {
  const auto log = logged_null();
  const auto sink = memory();
  auto follower = follow(log.get(), {sink});
  const auto now_ns = [] {
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
  };
  const auto before = now_ns();
  pair(*log, 1);
  const auto after = now_ns();
  ASSERT_TRUE(follower.flush());
  // Ticks are converted at a rate that is measured to about 100 ppm and corrected every second.
  constexpr std::uint64_t kSlackNs = 50'000'000;
  for (auto const& line : sink->lines()) {
    EXPECT_GE(line.time_ns + kSlackNs, before);
    EXPECT_LE(line.time_ns, after + kSlackNs);
  }
}

TEST(LogFollower, several_sinks_get_the_same_lines) {
  const auto log = logged_null();
  const auto first = memory();
  const auto second = memory();
  std::vector<LogLine> called;
  const auto third = std::make_shared<CallbackSink>([&](std::span<LogLine const> lines) -> Result<void> {
    called.insert(called.end(), lines.begin(), lines.end());
    return {};
  });
  auto follower = follow(log.get(), {first, second, third});
  for (std::uint64_t bytes = 1; bytes <= 100; ++bytes) {
    pair(*log, bytes);
    if (bytes % 40 == 0) {
      ASSERT_TRUE(follower.flush());
    }
  }
  follower.stop();
  EXPECT_EQ(first->lines().size(), 200U);
  EXPECT_EQ(first->lines(), second->lines());
  EXPECT_EQ(first->lines(), called);
  EXPECT_EQ(follower.lines(), 200U);
}

TEST(LogFollower, begins_with_its_start_and_ends_with_its_stop) {
  const auto log = logged_null();
  const auto sink = memory();
  pair(*log, 1);
  ASSERT_FALSE(log->allocate({.bytes = UINT64_MAX}));
  {
    auto follower = follow(log.get(), {sink});
    pair(*log, 2);
    follower.stop();
    EXPECT_FALSE(follower.is_running());
    pair(*log, 3);
    follower.stop();
    EXPECT_EQ(follower.lines() + follower.lost(), 2U);
  }
  EXPECT_THAT(sizes_of(sink->lines()), ::testing::ElementsAre(2U, 2U));
}

TEST(LogFollower, its_destructor_brings_the_last_lines) {
  const auto log = logged_null();
  const auto sink = memory();
  {
    auto follower = follow(log.get(), {sink});
    pair(*log, 9);
  }
  EXPECT_EQ(sink->lines().size(), 2U);
}

TEST(LogFollower, a_log_that_is_gone_keeps_its_lines) {
  auto log = logged_null();
  const auto sink = memory();
  auto of_one = follow(log.get(), {sink});
  const auto all = memory();
  auto of_all = follow(nullptr, {all});
  pair(*log, 4);
  log.reset();
  ASSERT_TRUE(of_one.flush());
  ASSERT_TRUE(of_all.flush());
  EXPECT_THAT(sizes_of(sink->lines()), ::testing::ElementsAre(4U, 4U));
  EXPECT_THAT(sizes_of(all->lines()), ::testing::ElementsAre(4U, 4U));
}

// One thread, no poll before the end: 2,048 slots hold the newest of 30,000 records, a third of which are the ledger's.
TEST(LogFollower, knows_exactly_what_it_lost_of_each_log_among_other_events) {
  const auto first = LoggingResource::create(HostResource::create({.touch_memory = false}).value()).value();
  const auto second = logged_null();
  auto manager = GpuMemoryManager::create(Device::custom("logged", first).value(), MemoryBudget::unlimited()).value();
  const auto of_first = memory();
  const auto of_second = memory();
  const auto of_all = memory();
  auto follow_first = follow(first.get(), {of_first});
  auto follow_second = follow(second.get(), {of_second});
  auto follow_all = follow(nullptr, {of_all});
  for (int i = 0; i < 5; ++i) ASSERT_FALSE(second->allocate({.bytes = UINT64_MAX}));
  for (int i = 0; i < 5'000; ++i) {
    ASSERT_TRUE(manager.alloc<std::byte>(64));
    pair(*second, 32);
  }
  // The newest records are the ledger's and the second's alone: losses behind a log's last line must be found too.
  for (int i = 0; i < 3'000; ++i) pair(*second, 16);
  for (auto* follower : {&follow_first, &follow_second, &follow_all}) ASSERT_TRUE(follower->flush());

  EXPECT_EQ(first->operations(), 10'000U);
  EXPECT_EQ(second->operations(), 16'005U);
  EXPECT_EQ(of_first->lines().size(), follow_first.lines());
  EXPECT_EQ(follow_first.lines(), 0U) << "6,000 later records lapped the ring";
  EXPECT_EQ(follow_first.lost(), 10'000U);
  EXPECT_EQ(follow_second.lines() + follow_second.lost(), 16'005U);
  EXPECT_GT(follow_second.lines(), 1'000U);
  EXPECT_LT(follow_second.lines(), 2'100U);
  EXPECT_EQ(follow_all.lines() + follow_all.lost(), 26'005U);
  EXPECT_EQ(std::ranges::count(of_second->lines(), Action::allocate_failure, &LogLine::action), 5)
      << "failures lie in the journal, which no flood of allocations laps";
}

TEST(LogFollower, lines_of_threads_stand_in_order_of_time) {
  const auto log = logged_null();
  const auto sink = memory();
  auto follower = follow(log.get(), {sink});
  // Two threads in turns: sizes count up across both.
  constexpr std::uint64_t kTurns = 500;
  std::atomic<std::uint64_t> turn{1};
  const auto player = [&](std::uint64_t parity) {
    for (std::uint64_t mine = parity; mine <= kTurns; mine += 2) {
      while (turn.load() != mine) std::this_thread::yield();
      ASSERT_TRUE(log->allocate({.bytes = mine}));
      turn.store(mine + 1);
    }
  };
  std::thread odd{player, 1};
  std::thread even{player, 2};
  odd.join();
  even.join();
  ASSERT_TRUE(follower.flush());
  std::vector<std::uint64_t> expected(kTurns);
  for (std::uint64_t i = 0; i < kTurns; ++i) expected[i] = i + 1;
  EXPECT_EQ(sizes_of(sink->lines()), expected);
}

TEST(LogFollower, four_threads_at_full_speed_lose_exactly_what_is_missing) {
  const std::uint64_t pairs = scaled(50'000);
  constexpr std::uint64_t kThreads = 4;
  const auto log = logged_null();
  // Sizes say who wrote a line and which one it was: what is missing can be counted from the lines alone.
  std::vector<std::uint64_t> next(kThreads + 1, 0);
  std::uint64_t missing = 0;
  bool in_order = true;
  const auto sink = std::make_shared<CallbackSink>([&](std::span<LogLine const> lines) -> Result<void> {
    for (auto const& line : lines) {
      const auto thread = line.bytes >> 32;
      const auto number = line.bytes & 0xFFFF'FFFFU;
      in_order = in_order && thread >= 1 && thread <= kThreads && number >= next.at(thread);
      missing += number - next.at(thread);
      next.at(thread) = number + 1;
    }
    return {};
  });
  auto follower = follow(log.get(), {sink}, std::chrono::nanoseconds{1});
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 1; thread <= kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < 2 * pairs; i += 2) {
        auto block = log->allocate({.bytes = thread << 32 | i}).value();
        block.bytes = thread << 32 | (i + 1);  // a null resource does not mind
        ASSERT_TRUE(log->deallocate(block));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(follower.flush());
  for (std::uint64_t thread = 1; thread <= kThreads; ++thread) missing += 2 * pairs - next[thread];
  EXPECT_TRUE(in_order);
  EXPECT_EQ(log->operations(), kThreads * 2 * pairs);
  EXPECT_EQ(follower.lines() + follower.lost(), log->operations());
  EXPECT_EQ(follower.lost(), missing);
}

TEST(LogFollower, threads_without_a_lane_of_their_own_are_followed_too) {
  constexpr std::uint64_t kThreads = 60;
  const auto log = logged_null();
  const auto sink = memory();
  auto follower = follow(log.get(), {sink});
  std::atomic<std::uint64_t> ready{0};
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      ASSERT_TRUE(log->allocate({.bytes = 1}));
      ready.fetch_add(1);
      while (ready.load() != kThreads) std::this_thread::yield();
      for (int round = 0; round < 20; ++round) ASSERT_TRUE(log->allocate({.bytes = 2}));
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(follower.flush());
  EXPECT_EQ(follower.lines() + follower.lost(), kThreads * 21);
  EXPECT_EQ(follower.lines(), sink->lines().size());
}

TEST(LogFollowerDeathTest, with_events_off_everything_is_lost_and_said_to_be) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a process of its own, whose recorder has not started
  EXPECT_EXIT(
      {
        setenv("HEADROOM_FLIGHT", "off", 1);
        const auto log = logged_null();
        auto follower = follow(log.get(), {memory()});
        for (int i = 0; i < 10; ++i) pair(*log, 1);
        const bool flushed = follower.flush().has_value();
        std::_Exit(flushed && follower.lines() == 0 && follower.lost() == 20 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headroom::test
