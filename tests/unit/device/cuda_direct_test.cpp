// DirectCudaResource on a fake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_resources.hpp"

namespace headroom {
namespace {

using testing::CudaCall;
using ::testing::ElementsAre;
using testing::FakeCuda;
using testing::make_fake_direct;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct Sink final : ReturnSink {
  void returned(std::uint64_t bytes) noexcept override { total += bytes; }
  std::uint64_t total = 0;
};

class CudaDirect : public ::testing::Test {
protected:
  [[nodiscard]] FakeCuda& cuda() const { return *both_.cuda; }
  [[nodiscard]] DirectCudaResource& resource() const { return *both_.resource; }
  testing::OverFakeCuda<DirectCudaResource> both_ = make_fake_direct({.devices = 2, .bytes = 16 * kMiB}, 1).value();
};

TEST_F(CudaDirect, a_free_waits_for_all_work_declared_or_not_and_its_bytes_are_back_at_once) {
  auto const a = resource().create_stream().value();
  auto const b = resource().create_stream().value();
  auto block = resource().allocate({.bytes = 1000, .stream = a}).value();
  device::CudaApi::Context previous = 0;
  ASSERT_EQ(cuda().enter(1, previous), 0);
  cuda().enqueue_work(b.value, 700);
  cuda().leave(previous);
  Sink sink;
  block.returns_to = &sink;
  ASSERT_TRUE(resource().deallocate(block));
  EXPECT_GE(cuda().now(), 700U);
  EXPECT_EQ(sink.total, 1000U);
  EXPECT_EQ(resource().bytes_outstanding(), 0U);
  EXPECT_EQ(cuda().free_bytes(1), 16 * kMiB);
  EXPECT_EQ(resource().reap_pending(ReapMode::synchronize).value(), 0U);
  EXPECT_EQ(cuda().calls(CudaCall::event_record), 0U);
}

TEST_F(CudaDirect, uses_on_two_streams_are_ordered_by_events) {
  auto const a = resource().create_stream().value();
  auto const b = resource().create_stream().value();
  auto const block = resource().allocate({.bytes = 1000, .stream = a}).value();
  ASSERT_TRUE(resource().fill_zero(block, 0, 1000, a));
  ASSERT_TRUE(resource().prepare_use(block, b, UseKind::read));
  EXPECT_EQ(cuda().calls(CudaCall::event_record), 1U);
  EXPECT_EQ(cuda().calls(CudaCall::stream_wait), 1U);
  ASSERT_TRUE(resource().finish_use(block, b, UseKind::read));
  ASSERT_TRUE(resource().deallocate(block));
}

TEST_F(CudaDirect, a_free_that_cuda_refuses_leaves_the_block_with_its_owner) {
  auto const block = resource().allocate({.bytes = 1000, .alignment = 65536}).value();
  for (auto const call : {CudaCall::free, CudaCall::device_synchronize}) {
    cuda().fail(call, 700);
    auto const refused = resource().deallocate(block);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::driver);
    EXPECT_EQ(refused.error().device_code, 700);
    EXPECT_EQ(resource().bytes_outstanding(), 1000U);
    EXPECT_EQ(cuda().last_error(), 0);
  }
  EXPECT_TRUE(resource().deallocate(block));
  EXPECT_EQ(resource().deallocate(block).error().kind, ErrorKind::double_free);
}

TEST_F(CudaDirect, out_of_memory_has_its_kind_and_the_free_figure) {
  auto const held = resource().allocate({.bytes = 12 * kMiB}).value();
  auto const refused = resource().allocate({.bytes = 5 * kMiB});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(refused.error().device_code, 2);
  EXPECT_EQ(refused.error().device_free, 4 * kMiB);
  EXPECT_EQ(cuda().last_error(), 0) << "cudaMalloc left one there, and it was ours";
  EXPECT_TRUE(resource().deallocate(held));
}

TEST_F(CudaDirect, a_thread_that_used_no_gpu_still_has_none) {
  auto const block = resource().allocate({.bytes = 1000}).value();
  EXPECT_TRUE(resource().memory_info().free);
  EXPECT_TRUE(resource().deallocate(block));
  EXPECT_EQ(resource().trim(0).value(), 0U);
  EXPECT_FALSE(cuda().has_context());
  EXPECT_THAT(cuda().active_devices(), ElementsAre(1));
}

TEST_F(CudaDirect, blocks_that_are_left_vanish_with_the_resource) {
  EXPECT_TRUE(resource().allocate({.bytes = 1000}));
  both_.resource.reset();
  EXPECT_EQ(cuda().free_bytes(1), 16 * kMiB);
}

}  // namespace
}  // namespace headroom
