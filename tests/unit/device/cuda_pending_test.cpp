// AsyncCudaResource on a fake: frees that are pending, the events that tell of them, and who is told.
#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/device_account.hpp>

#include "cuda_resources.hpp"
#include "device/cuda/cuda_pending.hpp"
#include "scale.hpp"

namespace headroom {
namespace {

using testing::CudaCall;
using testing::FakeCuda;
using testing::make_fake_async;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint32_t kBatch = device::CudaPending::kFreesInBatch;

struct Sink final : ReturnSink {
  void returned(std::uint64_t bytes) noexcept override {
    total += bytes;
    ++calls;
  }
  std::uint64_t total = 0;
  int calls = 0;
};

class CudaPendingFrees : public ::testing::Test {
protected:
  [[nodiscard]] FakeCuda& cuda() const { return *both_.cuda; }
  [[nodiscard]] AsyncCudaResource& resource() const { return *both_.resource; }
  [[nodiscard]] StreamId stream() const { return resource().create_stream().value(); }
  void allocate_and_free(std::uint64_t bytes, StreamId on, ReturnSink* sink = nullptr) const {
    auto block = resource().allocate({.bytes = bytes, .stream = on}).value();
    block.returns_to = sink;
    ASSERT_TRUE(resource().deallocate(block));
  }
  [[nodiscard]] std::uint64_t reap(ReapMode mode) const { return resource().reap_pending(mode).value(); }
  [[nodiscard]] std::uint64_t records() const { return cuda().calls(CudaCall::event_record); }

  testing::OverFakeCuda<AsyncCudaResource> both_ = make_fake_async({.bytes = 64 * kMiB}).value();
};

TEST_F(CudaPendingFrees, many_frees_of_a_stream_share_one_event) {
  auto const a = stream();
  for (std::uint32_t free = 0; free < kBatch - 1; ++free) allocate_and_free(100, a);
  EXPECT_EQ(records(), 0U);
  allocate_and_free(100, a);
  EXPECT_EQ(records(), 1U);
  for (std::uint32_t free = 0; free < 9 * kBatch; ++free) allocate_and_free(100, a);
  EXPECT_EQ(records(), 10U);
}

TEST_F(CudaPendingFrees, reaping_records_one_event_for_each_stream_and_batch) {
  cuda().freeze(true);
  std::array const streams{StreamId{}, stream(), stream()};
  for (auto const on : streams) {
    for (int free = 0; free < 5; ++free) allocate_and_free(100, on);
  }
  EXPECT_EQ(reap(ReapMode::query), 0U) << "none has finished";
  EXPECT_EQ(records(), 3U);
  EXPECT_EQ(reap(ReapMode::query), 0U);
  EXPECT_EQ(records(), 3U) << "nothing new, nothing recorded";
  allocate_and_free(100, streams[1]);
  EXPECT_EQ(reap(ReapMode::query), 0U);
  EXPECT_EQ(records(), 4U);
  EXPECT_EQ(resource().bytes_outstanding(), 1600U);
  cuda().advance(100);
  EXPECT_EQ(reap(ReapMode::query), 1600U);
  EXPECT_EQ(resource().bytes_outstanding(), 0U);
  EXPECT_EQ(reap(ReapMode::synchronize), 0U);
}

TEST_F(CudaPendingFrees, a_query_takes_the_finished_streams_and_leaves_the_others) {
  cuda().freeze(true);
  auto const a = stream();
  auto const b = stream();
  cuda().enqueue_work(a.value, 1000);
  allocate_and_free(1, a);
  allocate_and_free(20, b);
  cuda().advance(10);
  EXPECT_EQ(reap(ReapMode::query), 20U);
  EXPECT_EQ(reap(ReapMode::query), 0U);
  cuda().advance(1000);
  EXPECT_EQ(reap(ReapMode::query), 1U);
}

TEST_F(CudaPendingFrees, synchronize_waits_for_all) {
  cuda().freeze(true);
  auto const a = stream();
  auto const b = stream();
  cuda().enqueue_work(a.value, 1000);
  cuda().enqueue_work(b.value, 2000);
  allocate_and_free(1, a);
  allocate_and_free(20, b);
  allocate_and_free(300, {});
  EXPECT_EQ(reap(ReapMode::synchronize), 321U);
  EXPECT_GE(cuda().now(), 2000U);
}

TEST_F(CudaPendingFrees, synchronize_next_waits_for_whichever_finishes_first) {
  auto const a = stream();
  auto const b = stream();
  cuda().enqueue_work(a.value, 100000);
  allocate_and_free(1, a);  // older, and much later
  cuda().enqueue_work(b.value, 20);
  allocate_and_free(20, b);
  EXPECT_EQ(reap(ReapMode::synchronize_next), 20U);
  EXPECT_LT(cuda().now(), 100000U);
  EXPECT_EQ(reap(ReapMode::synchronize_next), 1U);
  EXPECT_GE(cuda().now(), 100000U);
  EXPECT_EQ(reap(ReapMode::synchronize_next), 0U);
}

TEST_F(CudaPendingFrees, whoever_frees_hears_of_each_byte_once) {
  std::array<Sink, 20> sinks;  // more than one batch can tell apart
  for (int round = 0; round < 3; ++round) {
    for (std::size_t at = 0; at < sinks.size(); ++at) allocate_and_free(at + 1, {}, &sinks[at]);
  }
  for (auto const& sink : sinks) EXPECT_EQ(sink.total, 0U);
  EXPECT_EQ(reap(ReapMode::synchronize), 3U * 210U);
  for (std::size_t at = 0; at < sinks.size(); ++at) EXPECT_EQ(sinks[at].total, 3 * (at + 1));
}

TEST_F(CudaPendingFrees, one_batch_is_reported_in_one_call) {
  Sink sink;
  for (int free = 0; free < 40; ++free) allocate_and_free(10, {}, &sink);
  EXPECT_EQ(reap(ReapMode::synchronize), 400U);
  EXPECT_EQ(sink.total, 400U);
  EXPECT_EQ(sink.calls, 1);
}

TEST_F(CudaPendingFrees, a_program_that_never_reaps_keeps_neither_events_nor_bytes) {
  auto const a = stream();
  StreamId const foreign{cuda().foreign_stream()};
  Sink sink;
  auto const rounds = std::uint64_t{200} * kBatch;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    allocate_and_free(100, a, &sink);
    allocate_and_free(100, foreign, &sink);
  }
  EXPECT_LE(cuda().live_events(), 2 * device::CudaPending::kCrowd + 2);
  EXPECT_LE(resource().bytes_outstanding(), 100 * (device::CudaPending::kCrowd + 1) * kBatch);
  EXPECT_EQ(sink.total + resource().bytes_outstanding(), 2 * rounds * 100);
  static_cast<void>(reap(ReapMode::synchronize));
  EXPECT_EQ(sink.total, 2 * rounds * 100);
}

TEST_F(CudaPendingFrees, many_sinks_do_not_pile_up_either) {
  std::array<Sink, 9> sinks;
  for (int round = 0; round < 2000; ++round) {
    for (auto& sink : sinks) allocate_and_free(100, {}, &sink);
    cuda().advance(2 * sinks.size());  // the device keeps up
  }
  EXPECT_LE(resource().bytes_outstanding(), 100 * (device::CudaPending::kCrowd + 1) * kBatch);
  static_cast<void>(reap(ReapMode::synchronize));
  for (auto const& sink : sinks) EXPECT_EQ(sink.total, 200000U);
}

TEST_F(CudaPendingFrees, an_event_that_cannot_be_recorded_is_told_and_tried_again) {
  Sink sink;
  allocate_and_free(100, {}, &sink);
  for (auto const call : {CudaCall::event_create, CudaCall::event_record, CudaCall::event_query, CudaCall::event_synchronize}) {
    cuda().fail(call, 700);
    auto const mode = call == CudaCall::event_query ? ReapMode::query : ReapMode::synchronize;
    auto const refused = resource().reap_pending(mode);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::driver);
    EXPECT_EQ(refused.error().device_code, 700);
    EXPECT_EQ(resource().bytes_outstanding(), 100U);
    EXPECT_EQ(sink.total, 0U);
    EXPECT_EQ(cuda().last_error(), 0);
  }
  EXPECT_EQ(reap(ReapMode::synchronize), 100U);
  EXPECT_EQ(sink.total, 100U);
}

