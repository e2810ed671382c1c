// AsyncCudaResource on a fake: what it asks of CUDA, and when.
#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_resources.hpp"

namespace headroom {
namespace {

using ::testing::AllOf;
using testing::CudaCall;
using ::testing::ElementsAre;
using testing::FakeCuda;
using ::testing::HasSubstr;
using testing::make_fake_async;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class CudaAsync : public ::testing::Test {
protected:
  explicit CudaAsync(int devices = 1, std::int32_t ordinal = 0)
      : both_(make_fake_async({.devices = devices, .bytes = 16 * kMiB}, ordinal).value()) {}

  [[nodiscard]] FakeCuda& cuda() const { return *both_.cuda; }
  [[nodiscard]] AsyncCudaResource& resource() const { return *both_.resource; }
  [[nodiscard]] Block allocate(std::uint64_t bytes, StreamId stream = {}) const {
    return resource().allocate({.bytes = bytes, .stream = stream}).value();
  }
  [[nodiscard]] StreamId stream() const { return resource().create_stream().value(); }
  void free(Block const& block) const {
    auto const freed = resource().deallocate(block);
    EXPECT_TRUE(freed) << freed.error().to_string();
  }
  [[nodiscard]] std::uint64_t reap(ReapMode mode) const { return resource().reap_pending(mode).value(); }
  [[nodiscard]] static ErrorKind refusal(Result<void> const& result) {
    EXPECT_FALSE(result);
    return result ? ErrorKind::parse : result.error().kind;
  }

  testing::OverFakeCuda<AsyncCudaResource> both_;
};

// ── uses ──

TEST_F(CudaAsync, uses_on_one_stream_record_no_event) {
  auto const a = stream();
  for (int round = 0; round < 60; ++round) {
    auto const block = allocate(1000, a);
    EXPECT_TRUE(resource().prepare_use(block, a, UseKind::write));
    EXPECT_TRUE(resource().finish_use(block, a, UseKind::write));
    EXPECT_TRUE(resource().fill_zero(block, 0, 1000, a));
    free(block);
  }
  EXPECT_EQ(cuda().calls(CudaCall::event_record), 0U);
  EXPECT_EQ(cuda().calls(CudaCall::stream_wait), 0U);
}

TEST_F(CudaAsync, the_first_use_on_another_stream_records_the_allocation_and_waits_once) {
  auto const a = stream();
  auto const b = stream();
  auto const block = allocate(1000, a);
  cuda().enqueue_work(a.value, 100);
  ASSERT_TRUE(resource().prepare_use(block, b, UseKind::read));
  EXPECT_EQ(cuda().calls(CudaCall::event_record), 1U);
  EXPECT_EQ(cuda().calls(CudaCall::stream_wait), 1U);
  EXPECT_EQ(cuda().busy_until(b.value), cuda().busy_until(a.value)) << "b comes after a";
  ASSERT_TRUE(resource().prepare_use(block, b, UseKind::read));
  EXPECT_EQ(cuda().calls(CudaCall::stream_wait), 1U) << "it has waited for that";
  ASSERT_TRUE(resource().finish_use(block, b, UseKind::read));
  EXPECT_EQ(device::CudaAccess::tracked_blocks(resource()), 1U);
  free(block);
  EXPECT_EQ(device::CudaAccess::tracked_blocks(resource()), 0U);
}

TEST_F(CudaAsync, a_free_comes_after_declared_uses_on_other_streams) {
  auto const a = stream();
  auto const b = stream();
  auto const block = allocate(1000, a);
  ASSERT_TRUE(resource().prepare_use(block, b, UseKind::read));
  cuda().enqueue_work(b.value, 500);
  ASSERT_TRUE(resource().finish_use(block, b, UseKind::read));
  auto const used_until = cuda().busy_until(b.value);
  free(block);
  EXPECT_GT(cuda().busy_until(a.value), used_until);
  cuda().freeze(true);
  EXPECT_EQ(reap(ReapMode::query), 0U);
  cuda().advance(cuda().busy_until(a.value));
  EXPECT_EQ(reap(ReapMode::query), 1000U);
}

TEST_F(CudaAsync, a_free_on_another_stream_comes_after_the_blocks_own) {
  auto const a = stream();
  auto const b = stream();
  auto block = allocate(1000, a);
  cuda().enqueue_work(a.value, 300);
  block.stream = b;
  free(block);
  EXPECT_GT(cuda().busy_until(b.value), cuda().busy_until(a.value));
  EXPECT_EQ(reap(ReapMode::synchronize), 1000U);
}

// ── streams ──

TEST_F(CudaAsync, a_destroyed_stream_is_refused_and_its_pending_frees_come_back) {
  auto const a = stream();
  auto const kept = allocate(500, a);
  free(allocate(1000, a));
  cuda().enqueue_work(a.value, 100);
  ASSERT_TRUE(resource().destroy_stream(a));
  EXPECT_EQ(resource().allocate({.bytes = 1, .stream = a}).error().kind, ErrorKind::stream_misuse);
  EXPECT_EQ(resource().allocate({.bytes = 0, .stream = a}).error().kind, ErrorKind::stream_misuse);
  EXPECT_EQ(refusal(resource().deallocate(kept)), ErrorKind::stream_misuse);
  EXPECT_EQ(refusal(resource().fill_zero(kept, 0, 1, a)), ErrorKind::stream_misuse);
  EXPECT_EQ(refusal(resource().prepare_use(kept, a, UseKind::read)), ErrorKind::stream_misuse);
  EXPECT_EQ(refusal(resource().synchronize_stream(a)), ErrorKind::stream_misuse);
  EXPECT_EQ(refusal(resource().destroy_stream(a)), ErrorKind::stream_misuse);
  EXPECT_EQ(reap(ReapMode::synchronize), 1000U);
  auto moved = kept;
  moved.stream = {};
  free(moved);
  EXPECT_EQ(reap(ReapMode::synchronize), 500U);
}

TEST_F(CudaAsync, a_new_stream_takes_an_old_handle_only_when_that_has_come_to_rest) {
  auto const a = stream();
  cuda().freeze(true);
  cuda().enqueue_work(a.value, 100);
  ASSERT_TRUE(resource().destroy_stream(a));
  auto const b = stream();
  EXPECT_NE(b, a);
  cuda().advance(200);
  EXPECT_EQ(stream(), a);
  EXPECT_TRUE(resource().synchronize_stream(a)) << "it lives again";
  EXPECT_EQ(cuda().calls(CudaCall::stream_create), 2U);
}

TEST_F(CudaAsync, what_is_no_stream_of_ours_cannot_be_destroyed_here) {
  EXPECT_EQ(refusal(resource().destroy_stream({})), ErrorKind::stream_misuse);
  EXPECT_EQ(refusal(resource().destroy_stream({cuda().foreign_stream()})), ErrorKind::stream_misuse);
}

TEST_F(CudaAsync, the_stream_that_each_thread_has_another_of_is_refused) {
  auto const refused = resource().allocate({.bytes = 1, .stream = {2}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::stream_misuse);
  EXPECT_THAT(refused.error().message, HasSubstr("cudaStreamPerThread"));
}

TEST_F(CudaAsync, a_stream_of_the_program_may_end_right_after_the_free) {
  StreamId const foreign{cuda().foreign_stream()};
  auto const block = allocate(1000, foreign);
  EXPECT_EQ(cuda().calls(CudaCall::event_record), 0U);
  cuda().enqueue_work(foreign.value, 50);
  free(block);
  EXPECT_EQ(cuda().calls(CudaCall::event_record), 1U) << "while the stream certainly exists";
  cuda().destroy_foreign(foreign.value);
  EXPECT_EQ(reap(ReapMode::synchronize), 1000U);
  EXPECT_EQ(cuda().calls(CudaCall::event_record), 1U);
}

TEST_F(CudaAsync, a_stream_of_another_device_is_cudas_error_and_changes_nothing) {
  auto const two = make_fake_async({.devices = 2, .bytes = kMiB}, 0).value();
  StreamId const other{two.cuda->foreign_stream(1)};
  auto const refused = two.resource->allocate({.bytes = 1000, .stream = other});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::driver);
  EXPECT_EQ(refused.error().device_code, 400);
  auto block = two.resource->allocate({.bytes = 1000}).value();
  block.stream = other;
  EXPECT_FALSE(two.resource->deallocate(block));
  block.stream = {};
  EXPECT_TRUE(two.resource->deallocate(block)) << "still owned";
  two.cuda->forgive();
}

// ── memory ──

TEST_F(CudaAsync, out_of_memory_has_its_kind_and_the_free_figure_and_leaves_the_last_error_alone) {
  auto const held = allocate(10 * kMiB);
  cuda().set_last_error(9);
  auto const refused = resource().allocate({.bytes = 8 * kMiB});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(refused.error().layer, Layer::driver);
  EXPECT_EQ(refused.error().device_code, 2);
  EXPECT_EQ(refused.error().requested, 8 * kMiB);
  EXPECT_EQ(refused.error().device_free, 6 * kMiB);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("8 MiB"), HasSubstr("6 MiB free of 16 MiB"), HasSubstr("10 MiB reserved")));
  EXPECT_EQ(cuda().last_error(), 9);
  EXPECT_EQ(resource().bytes_outstanding(), 10 * kMiB);
  free(held);
}

