// What flush() answers when a sink loses lines while it waits.
#include <atomic>
#include <memory>
#include <span>
#include <thread>

#include <gtest/gtest.h>

#include "base/test_point.hpp"
#include "followers.hpp"

namespace headroom::test {
namespace {

#ifdef HEADROOM_TEST_POINTS

std::atomic<bool> flush_was_asked{false};  // set by the test point, waited for by the sink

// The sink fails in a pass of the follower's own; the flush is asked for while it is at it.
TEST(LogFollowerFlush, tells_of_lines_that_a_sink_loses_while_it_waits) {
  flush_was_asked.store(false);
  const auto log = logged_null();
  std::atomic<bool> entered{false};
  std::atomic<int> calls{0};
  const auto sink = std::make_shared<CallbackSink>([&](std::span<LogLine const>) -> Result<void> {
    if (calls.fetch_add(1) != 0) return {};
    entered.store(true);
    entered.notify_all();
    flush_was_asked.wait(false);
    return fail(ErrorKind::io, Layer::request, "the disk is full");
  });
  auto follower = follow(log.get(), {sink}, std::chrono::milliseconds{1});
  const auto block = log->allocate({.bytes = 10}).value();
  entered.wait(false);
  test_point_handler.store(
      [](TestPoint point) noexcept {
        if (point != TestPoint::flush_asked) return;
        flush_was_asked.store(true);
        flush_was_asked.notify_all();
      },
      std::memory_order_release);
  const auto flushed = follower.flush();
  test_point_handler.store(nullptr, std::memory_order_release);
  EXPECT_EQ(follower.failures(*sink), 1U);
  ASSERT_FALSE(flushed) << "the line was lost";
  EXPECT_EQ(flushed.error().kind, ErrorKind::io);
  EXPECT_EQ(flushed.error().message, "the disk is full");
  EXPECT_TRUE(follower.flush()) << "nothing was lost since";
  ASSERT_TRUE(log->deallocate(block));
}

#endif

TEST(LogFollowerFlush, tells_nothing_of_what_was_lost_before) {
  const auto log = logged_null();
  std::atomic<int> calls{0};
  const auto sink = std::make_shared<CallbackSink>([&](std::span<LogLine const>) -> Result<void> {
    const bool first = calls.fetch_add(1) == 0;
    return first ? Result<void>{fail(ErrorKind::io, Layer::request, "the disk is full")} : Result<void>{};
  });
  auto follower = follow(log.get(), {sink});
  pair(*log, 10);
  EXPECT_FALSE(follower.flush());
  pair(*log, 20);
  EXPECT_TRUE(follower.flush());
  EXPECT_EQ(follower.failures(*sink), 1U);
  EXPECT_EQ(follower.last_failure(*sink), "the disk is full");
}

}  // namespace
}  // namespace headroom::test
