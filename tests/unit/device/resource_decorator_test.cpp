#include <headroom/resource_decorator.hpp>

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/device_account.hpp>
#include <headroom/fault_resource.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/logging_resource.hpp>
#include <headroom/null_resource.hpp>

#include "device/returned_bytes.hpp"
#include "recording_resource.hpp"

namespace headroom {
namespace {

using test::PlainDecorator;
using test::RecordingResource;
using ::testing::HasSubstr;

class CountingSink final : public ReturnSink {
public:
  virtual ~CountingSink() = default;
  void returned(std::uint64_t bytes) noexcept override {
    bytes_ += bytes;
    ++calls_;
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] int calls() const { return calls_; }

private:
  std::uint64_t bytes_ = 0;
  int calls_ = 0;
};

struct Stack {
  std::string name;
  std::function<std::shared_ptr<DeviceResource>(std::shared_ptr<RecordingResource>)> make;
  bool is_budget = false;
  friend std::ostream& operator<<(std::ostream& out, Stack const& stack) { return out << stack.name; }
};

// Every decorator over a resource that writes down what arrives.
class EveryDecorator : public ::testing::TestWithParam<Stack> {
protected:
  std::shared_ptr<RecordingResource> below = std::make_shared<RecordingResource>();
  std::shared_ptr<DeviceResource> top = GetParam().make(below);
};

TEST_P(EveryDecorator, passes_a_request_and_its_block_on_unchanged) {
  const AllocRequest request{.bytes = 1000, .alignment = 4096, .stream = {9}, .tag = 7};
  const auto block = top->allocate(request);
  ASSERT_TRUE(block) << block.error().to_string();
  EXPECT_EQ(block->generation, 11U);
  EXPECT_EQ(block->device, 3);
  EXPECT_EQ(block->tag, 7);
  EXPECT_EQ(block->stream, StreamId{9});
  ASSERT_TRUE(top->deallocate(*block));
  ASSERT_EQ(below->calls.size(), 2U);
  EXPECT_EQ(below->calls[0].request.bytes, 1000U);
  EXPECT_EQ(below->calls[0].request.alignment, 4096U);
  EXPECT_EQ(below->calls[0].request.stream, StreamId{9});
  EXPECT_EQ(below->calls[0].request.tag, 7);
  EXPECT_FALSE(below->calls[0].request.reserved);
  auto const& freed = below->calls[1].block;
  EXPECT_EQ(freed.pointer, block->pointer);
  EXPECT_EQ(freed.bytes, 1000U);
  EXPECT_EQ(freed.alignment, 4096U);
  EXPECT_EQ(freed.stream, StreamId{9});
  EXPECT_EQ(freed.generation, 11U);
  EXPECT_EQ(freed.device, 3);
  EXPECT_EQ(freed.tag, 7);
}

TEST_P(EveryDecorator, passes_writes_streams_and_uses_on_unchanged) {
  const Block block{.pointer = this, .bytes = 600, .stream = {2}, .generation = 5, .tag = 3};
  const std::array<std::byte, 4> source{};
  ASSERT_TRUE(top->fill_zero(block, 100, 500, {8}));
  ASSERT_TRUE(top->copy_in(block, 596, source, {6}));
  EXPECT_EQ(top->create_stream().value(), StreamId{21});
  ASSERT_TRUE(top->destroy_stream({31}));
  ASSERT_TRUE(top->synchronize_stream({32}));
  ASSERT_TRUE(top->prepare_use(block, {33}, UseKind::write));
  ASSERT_TRUE(top->finish_use(block, {34}, UseKind::write));
  ASSERT_TRUE(top->record_use(block, {35}, UseKind::write));
  EXPECT_EQ(top->reap_pending(ReapMode::synchronize_next).value(), 77U);
  EXPECT_EQ(top->trim(12).value(), 66U);

  ASSERT_EQ(below->calls.size(), 9U);
  EXPECT_EQ(below->calls[0].what, "fill_zero");
  EXPECT_EQ(below->calls[0].offset, 100U);
  EXPECT_EQ(below->calls[0].bytes, 500U);
  EXPECT_EQ(below->calls[0].stream, StreamId{8});
  EXPECT_EQ(below->calls[1].what, "copy_in");
  EXPECT_EQ(below->calls[1].offset, 596U);
  EXPECT_EQ(below->calls[1].source, source.data());
  EXPECT_EQ(below->calls[1].stream, StreamId{6});
  const char* const expected[] = {"destroy_stream", "synchronize_stream", "prepare_use", "finish_use", "record_use"};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(below->calls[2 + i].what, expected[i]);
    EXPECT_EQ(below->calls[2 + i].stream, StreamId{31 + i});
    if (i < 2) continue;
    EXPECT_EQ(below->calls[2 + i].block.generation, 5U);
    EXPECT_EQ(below->calls[2 + i].use, UseKind::write);
  }
  EXPECT_EQ(below->calls[7].mode, ReapMode::synchronize_next);
  EXPECT_EQ(below->calls[8].what, "trim");
  EXPECT_EQ(below->calls[8].bytes, 12U);
}

TEST_P(EveryDecorator, passes_answers_on_unchanged) {
  EXPECT_EQ(top->bytes_outstanding(), 4711U);
  EXPECT_EQ(top->memory_info().total, 8000U);
  EXPECT_EQ(top->memory_info().free, 5000U);
  EXPECT_EQ(top->memory_info().slack, 30U);
  EXPECT_EQ(top->footprint(1000), 1055U);
  EXPECT_TRUE(top->tracks_uses());
  EXPECT_TRUE(top->host_accessible());
  EXPECT_TRUE(top->reports_returns());
  EXPECT_EQ(top->device_uuid(), "GPU-recording");
  EXPECT_EQ(top->inner(), below.get());
  EXPECT_EQ(&bottom_of(*top), below.get());
  below->returns_reported = false;
  EXPECT_FALSE(top->reports_returns());
}

TEST_P(EveryDecorator, passes_budgets_sinks_and_the_reserved_flag_on_unless_it_is_the_budget) {
  if (GetParam().is_budget) GTEST_SKIP() << "global_device_budget_test.cpp";
  CountingSink sink;
  ASSERT_TRUE(top->allocate({.bytes = 8, .reserved = true}));
  ASSERT_TRUE(top->deallocate({.pointer = this, .bytes = 8, .returns_to = &sink}));
  ASSERT_TRUE(top->reserve(123));
  top->unreserve(45);
  EXPECT_EQ(top->budget_snapshot().value().limit_bytes, 90U);
  EXPECT_EQ(top->budget_snapshot().value().claimed_bytes, 40U);
  EXPECT_TRUE(below->calls.at(0).request.reserved);
  EXPECT_EQ(below->calls.at(1).block.returns_to, &sink);
  EXPECT_EQ(below->calls.at(2).bytes, 123U);
  EXPECT_EQ(below->calls.at(3).bytes, 45U);
}

INSTANTIATE_TEST_SUITE_P(stacks, EveryDecorator,
                         ::testing::Values(Stack{"Plain", [](auto below) { return decorate<PlainDecorator>(below).value(); }},
                                           Stack{"Fault", [](auto below) { return FaultResource::create(below).value(); }},
                                           Stack{"Logging", [](auto below) { return LoggingResource::create(below).value(); }},
                                           Stack{"Budget",
                                                 [](auto below) {
                                                   const auto device = Device::custom("recording", below).value();
                                                   return GlobalDeviceBudget::create(device, MemoryBudget::unlimited()).value();
                                                 },
                                                 true}),
                         [](auto const& tested) { return tested.param.name; });

// ── what may stand on what ──

TEST(Composition, refuses_no_inner_resource) {
  for (auto const& error : {decorate<PlainDecorator>(nullptr).error(), FaultResource::create(nullptr).error(),
                            LoggingResource::create(nullptr).error(),
                            GlobalDeviceBudget::create(null_device().value(), MemoryBudget::unlimited(), nullptr).error()}) {
    EXPECT_EQ(error.kind, ErrorKind::invalid_argument);
    EXPECT_THAT(error.message, HasSubstr("found no inner resource, expected one to stand on"));
  }
}

// A resource of the user's own that says that it decorates something.
class Claims final : public DeviceResource {
public:
  DeviceResource* next = nullptr;
  Result<Block> allocate(AllocRequest const&) override { return Block{}; }
  Result<void> deallocate(Block const&) override { return {}; }
  std::uint64_t bytes_outstanding() const noexcept override { return 0; }
  std::string_view name() const noexcept override { return "claims"; }
  DeviceResource* inner() const noexcept override { return next; }
};

TEST(Composition, refuses_a_resource_below_itself) {
  const auto turning = std::make_shared<Claims>();
  turning->next = turning.get();
  const auto refused = decorate<PlainDecorator>(turning);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(refused.error().message, HasSubstr("found 'claims' below itself, expected each resource once in a stack"));

  const auto one = std::make_shared<Claims>();
  const auto two = std::make_shared<Claims>();
  one->next = two.get();
  two->next = one.get();
  EXPECT_FALSE(FaultResource::create(one));
}

TEST(Composition, allows_thirty_two_layers_and_refuses_one_more) {
  std::shared_ptr<DeviceResource> top = std::make_shared<NullResource>();
  for (int layer = 2; layer <= 32; ++layer) {
    auto next = decorate<PlainDecorator>(top);
    ASSERT_TRUE(next) << layer;
    top = *next;
  }
  EXPECT_EQ(bottom_of(*top).name(), "null");
  const auto refused = decorate<PlainDecorator>(top);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("found 32 layers or more below it, expected at most 31"));
}

