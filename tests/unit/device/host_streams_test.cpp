// Streams, the virtual clock and pending frees of the host device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/host_resource.hpp>

namespace headroom {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class HostStreamsTest : public ::testing::Test {
protected:
  std::shared_ptr<HostResource> host_ =
      HostResource::create({.total_bytes = 4 * kMiB, .touch_memory = false, .stream_ordered = true, .free_delay = 100ns}).value();

  Block allocate(std::uint64_t bytes, StreamId stream = {}) {
    return host_->allocate({.bytes = bytes, .stream = stream}).value();
  }
  void free(Block const& block) { ASSERT_TRUE(host_->deallocate(block)); }
  std::uint64_t reap(ReapMode mode) { return host_->reap_pending(mode).value(); }
};

TEST_F(HostStreamsTest, free_stays_pending_until_its_time_has_come_and_it_was_reaped) {
  auto const block = allocate(1000);
  free(block);
  EXPECT_EQ(host_->bytes_outstanding(), 1000);
  EXPECT_EQ(host_->usage().pending, 1000);
  EXPECT_EQ(host_->usage().live, 0);
  EXPECT_EQ(host_->memory_info().free, 4 * kMiB - 1024);
  EXPECT_EQ(reap(ReapMode::query), 0) << "a query right after the free finds nothing";
  host_->advance(99ns);
  EXPECT_EQ(reap(ReapMode::query), 0);
  host_->advance(1ns);
  EXPECT_EQ(host_->bytes_outstanding(), 1000) << "ready is not reaped";
  EXPECT_EQ(reap(ReapMode::query), 1000);
  EXPECT_EQ(host_->bytes_outstanding(), 0);
  EXPECT_EQ(host_->memory_info().free, 4 * kMiB);
  EXPECT_EQ(reap(ReapMode::query), 0);
}

TEST_F(HostStreamsTest, pending_block_cannot_be_freed_again_or_written) {
  auto const block = allocate(1000);
  free(block);
  EXPECT_EQ(host_->deallocate(block).error().kind, ErrorKind::double_free);
  EXPECT_EQ(host_->fill_zero(block, 0, 1, {}).error().kind, ErrorKind::use_after_free);
  EXPECT_EQ(reap(ReapMode::synchronize), 1000);
}

TEST_F(HostStreamsTest, synchronising_moves_the_clock_to_the_last_free) {
  free(allocate(10));
  free(allocate(20));
  EXPECT_EQ(reap(ReapMode::synchronize), 30);
  EXPECT_EQ(host_->now(), 200ns) << "one after the other on one stream";
}

TEST_F(HostStreamsTest, synchronising_for_the_next_waits_for_no_more_than_one) {
  auto const slow = host_->create_stream().value();
  auto const fast = host_->create_stream().value();
  ASSERT_TRUE(host_->enqueue_work(slow, 1ms));
  free(allocate(1, slow));
  free(allocate(20, fast));
  free(allocate(300, fast));
  EXPECT_EQ(reap(ReapMode::synchronize_next), 20) << "the one that finishes first, not the oldest";
  EXPECT_EQ(host_->now(), 100ns);
  EXPECT_EQ(reap(ReapMode::synchronize_next), 300);
  EXPECT_EQ(reap(ReapMode::synchronize_next), 1);
  EXPECT_EQ(host_->now(), 1ms + 100ns);
  EXPECT_EQ(reap(ReapMode::synchronize_next), 0) << "nothing pending, nothing waited for";
  EXPECT_EQ(host_->now(), 1ms + 100ns);
}

TEST_F(HostStreamsTest, free_waits_for_the_work_before_it_on_its_stream_only) {
  auto const busy = host_->create_stream().value();
  ASSERT_TRUE(host_->enqueue_work(busy, 5us));
  EXPECT_FALSE(host_->stream_idle(busy).value());
  EXPECT_TRUE(host_->stream_idle({}).value());
  free(allocate(7, busy));
  free(allocate(100));
  host_->advance(100ns);
  EXPECT_EQ(reap(ReapMode::query), 100);
  ASSERT_TRUE(host_->synchronize_stream(busy));
  EXPECT_EQ(host_->now(), 5us + 100ns);
  EXPECT_TRUE(host_->stream_idle(busy).value());
  EXPECT_EQ(reap(ReapMode::query), 7);
}

TEST_F(HostStreamsTest, tight_loop_at_exactly_the_limit_works_when_it_reaps) {
  for (int round = 0; round < 1000; ++round) {
    auto block = host_->allocate({.bytes = 4 * kMiB});
    if (!block) {
      EXPECT_THAT(block.error().message, ::testing::HasSubstr("4 MiB in 1 pending frees"));
      EXPECT_EQ(reap(ReapMode::query), 0);
      EXPECT_EQ(reap(ReapMode::synchronize_next), 4 * kMiB);
      block = host_->allocate({.bytes = 4 * kMiB});
    }
    ASSERT_TRUE(block);
    free(*block);
  }
}

TEST_F(HostStreamsTest, destroyed_stream_finishes_its_frees_and_is_unknown_afterwards) {
  auto const stream = host_->create_stream().value();
  auto block = allocate(500, stream);
  free(allocate(100, stream));
  ASSERT_TRUE(host_->destroy_stream(stream));
  EXPECT_EQ(host_->destroy_stream(stream).error().kind, ErrorKind::stream_misuse);
  EXPECT_EQ(host_->stream_idle(stream).error().kind, ErrorKind::stream_misuse);
  EXPECT_EQ(host_->synchronize_stream(stream).error().kind, ErrorKind::stream_misuse);
  EXPECT_EQ(host_->enqueue_work(stream, 1ns).error().kind, ErrorKind::stream_misuse);
  EXPECT_EQ(reap(ReapMode::synchronize), 100);

  auto const next = host_->create_stream().value();
  EXPECT_NE(next, stream) << "ids are not reused";
  EXPECT_EQ(host_->deallocate(block).error().kind, ErrorKind::stream_misuse);
  block.stream = next;
  free(block);
  EXPECT_EQ(reap(ReapMode::synchronize), 500);
}

TEST_F(HostStreamsTest, default_stream_cannot_be_destroyed) {
  EXPECT_EQ(host_->destroy_stream({}).error().kind, ErrorKind::stream_misuse);
  EXPECT_TRUE(host_->stream_idle({}));
}

TEST_F(HostStreamsTest, streams_are_many_but_not_endless) {
  std::vector<StreamId> streams;
  for (int at = 0; at < 65535; ++at) streams.push_back(host_->create_stream().value());
  EXPECT_EQ(host_->create_stream().error().kind, ErrorKind::stream_misuse);
  ASSERT_TRUE(host_->destroy_stream(streams[1000]));
  EXPECT_TRUE(host_->create_stream());
}

TEST_F(HostStreamsTest, clock_never_goes_back_and_never_wraps) {
  host_->advance(10ns);
  host_->advance(-5ns);
  EXPECT_EQ(host_->now(), 10ns);
  host_->advance(std::chrono::nanoseconds::max());
  host_->advance(std::chrono::nanoseconds::max());
  EXPECT_EQ(host_->now(), std::chrono::nanoseconds::max());
  free(allocate(1));
  EXPECT_EQ(reap(ReapMode::query), 1);
}

TEST(HostResource, frees_take_effect_at_once_without_stream_order) {
  auto const host = HostResource::create({.total_bytes = kMiB, .touch_memory = false}).value();
  ASSERT_TRUE(host->deallocate(host->allocate({.bytes = kMiB}).value()));
  EXPECT_EQ(host->bytes_outstanding(), 0);
  EXPECT_EQ(host->reap_pending(ReapMode::synchronize), 0);
}

}  // namespace
}  // namespace headroom
