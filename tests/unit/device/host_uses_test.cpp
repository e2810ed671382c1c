// Uses on other streams of the host device, in virtual time: 10 µs of work on a stream end 10 µs after it was idle.
#include <atomic>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/host_resource.hpp>

namespace headroom {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class HostUsesTest : public ::testing::Test {
protected:
  explicit HostUsesTest(bool stream_ordered = true)
      : host_(HostResource::create(
                  {.total_bytes = 64 * kMiB, .touch_memory = false, .stream_ordered = stream_ordered, .free_delay = 100ns})
                  .value()) {}

  Block allocate(StreamId stream) { return host_->allocate({.bytes = 1000, .stream = stream}).value(); }
  void launch(Block const& block, StreamId stream, UseKind kind, std::chrono::nanoseconds duration) {
    ASSERT_TRUE(host_->prepare_use(block, stream, kind));
    ASSERT_TRUE(host_->enqueue_work(stream, duration));
    ASSERT_TRUE(host_->finish_use(block, stream, kind));
  }
  // Virtual time at which all work of the stream has ended. Moves the clock there.
  std::chrono::nanoseconds end_of(StreamId stream) {
    EXPECT_TRUE(host_->synchronize_stream(stream));
    return host_->now();
  }
  void free_on(Block block, StreamId stream) {
    block.stream = stream;
    ASSERT_TRUE(host_->deallocate(block));
  }
  // When the only pending free is ready.
  std::chrono::nanoseconds freed_at() {
    EXPECT_EQ(host_->reap_pending(ReapMode::synchronize), 1000U);
    return host_->now();
  }
  ErrorKind refusal(Result<void> const& result) {
    EXPECT_FALSE(result);
    return result ? ErrorKind::parse : result.error().kind;
  }

