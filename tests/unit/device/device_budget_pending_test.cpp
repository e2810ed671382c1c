// Frees that are still under way at the device: they count, and a shortage takes them back before it refuses.
#include <headroom/device_account.hpp>

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_point.hpp"
#include "device_budgets.hpp"
#include "flight/recorder.hpp"

namespace headroom {
namespace {

using test::expect_balanced;
using test::expect_empty;
using test::stack_of;
using test::stream_ordered;
using ::testing::HasSubstr;

constexpr auto kLimit3000 = MemoryBudget::with_limit(3000);

TEST(DeviceBudget, a_stream_ordered_free_counts_until_it_is_reaped) {
  const auto stack = stack_of(kLimit3000, stream_ordered());
  const auto block = stack.budget->allocate({.bytes = 2000}).value();
  ASSERT_TRUE(stack.budget->deallocate(block));
  EXPECT_EQ(stack.stats().claimed, 2000U);
  EXPECT_EQ(stack.stats().allocated, 2000U);
  EXPECT_EQ(stack.stats().pending_free, 2000U);
  EXPECT_EQ(stack.stats().tag_bytes, 0U) << "nobody holds it any more";
  expect_balanced(stack.budget->account());
  EXPECT_EQ(stack.budget->reap_pending(ReapMode::synchronize).value(), 2000U);
  expect_empty(stack.budget->account());
}

TEST(DeviceBudget, a_shortage_takes_finished_frees_without_waiting) {
  using namespace std::chrono_literals;
  const auto stack = stack_of(kLimit3000, stream_ordered());
  const auto block = stack.budget->allocate({.bytes = 3000}).value();
  ASSERT_TRUE(stack.budget->deallocate(block));
  stack.host->advance(1us);  // the free's own delay
  EXPECT_TRUE(stack.budget->allocate({.bytes = 3000}));
  EXPECT_EQ(stack.host->now(), 1us) << "nobody waited";
  EXPECT_EQ(stack.stats().refusals, 0U);
}

TEST(DeviceBudget, a_shortage_waits_for_the_oldest_frees_and_for_no_more_than_it_needs) {
  const auto stack = stack_of(kLimit3000, stream_ordered());
  std::array<Block, 3> blocks;
  for (auto& block : blocks) block = stack.budget->allocate({.bytes = 1000}).value();
  for (auto const& block : blocks) ASSERT_TRUE(stack.budget->deallocate(block));
  EXPECT_EQ(stack.stats().pending_free, 3000U);
  ASSERT_TRUE(stack.budget->allocate({.bytes = 1000}));
  EXPECT_EQ(stack.stats().pending_free, 2000U);
  EXPECT_EQ(stack.stats().claimed, 3000U);
  ASSERT_TRUE(stack.budget->allocate({.bytes = 1500}));
  EXPECT_EQ(stack.stats().pending_free, 0U) << "both of the rest";
  EXPECT_EQ(stack.stats().claimed, 2500U);
  expect_balanced(stack.budget->account());
}

TEST(DeviceBudget, a_request_that_pending_frees_cannot_help_waits_for_none) {
  using namespace std::chrono_literals;
  const auto stack = stack_of(kLimit3000, stream_ordered());
  const auto freed = stack.budget->allocate({.bytes = 1000}).value();
  ASSERT_TRUE(stack.budget->allocate({.bytes = 2000}));
  ASSERT_TRUE(stack.budget->deallocate(freed));
  const auto refused = stack.budget->allocate({.bytes = 1001});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("1000 B in pending frees"));
  EXPECT_EQ(stack.host->now(), 0us);
  EXPECT_EQ(stack.stats().pending_free, 1000U);
  EXPECT_EQ(stack.stats().claimed, 3000U);
  EXPECT_TRUE(stack.budget->allocate({.bytes = 1000})) << "exactly what is pending";
}

TEST(DeviceBudget, a_tight_loop_at_exactly_the_limit_is_never_refused) {
  const auto stack = stack_of(kLimit3000, stream_ordered());
  for (int round = 0; round < 100'000; ++round) {
    const auto block = stack.budget->allocate({.bytes = 3000});
    ASSERT_TRUE(block) << round << ": " << block.error().to_string();
    ASSERT_TRUE(stack.budget->deallocate(*block));
  }
  EXPECT_EQ(stack.stats().refusals, 0U);
  EXPECT_EQ(stack.stats().allocations, 100'000U);
  EXPECT_EQ(stack.stats().peak, 3000U);
  ASSERT_TRUE(stack.budget->reap_pending(ReapMode::synchronize));
  expect_empty(stack.budget->account());
}

TEST(DeviceBudget, a_reap_that_fails_is_told_with_the_refusal) {
  const auto stack = stack_of(kLimit3000, stream_ordered());
  const auto block = stack.budget->allocate({.bytes = 3000}).value();
  ASSERT_TRUE(stack.budget->deallocate(block));
  stack.throwing->throw_on_reap = true;
  const auto refused = stack.budget->allocate({.bytes = 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_THAT(refused.error().message, HasSubstr("finishing them failed: "));
  EXPECT_THAT(refused.error().message, HasSubstr("boom"));
  stack.throwing->throw_on_reap = false;
  EXPECT_TRUE(stack.budget->allocate({.bytes = 1}));
  expect_balanced(stack.budget->account());
}

TEST(DeviceBudget, a_return_wakes_those_who_wait_and_lowers_the_pressure) {
  const auto stack = stack_of(kLimit3000, stream_ordered());
  const auto block = stack.budget->allocate({.bytes = 3000}).value();
  auto& cell = flight::recorder.ledgers[stack.budget->account().ledger_cell().value()];
  EXPECT_EQ(test::snapshot_of(stack.budget->account()).pressure, PressureLevel::critical);
  ASSERT_TRUE(stack.budget->deallocate(block));
  EXPECT_EQ(test::snapshot_of(stack.budget->account()).pressure, PressureLevel::critical) << "the bytes are not back yet";
  cell.waiters.fetch_add(1, std::memory_order_seq_cst);
  const auto epoch = cell.epoch.load(std::memory_order_seq_cst);
  ASSERT_TRUE(stack.budget->reap_pending(ReapMode::synchronize));
  EXPECT_EQ(cell.epoch.load(std::memory_order_seq_cst), epoch + 1);
  cell.waiters.fetch_sub(1, std::memory_order_seq_cst);
  EXPECT_EQ(test::snapshot_of(stack.budget->account()).pressure, PressureLevel::none);
}

// A device whose frees are brought back by somebody else: reaping finds nothing until that happens.
class BroughtBack final : public DeviceResource {
public:
  int empty_reaps = 0;  ///< how often reaping still comes back with nothing; below 0: always
  Result<Block> allocate(AllocRequest const& request) override {
    return Block{.pointer = this, .bytes = request.bytes, .alignment = request.alignment};
  }
  Result<void> deallocate(Block const& block) override {
    freed_ = block;
    return {};
  }
  Result<std::uint64_t> reap_pending(ReapMode mode) override {
    ++reaps;
    if (mode == ReapMode::query || empty_reaps < 0 || empty_reaps-- > 0 || freed_.bytes == 0) return 0;
    const Block back = std::exchange(freed_, {});
    back.returns_to->returned(back.bytes);
    return back.bytes;
  }
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override { return 0; }
  [[nodiscard]] bool reports_returns() const noexcept override { return true; }
  [[nodiscard]] std::string_view name() const noexcept override { return "brought back"; }
  int reaps = 0;

private:
  Block freed_{};
};

TEST(DeviceBudget, a_shortage_waits_for_frees_that_others_are_bringing_back) {
  const auto below = std::make_shared<BroughtBack>();
  const auto budget = GlobalDeviceBudget::create(Device::custom("slow", below).value(), kLimit3000).value();
  const auto block = budget->allocate({.bytes = 3000}).value();
  ASSERT_TRUE(budget->deallocate(block));
  below->empty_reaps = 70;  // more than are only yielded for
  const auto next = budget->allocate({.bytes = 2000});
  ASSERT_TRUE(next) << next.error().to_string();
  EXPECT_EQ(below->reaps, 1 + 70 + 1) << "a query, the empty ones, and the one that brought it";
  ASSERT_TRUE(budget->deallocate(*next));
  ASSERT_TRUE(budget->reap_pending(ReapMode::synchronize));
}

TEST(DeviceBudget, a_wait_for_frees_that_nobody_brings_back_is_bounded) {
  const auto below = std::make_shared<BroughtBack>();
  const auto budget = GlobalDeviceBudget::create(Device::custom("stuck", below).value(), kLimit3000).value();
  const auto block = budget->allocate({.bytes = 3000}).value();
  ASSERT_TRUE(budget->deallocate(block));
  below->empty_reaps = -1;
  const auto refused = budget->allocate({.bytes = 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_THAT(refused.error().message, HasSubstr("2.93 KiB in pending frees"));
  EXPECT_EQ(budget->account().claimed_bytes(), 3000U);
  below->empty_reaps = 0;
  ASSERT_TRUE(budget->reap_pending(ReapMode::synchronize));
  expect_empty(budget->account());
}

// A free that becomes pending in the middle of a refused claim may be all that the request needs.
TEST(DeviceBudget, a_free_that_becomes_pending_during_a_claim_is_not_overlooked) {
  if (!kTestPoints) GTEST_SKIP() << "a build without test points";
  static test::BudgetStack const* stack = nullptr;
  static Block held;
  static int retries = 0;
  const auto made = stack_of(kLimit3000, stream_ordered());
  stack = &made;
  held = made.budget->allocate({.bytes = 1000}).value();
  retries = 0;
  // Inside a request of 500, whose claim is in flight: so a refused claim beside it looks again, three times each.
  Result<Block> inner = Block{};
  int depth = 0;
  made.watching->in_allocate = [&] {
    if (++depth != 1) return;
    test_point_handler.store(
        [](TestPoint point) noexcept {
          // The first claim's three looks, and the first look of the one that has read the pending bytes.
          if (point != TestPoint::claim_before_retry || ++retries != 4) return;
          EXPECT_TRUE(stack->budget->deallocate(held));
        },
        std::memory_order_release);
    inner = made.budget->allocate({.bytes = 2500});
    test_point_handler.store(nullptr, std::memory_order_release);
  };
  const auto outer = made.budget->allocate({.bytes = 500}).value();
  ASSERT_TRUE(inner) << inner.error().to_string();
  EXPECT_GE(retries, 4);
  EXPECT_EQ(made.stats().claimed, 3000U);
  ASSERT_TRUE(made.budget->deallocate(*inner));
  ASSERT_TRUE(made.budget->deallocate(outer));
  ASSERT_TRUE(made.budget->reap_pending(ReapMode::synchronize));
  expect_empty(made.budget->account());
}

// ── a resource below that does not report returns ──

class Silent final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "silent";
  using ResourceDecorator::ResourceDecorator;
  Result<void> deallocate(Block const& block) override {
    EXPECT_EQ(block.returns_to, nullptr) << "nobody may report what nobody promised";
    return ResourceDecorator::deallocate(block);
  }
  [[nodiscard]] bool reports_returns() const noexcept override { return false; }
};

TEST(DeviceBudget, bytes_of_a_resource_that_does_not_report_returns_come_back_with_the_free) {
  const auto host = test::host_of(stream_ordered());
  const auto device = Device::custom("silent", host).value();
  const auto budget = GlobalDeviceBudget::create(device, kLimit3000, decorate<Silent>(host).value()).value();
  for (int round = 0; round < 3; ++round) {
    const auto block = budget->allocate({.bytes = 3000}).value();
    ASSERT_TRUE(budget->deallocate(block));
    expect_empty(budget->account());
  }
  ASSERT_TRUE(budget->reap_pending(ReapMode::synchronize));
  expect_empty(budget->account());
}

}  // namespace
}  // namespace headroom
