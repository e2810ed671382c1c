// Sinks that are slow, fail, throw or call back, and what becomes of a follower's owner.
#include <atomic>
#include <future>
#include <optional>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "followers.hpp"
#include "managers.hpp"

namespace headroom::test {
namespace {

using ::testing::HasSubstr;
using Lines = std::span<LogLine const>;

std::shared_ptr<CallbackSink> calling(std::function<Result<void>(Lines)> callback) {
  return std::make_shared<CallbackSink>(std::move(callback));
}

TEST(LogSinks, one_that_throws_or_fails_is_counted_and_the_others_get_their_lines) {
  const auto log = logged_null();
  const auto throwing = calling([](Lines) -> Result<void> { throw std::runtime_error{"out of paper"}; });
  const auto odd = calling([](Lines) -> Result<void> { throw 7; });
  const auto failing = calling([](Lines) -> Result<void> { return fail(ErrorKind::io, Layer::request, "no ink"); });
  const auto good = memory();
  auto follower = follow(log.get(), {throwing, odd, failing, good});
  for (int i = 0; i < 3; ++i) {
    pair(*log, 8);
    const auto flushed = follower.flush();
    ASSERT_FALSE(flushed) << "three sinks did not get their lines";
    EXPECT_THAT(flushed.error().message, HasSubstr("out of paper"));
  }
  EXPECT_EQ(follower.failures(*throwing), 3U);
  EXPECT_EQ(follower.failures(*odd), 3U);
  EXPECT_EQ(follower.failures(*failing), 3U);
  EXPECT_EQ(follower.failures(*good), 0U);
  EXPECT_EQ(follower.failures(*memory()), 0U) << "not one of ours";
  EXPECT_THAT(follower.last_failure(*throwing), HasSubstr("out of paper"));
  EXPECT_THAT(follower.last_failure(*odd), HasSubstr("no std::exception"));
  EXPECT_THAT(follower.last_failure(*failing), HasSubstr("no ink"));
  EXPECT_EQ(follower.last_failure(*good), "");
  EXPECT_EQ(good->lines().size(), 6U);
  EXPECT_EQ(follower.lines(), 6U);
  ASSERT_TRUE(follower.flush()) << "nothing new, nothing failed";
}

TEST(LogSinks, a_stuck_sink_delays_nobody_but_its_follower) {
  const auto log = logged_null();
  std::promise<void> entered;
  std::promise<void> release;
  const auto stuck = calling([&, released = release.get_future().share(), first = true](Lines) mutable -> Result<void> {
    if (std::exchange(first, false)) entered.set_value();
    released.wait();
    return {};
  });
  const auto quick = memory();
  auto slow_one = LogFollower::start({.resource = log.get(),
                                      .sinks = {stuck},
                                      .poll_interval = std::chrono::nanoseconds{1},
                                      .patience = std::chrono::milliseconds{1}})
                      .value();
  auto quick_one = follow(log.get(), {quick});
  pair(*log, 1);
  entered.get_future().wait();
  for (int i = 0; i < 100; ++i) pair(*log, 2);  // would not end if a sink could hold it up
  ASSERT_TRUE(quick_one.flush());
  EXPECT_EQ(quick->lines().size(), 202U);
  const auto late = slow_one.flush();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::io);
  EXPECT_THAT(late.error().message, HasSubstr("1000000 ns"));
  EXPECT_TRUE(slow_one.is_running());
  release.set_value();
  while (!slow_one.flush()) {
  }
  EXPECT_EQ(slow_one.lines() + slow_one.lost(), log->operations());
}

TEST(LogSinks, stop_leaves_a_stuck_sink_behind_and_its_thread_ends_with_it) {
  const auto log = logged_null();
  std::promise<void> entered;
  std::promise<void> release;
  std::promise<void> gone;
  {
    struct Last {
      std::promise<void>* gone;
      ~Last() { gone->set_value(); }
    };
    auto last = std::make_shared<Last>(&gone);  // lives as long as the callback does
    auto follower =
        LogFollower::start({.resource = log.get(),
                            .sinks = {calling([&entered, last, released = release.get_future().share()](Lines) -> Result<void> {
                              entered.set_value();
                              released.wait();
                              return {};
                            })},
                            .poll_interval = std::chrono::nanoseconds{1},
                            .patience = std::chrono::milliseconds{1}})
            .value();
    last.reset();
    ASSERT_TRUE(log->allocate({.bytes = 1}));
    entered.get_future().wait();
  }
  release.set_value();
  gone.get_future().wait();
}

TEST(LogSinks, a_callback_may_allocate_and_ask_its_follower) {
  const auto log = LoggingResource::create(HostResource::create({.touch_memory = false}).value()).value();
  auto manager = GpuMemoryManager::create(Device::custom("logged", log).value(), MemoryBudget::unlimited()).value();
  LogFollower* asked = nullptr;
  std::uint64_t calls = 0;
  std::optional<Error> flush_answer;
  std::shared_ptr<CallbackSink> sink;
  sink = calling([&](Lines) -> Result<void> {
    ++calls;
    EXPECT_TRUE(manager.alloc<std::byte>(100));
    EXPECT_TRUE(asked->is_running());
    EXPECT_EQ(asked->lost(), 0U);
    EXPECT_EQ(asked->failures(*sink), 0U);
    EXPECT_EQ(asked->last_failure(*sink), "");
    flush_answer = asked->flush().error();
    return {};
  });
  auto follower = follow(log.get(), {sink});
  asked = &follower;
  ASSERT_TRUE(manager.alloc<std::byte>(1));
  ASSERT_TRUE(follower.flush());
  EXPECT_EQ(calls, 1U);
  EXPECT_EQ(follower.lines(), 2U);
  ASSERT_TRUE(follower.flush());
  EXPECT_EQ(calls, 2U) << "what the callback allocated is logged as well";
  EXPECT_EQ(follower.lines(), 4U);
  ASSERT_TRUE(flush_answer);
  EXPECT_EQ(flush_answer->kind, ErrorKind::invalid_argument) << "it would wait for itself";
  follower.stop();
  EXPECT_TRUE(manager.audit().clean());
}

TEST(LogSinks, a_callback_may_stop_its_follower) {
  const auto log = logged_null();
  LogFollower* stopped = nullptr;
  std::promise<void> done;
  auto follower = follow(log.get(), {calling([&](Lines) -> Result<void> {
                           stopped->stop();
                           done.set_value();
                           return {};
                         })});
  stopped = &follower;
  pair(*log, 1);
  static_cast<void>(follower.flush());
  done.get_future().wait();
  follower.stop();
  EXPECT_FALSE(follower.is_running());
  const auto late = follower.flush();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, ErrorKind::unsupported);
}