  std::shared_ptr<HostResource> const host_;
  StreamId const a_ = host_->create_stream().value();
  StreamId const b_ = host_->create_stream().value();
  StreamId const c_ = host_->create_stream().value();
};

TEST_F(HostUsesTest, tracks_uses) { EXPECT_TRUE(host_->tracks_uses()); }

TEST_F(HostUsesTest, read_on_another_stream_starts_after_the_write) {
  auto const block = allocate(a_);
  launch(block, a_, UseKind::write, 10us);
  launch(block, b_, UseKind::read, 3us);
  EXPECT_FALSE(host_->stream_idle(b_).value());
  EXPECT_EQ(end_of(c_), 0us) << "a stream that does not use the block waits for nothing";
  EXPECT_EQ(end_of(b_), 13us);
}

TEST_F(HostUsesTest, reads_run_beside_each_other_and_a_write_after_both) {
  auto const block = allocate(a_);
  launch(block, a_, UseKind::write, 10us);
  launch(block, b_, UseKind::read, 3us);   // 10 to 13
  launch(block, c_, UseKind::read, 20us);  // 10 to 30
  launch(block, a_, UseKind::write, 1us);  // 30 to 31
  EXPECT_EQ(end_of(b_), 13us);
  EXPECT_EQ(end_of(c_), 30us);
  EXPECT_EQ(end_of(a_), 31us);
}

TEST_F(HostUsesTest, read_waits_for_the_write_and_not_for_what_its_stream_does_later) {
  auto const block = allocate(a_);
  launch(block, b_, UseKind::read, 0us);  // from now on uses on a_ are recorded at their end
  launch(block, a_, UseKind::write, 10us);
  ASSERT_TRUE(host_->enqueue_work(a_, 1ms));
  launch(block, b_, UseKind::read, 3us);
  EXPECT_EQ(end_of(b_), 13us);
  EXPECT_EQ(end_of(a_), 1010us);
}

TEST_F(HostUsesTest, free_is_ready_after_all_reads) {
  auto const block = allocate(a_);
  launch(block, a_, UseKind::read, 10us);  // 0 to 10, on the allocation's stream: stands before the event recorded next
  launch(block, b_, UseKind::read, 25us);  // 10 to 35
  launch(block, b_, UseKind::read, 5us);   // 35 to 40
  free_on(block, c_);
  EXPECT_EQ(host_->usage().tracked_blocks, 0U);
  EXPECT_EQ(freed_at(), 40us + 100ns);
}

TEST_F(HostUsesTest, free_on_its_own_stream_waits_for_reads_elsewhere) {
  auto const block = allocate(a_);
  launch(block, b_, UseKind::read, 25us);
  EXPECT_EQ(host_->usage().tracked_blocks, 1U);
  ASSERT_TRUE(host_->deallocate(block));
  host_->advance(25us);
  EXPECT_EQ(host_->reap_pending(ReapMode::query), 0U);
  host_->advance(100ns);
  EXPECT_EQ(host_->reap_pending(ReapMode::query), 1000U);
}

TEST_F(HostUsesTest, free_on_another_stream_waits_for_the_work_of_the_blocks_own) {
  auto const block = allocate(a_);
  ASSERT_TRUE(host_->enqueue_work(a_, 7us));
  free_on(block, b_);
  EXPECT_EQ(freed_at(), 7us + 100ns);
}

TEST_F(HostUsesTest, free_does_not_wait_for_a_use_that_nobody_declared) {
  auto const block = allocate(a_);
  ASSERT_TRUE(host_->enqueue_work(b_, 1ms));
  ASSERT_TRUE(host_->deallocate(block));
  EXPECT_EQ(freed_at(), 100ns);
}

TEST_F(HostUsesTest, recorded_use_is_waited_for_like_a_prepared_one) {
  auto const block = allocate(a_);
  ASSERT_TRUE(host_->enqueue_work(b_, 12us));
  ASSERT_TRUE(host_->record_use(block, b_, UseKind::write));
  launch(block, c_, UseKind::read, 1us);
  EXPECT_EQ(end_of(c_), 13us);
}

TEST_F(HostUsesTest, own_stream_uses_leave_no_trace) {
  auto const block = allocate(a_);
  for (int round = 0; round < 100; ++round) launch(block, a_, UseKind::write, 1us);
  EXPECT_EQ(host_->usage().tracked_blocks, 0U);
  EXPECT_EQ(end_of(a_), 100us);
}

TEST_F(HostUsesTest, work_of_a_destroyed_stream_still_comes_first) {
  auto const block = allocate(a_);
  auto const other = allocate(a_);
  launch(block, a_, UseKind::write, 10us);
  ASSERT_TRUE(host_->destroy_stream(a_));
  launch(block, b_, UseKind::read, 3us);
  EXPECT_EQ(end_of(b_), 13us);
  free_on(block, b_);
  EXPECT_EQ(freed_at(), 13us + 100ns);
  free_on(other, c_);
  EXPECT_EQ(freed_at(), 13us + 200ns) << "nothing left to wait for";
}

TEST_F(HostUsesTest, stale_unknown_and_wrongly_sized_blocks_are_refused_and_change_nothing) {
  auto const block = allocate(a_);
  auto const all_refuse = [this](Block const& wrong, ErrorKind kind) {
    EXPECT_EQ(refusal(host_->prepare_use(wrong, b_, UseKind::read)), kind);
    EXPECT_EQ(refusal(host_->finish_use(wrong, b_, UseKind::read)), kind);
    EXPECT_EQ(refusal(host_->record_use(wrong, b_, UseKind::read)), kind);
  };
  auto changed = block;
  changed.bytes = 999;
  all_refuse(changed, ErrorKind::wrong_size);
  changed = block;
  changed.pointer = static_cast<std::byte*>(changed.pointer) + 8;
  all_refuse(changed, ErrorKind::unknown_pointer);
  changed = block;
  ++changed.generation;
  all_refuse(changed, ErrorKind::use_after_free);
  ASSERT_TRUE(host_->deallocate(block));
  all_refuse(block, ErrorKind::use_after_free);
  ASSERT_TRUE(host_->reap_pending(ReapMode::synchronize));
  auto const next = allocate(a_);
  ASSERT_EQ(next.pointer, block.pointer) << "the address lives again";
  all_refuse(block, ErrorKind::use_after_free);
  EXPECT_EQ(host_->usage().tracked_blocks, 0U);
  launch(next, b_, UseKind::read, 1us);
}

TEST_F(HostUsesTest, unknown_foreign_and_destroyed_streams_are_refused_and_change_nothing) {
  auto const other = HostResource::create({.total_bytes = kMiB}).value();
  StreamId foreign{};
  for (int at = 0; at < 9; ++at) foreign = other->create_stream().value();
  auto const destroyed = host_->create_stream().value();
  ASSERT_TRUE(host_->destroy_stream(destroyed));
  auto const block = allocate(a_);
  for (auto const stream : {StreamId{4711}, foreign, destroyed}) {
    auto const refused = host_->prepare_use(block, stream, UseKind::write);
    EXPECT_EQ(refusal(refused), ErrorKind::stream_misuse);
    EXPECT_THAT(refused.error().message, HasSubstr(std::to_string(stream.value)));
    EXPECT_EQ(refusal(host_->finish_use(block, stream, UseKind::write)), ErrorKind::stream_misuse);
    EXPECT_EQ(refusal(host_->record_use(block, stream, UseKind::read)), ErrorKind::stream_misuse);
    auto elsewhere = block;
    elsewhere.stream = stream;
    EXPECT_EQ(refusal(host_->deallocate(elsewhere)), ErrorKind::stream_misuse);
  }
  EXPECT_EQ(host_->usage().tracked_blocks, 0U);
  EXPECT_EQ(host_->usage().live_blocks, 1U);
}

TEST_F(HostUsesTest, zero_bytes_are_waited_for_by_nobody) {
  auto const nothing = host_->allocate({.bytes = 0, .stream = a_}).value();
  ASSERT_TRUE(host_->enqueue_work(a_, 1ms));
  launch(nothing, b_, UseKind::write, 1us);
  EXPECT_EQ(end_of(b_), 1us);
  EXPECT_EQ(refusal(host_->prepare_use(nothing, StreamId{4711}, UseKind::read)), ErrorKind::stream_misuse);
}

TEST_F(HostUsesTest, stream_in_the_callers_copy_of_a_block_is_not_believed) {
  auto const block = allocate(a_);
  ASSERT_TRUE(host_->enqueue_work(a_, 10us));
  auto copy = block;
  copy.stream = b_;
  launch(copy, b_, UseKind::read, 1us);
  EXPECT_EQ(end_of(b_), 11us) << "after the allocation's own stream";
}

TEST_F(HostUsesTest, failed_events_leave_no_use_and_the_call_can_be_repeated) {
  auto const block = allocate(a_);
  auto const fail_next = [this] {
    host_->faults().add(
        {.operation = FaultOperation::event, .kind = ErrorKind::driver, .device_code = 400, .message = "no event"});
  };
  fail_next();
  auto const failed = host_->finish_use(block, b_, UseKind::read);
  ASSERT_EQ(refusal(failed), ErrorKind::driver);
  EXPECT_EQ(failed.error().device_code, 400);
  EXPECT_THAT(failed.error().message, HasSubstr("no event"));
  EXPECT_EQ(host_->usage().tracked_blocks, 0U);
  fail_next();
  EXPECT_EQ(refusal(host_->prepare_use(block, b_, UseKind::read)), ErrorKind::driver);
  launch(block, b_, UseKind::read, 4us);
  fail_next();
  EXPECT_EQ(refusal(host_->deallocate(block)), ErrorKind::driver);
  EXPECT_EQ(host_->usage().live_blocks, 1U) << "a free whose waits failed was not made";
  ASSERT_TRUE(host_->deallocate(block));
  EXPECT_EQ(freed_at(), 4us + 100ns);
}

TEST_F(HostUsesTest, refused_free_keeps_the_uses) {
  auto const block = allocate(a_);
  launch(block, b_, UseKind::read, 4us);
  host_->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver});
  EXPECT_EQ(refusal(host_->deallocate(block)), ErrorKind::driver);
  EXPECT_EQ(host_->usage().tracked_blocks, 1U);
  free_on(block, c_);
  EXPECT_EQ(freed_at(), 4us + 100ns);
}