TEST_F(CudaAsync, pending_frees_are_waited_for_before_a_request_is_refused) {
  auto const a = stream();
  auto const b = stream();
  cuda().enqueue_work(a.value, 500);
  free(allocate(6 * kMiB, a));
  cuda().enqueue_work(b.value, 90);
  free(allocate(6 * kMiB, b));
  auto const second = allocate(8 * kMiB);  // the one on b is enough
  EXPECT_GE(cuda().now(), 90U);
  EXPECT_LT(cuda().now(), 500U);
  EXPECT_FALSE(resource().allocate({.bytes = 17 * kMiB})) << "more than there is: nothing helps";
  EXPECT_LT(cuda().now(), 500U);
  EXPECT_FALSE(resource().allocate({.bytes = 9 * kMiB}));
  EXPECT_GE(cuda().now(), 500U);
  free(second);
}

TEST_F(CudaAsync, any_other_failure_to_allocate_is_the_drivers_with_its_code) {
  cuda().fail(CudaCall::malloc_async, 700);
  auto const refused = resource().allocate({.bytes = 1000});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::driver);
  EXPECT_EQ(refused.error().device_code, 700);
  EXPECT_THAT(refused.error().message, HasSubstr("fake error 700"));
  EXPECT_EQ(resource().bytes_outstanding(), 0U);
}