TEST_F(CudaPendingFrees, a_full_batch_that_got_no_event_gets_one_with_the_next_free) {
  cuda().fail(CudaCall::event_record, 700);
  for (std::uint32_t free = 0; free < kBatch; ++free) allocate_and_free(100, {});
  EXPECT_EQ(records(), 1U) << "in vain";
  allocate_and_free(100, {});
  EXPECT_EQ(records(), 2U);
  for (int free = 0; free < 4; ++free) allocate_and_free(100, {});
  EXPECT_EQ(reap(ReapMode::synchronize), 100U * (kBatch + 5));
  EXPECT_EQ(records(), 3U);
}

TEST_F(CudaPendingFrees, frees_that_are_pending_at_the_end_are_waited_for_and_reported) {
  Sink sink;
  auto const a = stream();
  cuda().enqueue_work(a.value, 5000);
  allocate_and_free(100, a, &sink);
  both_.resource.reset();
  EXPECT_EQ(sink.total, 100U);
  EXPECT_GE(cuda().now(), 5000U);
}

// ── shortage: a budget of exactly what is asked for, over and over ──

void loop_at_the_limit(bool two_streams) {
  auto const both = make_fake_async({.bytes = 64 * kMiB}).value();
  auto const stack = GlobalDeviceBudget::create(cuda_device_over(both.resource).value(), MemoryBudget::with_limit(kMiB)).value();
  std::array const streams{both.resource->create_stream().value(), both.resource->create_stream().value()};
  auto const rounds = test::scaled(2000);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    auto const on = streams.at(two_streams ? round % 2 : 0);
    both.cuda->enqueue_work(on.value, round % 7);
    auto const block = stack->allocate({.bytes = kMiB, .stream = on});
    ASSERT_TRUE(block) << "round " << round << ": " << block.error().to_string();
    ASSERT_TRUE(stack->deallocate(*block));
  }
  ASSERT_TRUE(stack->reap_pending(ReapMode::synchronize));
  EXPECT_EQ(stack->account().claimed_bytes(), 0U);
  EXPECT_EQ(stack->account().peak_bytes(), kMiB);
}

TEST(CudaShortage, a_tight_loop_at_the_limit_is_never_refused_on_one_stream) { loop_at_the_limit(false); }
TEST(CudaShortage, a_tight_loop_at_the_limit_is_never_refused_on_two_streams) { loop_at_the_limit(true); }

}  // namespace
}  // namespace headroom