TEST_F(HostUsesTest, uses_and_frees_of_many_threads_leave_nothing_behind) {
  constexpr int kThreads = 8;
  constexpr std::size_t kBlocks = 16;
  std::vector<StreamId> streams{{}, a_, b_, c_};
  std::mutex mutex;  // guards `blocks`, whose entries are copied out and used without it
  std::vector<Block> blocks;
  for (std::size_t at = 0; at < kBlocks; ++at) blocks.push_back(allocate(streams[at % 4]));
  std::atomic<int> unexpected{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random{static_cast<std::uint64_t>(thread)};
      for (int step = 0; step < 2000; ++step) {
        auto const at = random() % kBlocks;
        Block block;
        {
          std::lock_guard const lock(mutex);
          block = blocks[at];
        }
        auto const stream = streams[random() % 4];
        if (thread % 4 == 0 && random() % 4 == 0) {
          block.stream = stream;
          auto const freed = host_->deallocate(block);
          if (!freed) {
            if (freed.error().kind != ErrorKind::double_free && freed.error().kind != ErrorKind::use_after_free) ++unexpected;
            continue;
          }
          if (!host_->reap_pending(ReapMode::synchronize)) ++unexpected;  // so that addresses live again
          auto const next = host_->allocate({.bytes = 1000, .stream = stream});
          if (!next) {
            ++unexpected;
            continue;
          }
          std::lock_guard const lock(mutex);
          blocks[at] = *next;
          continue;
        }
        auto const kind = random() % 3 == 0 ? UseKind::write : UseKind::read;
        for (auto const& result : {host_->prepare_use(block, stream, kind), host_->enqueue_work(stream, 1ns),
                                   host_->finish_use(block, stream, kind)}) {
          if (!result && result.error().kind != ErrorKind::use_after_free) ++unexpected;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(unexpected, 0);
  EXPECT_EQ(host_->usage().live_blocks, kBlocks);
  EXPECT_LE(host_->usage().tracked_blocks, kBlocks);
  for (auto const& block : blocks) ASSERT_TRUE(host_->deallocate(block));
  EXPECT_EQ(host_->usage().tracked_blocks, 0U);
  ASSERT_TRUE(host_->reap_pending(ReapMode::synchronize));
  EXPECT_EQ(host_->bytes_outstanding(), 0U);
}

class HostUsesOfImmediateFrees : public HostUsesTest {
protected:
  HostUsesOfImmediateFrees() : HostUsesTest(false) {}
};

TEST_F(HostUsesOfImmediateFrees, host_waits_for_uses_on_other_streams_and_only_for_them) {
  auto const own = allocate(a_);
  launch(own, a_, UseKind::write, 10us);
  ASSERT_TRUE(host_->deallocate(own));
  EXPECT_EQ(host_->now(), 0us);
  auto const shared = allocate(b_);
  launch(shared, c_, UseKind::read, 30us);
  ASSERT_TRUE(host_->deallocate(shared));
  EXPECT_EQ(host_->now(), 30us);
  EXPECT_EQ(host_->bytes_outstanding(), 0U);
  EXPECT_EQ(host_->usage().tracked_blocks, 0U);
}

}  // namespace
}  // namespace headroom