TEST(LogSinks, many_threads_may_flush_and_stop_at_once) {
  const auto log = logged_null();
  const auto sink = memory();
  auto follower = follow(log.get(), {sink});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        pair(*log, 1);
        ASSERT_TRUE(follower.flush());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(follower.lines(), 400U);
  threads.clear();
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { follower.stop(); });
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(follower.is_running());
}

TEST(LogSinks, a_follower_that_was_moved_goes_on_and_what_is_left_is_polite) {
  const auto log = logged_null();
  const auto sink = memory();
  auto first = follow(log.get(), {sink});
  auto second = std::move(first);
  pair(*log, 1);
  ASSERT_TRUE(second.flush());
  EXPECT_EQ(second.lines(), 2U);
  // NOLINTBEGIN(bugprone-use-after-move): what is documented of it
  EXPECT_FALSE(first.is_running());
  EXPECT_EQ(first.lines(), 0U);
  ASSERT_FALSE(first.flush());
  first.stop();
  // NOLINTEND(bugprone-use-after-move)
  const auto other = memory();
  second = follow(log.get(), {other});
  pair(*log, 2);
  ASSERT_TRUE(second.flush());
  EXPECT_EQ(other->lines().size(), 2U);
  EXPECT_EQ(sink->lines().size(), 2U) << "the follower that was here has ended";
}

TEST(LogSinks, options_that_make_no_sense_are_named) {
  const auto one = memory();
  struct Case {
    LogFollowerOptions options;
    std::string expected;
  };
  for (auto const& [options, expected] : std::vector<Case>{
           {{}, "needs sinks"},
           {{.sinks = {one, nullptr}}, "sink 1"},
           {{.sinks = {one, memory(), one}}, "sink 2"},
           {{.sinks = {one}, .poll_interval = std::chrono::nanoseconds{-1}}, "poll_interval is -1 ns"},
           {{.sinks = {one}, .patience = std::chrono::hours{2}}, "patience is 7200000000000 ns"},
       }) {
    const auto refused = LogFollower::start(options);
    ASSERT_FALSE(refused) << expected;
    EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
    EXPECT_THAT(refused.error().message, HasSubstr(expected));
  }
}

TEST(LogSinks, a_forked_child_has_no_follower_and_writes_nothing) {
  const auto log = logged_null();
  const auto sink = memory();
  auto follower = std::make_optional(follow(log.get(), {sink}));
  pair(*log, 1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool quiet = !follower->is_running() && !follower->flush() && follower->last_failure(*sink).empty();
    static_cast<void>(log->allocate({.bytes = 3}));
    follower->stop();
    follower.reset();
    const auto refused = LogFollower::start({.resource = log.get(), .sinks = {sink}});
    const bool polite = !refused && refused.error().kind == ErrorKind::unsupported;
    const bool none_made = !LoggingResource::create(std::make_shared<NullResource>());
    _exit(quiet && polite && none_made ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ASSERT_TRUE(follower->flush());
  EXPECT_EQ(sink->lines().size(), 2U);
  EXPECT_EQ(follower->lost(), 0U);
}

}  // namespace
}  // namespace headroom::test