TEST(Composition, refuses_a_second_budget_anywhere_in_a_stack) {
  const auto device = null_device().value();
  const auto budget = GlobalDeviceBudget::create(device, MemoryBudget::with_limit(4096)).value();
  const auto between = FaultResource::create(budget).value();
  const auto refused = GlobalDeviceBudget::create(device, MemoryBudget::with_limit(4096), between);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(refused.error().message,
              HasSubstr("found another one below it, on 'account-null' with the budget 4 KiB, expected one in a stack"));
}

TEST(Composition, refuses_a_budget_on_a_stack_of_another_device) {
  const auto other = std::make_shared<NullResource>();
  const auto refused = GlobalDeviceBudget::create(null_device().value(), MemoryBudget::unlimited(), other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(refused.error().message, HasSubstr("ends in a resource 'null' of another device, expected the one of 'null'"));
}

// ── who hears of memory that came back ──

TEST(Returns, the_null_resource_reports_at_once) {
  NullResource null;
  CountingSink sink;
  ASSERT_TRUE(null.deallocate({.pointer = &sink, .bytes = 300, .returns_to = &sink}));
  EXPECT_EQ(sink.bytes(), 300U);
}

TEST(Returns, the_host_reports_at_once_and_only_frees_that_it_accepts) {
  const auto host = HostResource::create({.touch_memory = false}).value();
  CountingSink sink;
  auto block = host->allocate({.bytes = 300}).value();
  block.returns_to = &sink;
  host->faults().add({.operation = FaultOperation::deallocate});
  EXPECT_FALSE(host->deallocate(block));
  EXPECT_EQ(sink.calls(), 0);
  ASSERT_TRUE(host->deallocate(block));
  EXPECT_EQ(sink.bytes(), 300U);
  EXPECT_FALSE(host->deallocate(block)) << "a double free";
  EXPECT_EQ(sink.calls(), 1);
}

TEST(Returns, stream_ordered_frees_report_when_they_are_reaped_in_every_mode) {
  using namespace std::chrono_literals;
  const auto host = HostResource::create({.touch_memory = false, .stream_ordered = true, .free_delay = 10ns}).value();
  CountingSink sink;
  for (std::uint64_t const bytes : {1000U, 200U, 30U, 4U}) {
    auto block = host->allocate({.bytes = bytes}).value();
    block.returns_to = &sink;
    ASSERT_TRUE(host->deallocate(block));
  }
  EXPECT_EQ(sink.calls(), 0);
  EXPECT_EQ(host->reap_pending(ReapMode::query).value(), 0U);
  host->advance(10ns);
  EXPECT_EQ(host->reap_pending(ReapMode::query).value(), 1000U);
  EXPECT_EQ(sink.bytes(), 1000U);
  EXPECT_EQ(host->reap_pending(ReapMode::synchronize_next).value(), 200U);
  EXPECT_EQ(sink.bytes(), 1200U);
  EXPECT_EQ(host->reap_pending(ReapMode::synchronize).value(), 34U);
  EXPECT_EQ(sink.bytes(), 1234U);
}

TEST(Returns, pending_frees_that_a_host_leaves_behind_are_reported_when_it_ends) {
  CountingSink sink;
  {
    const auto host = HostResource::create({.touch_memory = false, .stream_ordered = true}).value();
    auto block = host->allocate({.bytes = 500}).value();
    ASSERT_TRUE(host->allocate({.bytes = 70}));  // live blocks vanish with the device: nobody was promised them
    block.returns_to = &sink;
    ASSERT_TRUE(host->deallocate(block));
  }
  EXPECT_EQ(sink.bytes(), 500U);
}

TEST(Returns, any_number_of_sinks_hear_of_their_own_bytes) {
  const auto host = HostResource::create({.touch_memory = false, .stream_ordered = true}).value();
  std::array<CountingSink, 20> sinks;
  for (std::size_t round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < sinks.size(); ++i) {
      auto block = host->allocate({.bytes = 100 + i}).value();
      block.returns_to = &sinks[i];
      ASSERT_TRUE(host->deallocate(block));
    }
  }
  auto silent = host->allocate({.bytes = 1}).value();
  ASSERT_TRUE(host->deallocate(silent));
  // 3 · (20 · 100 + 0 + 1 + … + 19) + 1
  EXPECT_EQ(host->reap_pending(ReapMode::synchronize).value(), 3 * (2000 + 190) + 1);
  for (std::size_t i = 0; i < sinks.size(); ++i) EXPECT_EQ(sinks[i].bytes(), 3 * (100 + i)) << i;
}

TEST(Returns, a_sum_without_room_for_one_more_sink_takes_nothing_of_it) {
  std::array<CountingSink, 9> sinks;
  ReturnedBytes returned;
  for (std::size_t i = 0; i < 8; ++i) EXPECT_TRUE(returned.add(&sinks[i], 10));
  EXPECT_TRUE(returned.add(&sinks[3], 5));
  EXPECT_FALSE(returned.was_full());
  EXPECT_FALSE(returned.add(&sinks[8], 10));
  EXPECT_TRUE(returned.was_full());
  returned.report();
  EXPECT_EQ(sinks[3].bytes(), 15U);
  EXPECT_EQ(sinks[3].calls(), 1);
  EXPECT_EQ(sinks[8].calls(), 0);
}

}  // namespace
}  // namespace headroom
