// Launches: each named use is prepared before and finished after, and what is forgotten is recorded all the same.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <headroom/launch.hpp>

#include "fake_stack.hpp"
#include "managers.hpp"

namespace headroom::test {
namespace {

using Use = FakeStack::Use;

struct LaunchTest : testing::Test {
  FakeRuntime fake{{.limit = 100'000}};
  GpuMemoryManager manager = fake.manager(MemoryBudget::with_limit(100'000));
  StreamId stream = fake.host->create_stream().value();
  TrackedBuffer<float> weights = manager.alloc<float>(100).value();
  TrackedBuffer<float> result = manager.alloc<float>(200).value();
  RuntimeAllocBlock scratch = manager.alloc_raw(300, AllocTag{}).value();

  static void expect_invalid(Result<void> const& outcome, std::string const& words) {
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().kind, ErrorKind::invalid_argument);
    EXPECT_NE(outcome.error().message.find(words), std::string::npos) << outcome.error().message;
  }
};

TEST_F(LaunchTest, prepares_each_use_and_finishes_each) {
  auto launch = Launch::on(fake.runtime, stream);
  launch.reads(weights).writes(result).writes(scratch);
  EXPECT_TRUE(fake.stack->uses().empty()) << "naming asks nobody";
  ASSERT_TRUE(launch.prepare());
  ASSERT_TRUE(launch.finish());
  const std::vector<Use> expected{
      {'p', weights.data(), stream.value, UseKind::read},  {'p', result.data(), stream.value, UseKind::write},
      {'p', scratch.data(), stream.value, UseKind::write}, {'f', weights.data(), stream.value, UseKind::read},
      {'f', result.data(), stream.value, UseKind::write},  {'f', scratch.data(), stream.value, UseKind::write}};
  EXPECT_EQ(fake.stack->uses(), expected);
}

TEST_F(LaunchTest, a_buffer_named_twice_counts_once_as_written) {
  auto launch = Launch::on(fake.runtime, stream);
  launch.reads(weights).writes(weights).reads(weights);
  ASSERT_TRUE(launch.prepare());
  ASSERT_TRUE(launch.finish());
  const std::vector<Use> expected{{'p', weights.data(), stream.value, UseKind::write},
                                  {'f', weights.data(), stream.value, UseKind::write}};
  EXPECT_EQ(fake.stack->uses(), expected);
}

TEST_F(LaunchTest, an_empty_buffer_needs_no_order) {
  const TrackedBuffer<float> empty;
  auto launch = Launch::on(fake.runtime, stream);
  launch.reads(empty);
  EXPECT_TRUE(launch.prepare());
  EXPECT_TRUE(launch.finish());
  EXPECT_TRUE(fake.stack->uses().empty());
}

TEST_F(LaunchTest, misuse_is_named) {
  const auto unfinished = Launch::unfinished_launches();
  auto nothing = Launch::on(fake.runtime, stream);
  expect_invalid(nothing.prepare(), "names no buffer");
  auto launch = Launch::on(fake.runtime, stream);
  launch.reads(weights);
  expect_invalid(launch.finish(), "was not prepared");
  ASSERT_TRUE(launch.prepare());
  expect_invalid(launch.prepare(), "prepared already");
  ASSERT_TRUE(launch.finish());
  expect_invalid(launch.finish(), "finished already");
  expect_invalid(launch.prepare(), "is finished");
  auto moved = std::move(launch);
  expect_invalid(launch.prepare(), "moved from");  // NOLINT(bugprone-use-after-move): the subject
  expect_invalid(launch.finish(), "moved from");
  launch.reads(weights);
  EXPECT_EQ(Launch::unfinished_launches(), unfinished);
  EXPECT_EQ(fake.stack->uses().size(), 2U);
}

TEST_F(LaunchTest, buffers_of_others_are_refused_before_anything_is_prepared) {
  const FakeRuntime other;
  auto foreign_manager = other.manager(MemoryBudget::unlimited());
  const auto foreign = foreign_manager.alloc<float>(10).value();
  auto direct_manager = GpuMemoryManager::create(fake.device, MemoryBudget::unlimited()).value();
  const auto direct = direct_manager.alloc<float>(10).value();
  for (auto const* buffer : {&foreign, &direct}) {
    auto launch = Launch::on(fake.runtime, stream);
    launch.reads(weights).writes(*buffer);
    auto refused = launch.prepare();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::wrong_owner);
    EXPECT_FALSE(launch.finish()) << "it was never prepared";
  }
  EXPECT_TRUE(fake.stack->uses().empty());
}

TEST_F(LaunchTest, buffers_of_all_managers_of_its_runtime_are_its_own) {
  auto parent = GpuMemoryManager::create(fake.device, MemoryBudget::unlimited()).value();
  auto overlay = parent.with_runtime_overlay(fake.runtime).value();
  const auto other = overlay.alloc<float>(10).value();
  auto launch = Launch::on(fake.runtime, stream);
  launch.reads(weights).writes(other);
  EXPECT_TRUE(launch.prepare());
  EXPECT_TRUE(launch.finish());
}

TEST_F(LaunchTest, a_runtime_that_tracks_no_uses_says_so) {
  const FakeRuntime blind{{.tracks_uses = false}};
  auto blind_manager = blind.manager(MemoryBudget::unlimited());
  const auto buffer = blind_manager.alloc<float>(10).value();
  auto launch = Launch::on(blind.runtime, StreamId{});
  launch.reads(buffer);
  auto refused = launch.prepare();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(refused.error().layer, Layer::runtime);
}

TEST_F(LaunchTest, a_prepare_that_fails_may_be_repeated) {
  fake.stack->fail_use('p');
  auto launch = Launch::on(fake.runtime, stream);
  launch.reads(weights);
  auto refused = launch.prepare();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::driver);
  EXPECT_TRUE(launch.prepare());
  EXPECT_TRUE(launch.finish());
}

TEST_F(LaunchTest, a_finish_that_fails_keeps_that_use_open_and_finishes_the_others) {
  const auto unfinished = Launch::unfinished_launches();
  auto launch = Launch::on(fake.runtime, stream);
  launch.reads(weights).writes(result);
  ASSERT_TRUE(launch.prepare());
  fake.stack->fail_use('f');
  EXPECT_EQ(launch.finish().error().kind, ErrorKind::driver);
  EXPECT_EQ(fake.stack->uses().back(), (Use{'f', result.data(), stream.value, UseKind::write}));
  EXPECT_TRUE(launch.finish());
  EXPECT_EQ(fake.stack->uses().back(), (Use{'f', weights.data(), stream.value, UseKind::read}));
  EXPECT_EQ(fake.stack->uses().size(), 4U);
  EXPECT_EQ(Launch::unfinished_launches(), unfinished);
}

TEST_F(LaunchTest, one_whose_finish_failed_is_tried_again_when_dropped_and_is_not_unfinished) {
  const auto unfinished = Launch::unfinished_launches();
  testing::internal::CaptureStderr();
  {
    auto launch = Launch::on(fake.runtime, stream);
    launch.reads(weights);
    ASSERT_TRUE(launch.prepare());
    fake.stack->fail_use('f');
    ASSERT_FALSE(launch.finish());
    expect_invalid(launch.prepare(), "prepared already");
    auto moved = std::move(launch);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(Launch::unfinished_launches(), unfinished);
  EXPECT_EQ(fake.stack->uses().back(), (Use{'f', weights.data(), stream.value, UseKind::read}));
  EXPECT_EQ(fake.stack->uses().size(), 2U) << "prepared once, finished at the second try";
}

TEST_F(LaunchTest, a_buffer_named_after_prepare_is_recorded_and_told) {
  auto launch = Launch::on(fake.runtime, stream);
  launch.reads(weights);
  ASSERT_TRUE(launch.prepare());
  launch.writes(result);
  expect_invalid(launch.finish(), "named after prepare");
  EXPECT_EQ(fake.stack->uses().back(), (Use{'f', result.data(), stream.value, UseKind::write}));
}

TEST_F(LaunchTest, dropped_unfinished_records_its_uses_counts_and_names_its_site) {
  const auto unfinished = Launch::unfinished_launches();
  testing::internal::CaptureStderr();
  {
    auto launch = Launch::on(fake.runtime, stream);
    launch.writes(result);
    ASSERT_TRUE(launch.prepare());
    auto moved = std::move(launch);  // counted once
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("launch_test.cpp:"), std::string::npos) << text;
  EXPECT_NE(text.find("never finished"), std::string::npos) << text;
  EXPECT_EQ(Launch::unfinished_launches(), unfinished + 1);
  EXPECT_EQ(fake.stack->uses().back(), (Use{'f', result.data(), stream.value, UseKind::write}));
}

TEST_F(LaunchTest, only_the_first_ten_unfinished_ones_are_written_about) {
  testing::internal::CaptureStderr();
  const auto before = Launch::unfinished_launches();
  for (int i = 0; i < 15; ++i) {
    auto launch = Launch::on(fake.runtime, stream);
    launch.writes(result);
    ASSERT_TRUE(launch.prepare());
    launch = Launch::on(fake.runtime, stream);  // replaced is dropped
  }
  const std::string text = testing::internal::GetCapturedStderr();
  const auto lines = static_cast<std::uint64_t>(std::ranges::count(text, '\n'));
  EXPECT_EQ(Launch::unfinished_launches(), before + 15);
  EXPECT_EQ(lines, before >= 10 ? 0 : 10 - before);
  if (before < 10) {
    EXPECT_NE(text.find("further ones are only counted"), std::string::npos);
  }
}

// The host device keeps order itself: what a launch on another stream uses is not the device's again before that stream is done.
TEST(LaunchOnHost, a_free_comes_after_the_launch_on_another_stream) {
  auto host = HostResource::create({.touch_memory = false, .stream_ordered = true}).value();
  auto device = host_device_over(host).value();
  auto runtime = DeviceRuntime::create(device).value();
  auto manager = GpuMemoryManager::with_runtime(device, MemoryBudget::unlimited(), runtime).value();
  auto buffer = manager.alloc<float>(100).value();
  const StreamLease other = runtime.acquire_stream().value();
  auto launch = Launch::on(runtime, other.id());
  launch.reads(buffer);
  ASSERT_TRUE(launch.prepare());
  ASSERT_TRUE(host->enqueue_work(other.id(), std::chrono::milliseconds{5}));
  ASSERT_TRUE(launch.finish());
  ASSERT_TRUE(buffer.release());
  host->advance(std::chrono::milliseconds{4});
  EXPECT_EQ(runtime.reap_pending(ReapMode::query).value(), 0U);
  host->advance(std::chrono::milliseconds{2});
  EXPECT_EQ(runtime.reap_pending(ReapMode::query).value(), 400U);
}

TEST(LaunchOnHost, unknown_streams_and_freed_buffers_are_told_by_prepare) {
  auto host = HostResource::create({.touch_memory = false}).value();
  auto device = host_device_over(host).value();
  auto runtime = DeviceRuntime::create(device).value();
  auto manager = GpuMemoryManager::with_runtime(device, MemoryBudget::unlimited(), runtime).value();
  auto buffer = manager.alloc<float>(100).value();
  auto lost = Launch::on(runtime, StreamId{4711});
  lost.reads(buffer);
  EXPECT_EQ(lost.prepare().error().kind, ErrorKind::stream_misuse);
  auto stale = Launch::on(runtime, StreamId{});
  stale.writes(buffer);
  ASSERT_TRUE(buffer.release());
  auto refused = stale.prepare();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::use_after_free);
}

}  // namespace
}  // namespace headroom::test