TEST_F(CudaAsync, large_alignments_take_more_of_the_device_and_count_what_was_asked_for) {
  auto const first = allocate(512);  // so that the next lowest place is not a multiple of 4096
  auto const block = resource().allocate({.bytes = 1000, .alignment = 4096}).value();
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(block.pointer) % 4096, 0U);
  EXPECT_EQ(resource().bytes_outstanding(), 1512U);
  // 1000 + 4096 − 256 = 4840 bytes are 10 granules of 512; the first try, of 2, was given back.
  EXPECT_EQ(reap(ReapMode::synchronize), 0U) << "nobody was handed that, so nobody gets it back";
  cuda().advance(10);
  EXPECT_EQ(cuda().free_bytes(), 16 * kMiB - 512 - 5120);
  EXPECT_TRUE(resource().fill_zero(block, 0, 1000, {}));
  free(block);
  free(first);
  EXPECT_EQ(reap(ReapMode::synchronize), 1512U);
  EXPECT_EQ(cuda().free_bytes(), 16 * kMiB);
  EXPECT_EQ(refusal(resource().deallocate(block)), ErrorKind::double_free);
}

TEST_F(CudaAsync, an_alignment_that_happens_to_be_met_costs_nothing) {
  auto const block = resource().allocate({.bytes = 1000, .alignment = 4096}).value();
  EXPECT_EQ(cuda().calls(CudaCall::malloc_async), 1U);
  EXPECT_EQ(cuda().free_bytes(), 16 * kMiB - 1024);
  free(block);
}

TEST_F(CudaAsync, an_alignment_beyond_all_memory_is_a_lack_of_memory) {
  auto const first = allocate(512);
  auto const refused = resource().allocate({.bytes = 1000, .alignment = std::uint64_t{1} << 63});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(resource().bytes_outstanding(), 512U);
  free(first);
}

TEST_F(CudaAsync, a_free_that_cuda_refuses_leaves_the_block_with_its_owner) {
  auto const block = allocate(1000);
  cuda().fail(CudaCall::free_async, 700);
  auto const refused = resource().deallocate(block);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::driver);
  EXPECT_EQ(refused.error().device_code, 700);
  EXPECT_EQ(resource().bytes_outstanding(), 1000U);
  EXPECT_TRUE(resource().fill_zero(block, 0, 1000, {})) << "live as before";
  free(block);
  EXPECT_EQ(reap(ReapMode::synchronize), 1000U);
}

TEST_F(CudaAsync, memory_that_was_freed_around_us_is_not_counted_twice) {
  auto const stale = allocate(1000);
  device::CudaApi::Context previous = 0;
  ASSERT_EQ(cuda().enter(0, previous), 0);
  ASSERT_EQ(cuda().free_async(stale.pointer, 0), 0);
  ASSERT_EQ(cuda().stream_synchronize(0), 0);
  auto const block = allocate(600);
  ASSERT_EQ(block.pointer, stale.pointer);
  EXPECT_EQ(resource().bytes_outstanding(), 600U);
  EXPECT_EQ(refusal(resource().deallocate(stale)), ErrorKind::use_after_free);
  free(block);
  EXPECT_EQ(reap(ReapMode::synchronize), 600U);
}

TEST_F(CudaAsync, copies_wait_for_their_stream_so_that_the_source_may_be_reused) {
  auto const a = stream();
  auto const block = allocate(1000, a);
  std::array<std::byte, 300> source{};
  std::vector<std::size_t> copied;
  cuda().on_copy = [&](void const* from, std::size_t bytes) {
    EXPECT_EQ(from, source.data());
    copied.push_back(bytes);
  };
  ASSERT_TRUE(resource().copy_in(block, 700, source, a));
  EXPECT_THAT(copied, ElementsAre(300U));
  EXPECT_EQ(cuda().busy_until(a.value), cuda().now()) << "nothing is left to do on the stream";
  EXPECT_EQ(cuda().calls(CudaCall::stream_synchronize), 1U);
  free(block);
}

TEST_F(CudaAsync, blocks_that_are_left_vanish_with_the_resource) {
  auto const live = allocate(1000, stream());
  free(allocate(2000));
  both_.resource.reset();
  EXPECT_EQ(cuda().free_bytes(), 16 * kMiB);
  EXPECT_EQ(cuda().live_events(), 0U);
  EXPECT_EQ(live.bytes, 1000U);
}

// ── the pool's figures ──

TEST_F(CudaAsync, pool_usage_is_what_cuda_says) {
  auto const first = allocate(1000);
  auto const second = allocate(4096);
  auto usage = resource().pool_usage().value();
  EXPECT_EQ(usage.used, 1024U + 4096U);
  EXPECT_EQ(usage.used_high, 5120U);
  EXPECT_EQ(usage.reserved, 5120U);
  free(second);
  ASSERT_EQ(reap(ReapMode::synchronize), 4096U);
  usage = resource().pool_usage().value();
  EXPECT_EQ(usage.used, 1024U);
  EXPECT_EQ(usage.used_high, 5120U);
  ASSERT_TRUE(resource().reset_pool_high_water());
  EXPECT_EQ(resource().pool_usage().value().used_high, 1024U);
  EXPECT_EQ(resource().trim(2048).value(), 5120U - 2048U);
  EXPECT_EQ(resource().trim(0).value(), 1024U) << "what is used stays";
  EXPECT_EQ(resource().pool_usage().value().reserved, 1024U);
  EXPECT_EQ(resource().trim(0).value(), 0U);
  free(first);
}

TEST_F(CudaAsync, a_pool_that_does_not_answer_is_an_error) {
  cuda().fail(CudaCall::pool_figure, 999);
  EXPECT_EQ(resource().pool_usage().error().device_code, 999);
  cuda().fail(CudaCall::pool_trim, 998);
  EXPECT_EQ(resource().trim(0).error().device_code, 998);
  EXPECT_EQ(cuda().last_error(), 0);
}

// ── traces in the program ──

class CudaAsyncOfSecondDevice : public CudaAsync {
protected:
  CudaAsyncOfSecondDevice() : CudaAsync(2, 1) {}
  /// One call of each kind.
  void use_everything() const {
    auto const a = stream();
    auto const b = stream();
    auto const block = allocate(1000, a);
    std::array<std::byte, 8> const source{};
    EXPECT_TRUE(resource().fill_zero(block, 0, 1000, a));
    EXPECT_TRUE(resource().copy_in(block, 0, source, a));
    EXPECT_TRUE(resource().prepare_use(block, b, UseKind::write));
    EXPECT_TRUE(resource().finish_use(block, b, UseKind::write));
    EXPECT_TRUE(resource().memory_info().free);
    EXPECT_TRUE(resource().pool_usage());
    free(block);
    EXPECT_EQ(reap(ReapMode::synchronize), 1000U);
    EXPECT_TRUE(resource().trim(0));
    EXPECT_TRUE(resource().synchronize_stream(a));
    EXPECT_TRUE(resource().destroy_stream(b));
    EXPECT_TRUE(resource().destroy_stream(a));
    EXPECT_FALSE(resource().allocate({.bytes = 17 * kMiB}));
  }
};

TEST_F(CudaAsyncOfSecondDevice, a_thread_that_used_no_gpu_still_has_none_and_no_context_is_made_for_it) {
  use_everything();
  EXPECT_FALSE(cuda().has_context());
  EXPECT_EQ(cuda().current_device(), 0);
  EXPECT_THAT(cuda().active_devices(), ElementsAre(1)) << "none on device 0";
}

TEST_F(CudaAsyncOfSecondDevice, a_thread_that_uses_another_device_goes_on_there) {
  cuda().set_device(0);
  use_everything();
  EXPECT_TRUE(cuda().has_context());
  EXPECT_EQ(cuda().current_device(), 0);
}

TEST_F(CudaAsyncOfSecondDevice, a_failing_call_restores_the_device_too) {
  cuda().set_device(0);
  for (auto const call : {CudaCall::malloc_async, CudaCall::memory_info, CudaCall::stream_create}) cuda().fail(call, 700);
  EXPECT_FALSE(resource().allocate({.bytes = 1}));
  EXPECT_FALSE(resource().memory_info().free);
  EXPECT_FALSE(resource().create_stream());
  EXPECT_EQ(cuda().current_device(), 0);
}

TEST_F(CudaAsync, errors_of_our_own_calls_are_cleared_and_none_of_the_programs) {
  auto const block = allocate(1000);
  cuda().fail(CudaCall::memset_async, 700);
  EXPECT_FALSE(resource().fill_zero(block, 0, 1000, {}));
  EXPECT_EQ(cuda().last_error(), 0);

  cuda().set_last_error(9);
  EXPECT_TRUE(resource().fill_zero(block, 0, 1000, {}));
  EXPECT_EQ(cuda().last_error(), 9) << "a success touches nothing";
  cuda().fail(CudaCall::memset_async, 700);
  EXPECT_FALSE(resource().fill_zero(block, 0, 1000, {}));
  EXPECT_NE(cuda().last_error(), 0) << "the program still finds a failure";

  cuda().set_last_error(9);
  free(block);
  cuda().freeze(true);
  EXPECT_EQ(reap(ReapMode::query), 0U);
  EXPECT_EQ(cuda().last_error(), 9) << "'not ready' is no error of the program";
  EXPECT_EQ(reap(ReapMode::synchronize), 1000U);
  EXPECT_EQ(cuda().last_error(), 9);
}

}  // namespace
}  // namespace headroom
