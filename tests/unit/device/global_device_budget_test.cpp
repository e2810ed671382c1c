// The decorator: what it grants, refuses and gives back, and that every failure leaves the books as they were.
#include <headroom/device_account.hpp>

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/null_resource.hpp>
#include <headroom/tag.hpp>

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

TEST(DeviceBudget, grants_an_exact_fit_and_refuses_the_next_byte) {
  const auto stack = stack_of(kLimit3000);
  const auto block = stack.budget->allocate({.bytes = 3000});
  ASSERT_TRUE(block);
  EXPECT_EQ(stack.stats().claimed, 3000U);
  EXPECT_EQ(stack.stats().allocated, 3000U);
  EXPECT_EQ(stack.stats().peak, 3000U);
  EXPECT_EQ(stack.budget->account().remaining_bytes(), 0U);

  const auto refused = stack.budget->allocate({.bytes = 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().layer, Layer::device_account);
  EXPECT_EQ(refused.error().requested, 1U);
  EXPECT_EQ(refused.error().current, 3000U);
  EXPECT_EQ(refused.error().required, 3001U);
  EXPECT_EQ(refused.error().limit, 3000U);
  EXPECT_EQ(refused.error().peak, 3000U);
  EXPECT_EQ(stack.stats().claimed, 3000U) << "a refusal changes nothing";
  EXPECT_EQ(stack.stats().refusals, 1U);
  expect_balanced(stack.budget->account());

  ASSERT_TRUE(stack.budget->deallocate(*block));
  EXPECT_TRUE(stack.budget->allocate({.bytes = 3000}));
}

TEST(DeviceBudget, a_refusal_names_the_holders) {
  const auto stack = stack_of(MemoryBudget::with_limit(8000));
  static const AllocTag kWeights{"budget-test-weights"};
  static const AllocTag kCache{"budget-test-cache"};
  ASSERT_TRUE(stack.budget->allocate({.bytes = 2000, .tag = kWeights.id()}));
  ASSERT_TRUE(stack.budget->allocate({.bytes = 3000, .tag = kCache.id()}));
  ASSERT_TRUE(stack.budget->reserve(700));
  ASSERT_TRUE(stack.budget->reserve(300));
  const auto error = stack.budget->allocate({.bytes = 2001}).error();
  EXPECT_STREQ(error.holders[0].tag, "budget-test-cache");
  EXPECT_EQ(error.holders[0].bytes, 3000U);
  EXPECT_STREQ(error.holders[1].tag, "budget-test-weights");
  EXPECT_EQ(error.holders[1].bytes, 2000U);
  EXPECT_EQ(error.unspent_bytes, 1000U);
  EXPECT_EQ(error.unspent_reservations, 2U);
  EXPECT_EQ(error.current, 6000U);
  EXPECT_THAT(error.message, HasSubstr("account-gpu"));
  EXPECT_TRUE(stack.budget->allocate({.bytes = 2000}));
}

TEST(DeviceBudget, a_refusal_is_an_event_and_a_tally_of_the_account) {
  const auto stack = stack_of(kLimit3000);
  ASSERT_FALSE(stack.budget->allocate({.bytes = 3001}));
  const auto snapshot = test::snapshot_of(stack.budget->account());
  const auto by_kind = static_cast<std::size_t>(ErrorKind::over_budget);
  EXPECT_EQ(snapshot.refusals[by_kind][static_cast<std::size_t>(Layer::device_account)], 1U);
  EXPECT_EQ(snapshot.failures(), 1U);
}

TEST(DeviceBudget, zero_bytes_charge_nothing_and_hold_nothing) {
  const auto stack = stack_of(MemoryBudget::with_limit(0));
  const auto block = stack.budget->allocate({.bytes = 0});
  ASSERT_TRUE(block);
  EXPECT_EQ(block->pointer, nullptr);
  EXPECT_TRUE(stack.budget->deallocate(*block));
  EXPECT_FALSE(stack.budget->allocate({.bytes = 1})) << "a limit of 0 allows nothing";
  expect_empty(stack.budget->account());
}

TEST(DeviceBudget, requests_that_make_no_sense_are_refused_with_their_kind_and_booked) {
  const auto stack = stack_of(MemoryBudget::unlimited());
  EXPECT_EQ(stack.budget->allocate({.bytes = std::uint64_t{1} << 44}).error().kind, ErrorKind::overflow);
  EXPECT_EQ(stack.budget->allocate({.bytes = 1, .alignment = 3}).error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(stack.budget->deallocate({.pointer = stack.host.get(), .bytes = std::uint64_t{1} << 44}).error().kind,
            ErrorKind::wrong_size);
  EXPECT_EQ(stack.stats().refusals, 2U);
  expect_empty(stack.budget->account());
}

TEST(DeviceBudget, a_sum_beyond_sixteen_tebibytes_is_overflow_even_without_a_limit) {
  const auto device = null_device().value();
  const auto budget = GlobalDeviceBudget::create(device, MemoryBudget::unlimited()).value();
  const auto block = budget->allocate({.bytes = kLargestRequest}).value();
  const auto refused = budget->allocate({.bytes = 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::overflow);
  EXPECT_THAT(refused.error().message, HasSubstr("17592186044415 (16 TiB - 1) in all"));
  ASSERT_TRUE(budget->deallocate(block));
  expect_empty(budget->account());
}

TEST(DeviceBudget, an_observing_budget_counts_what_it_would_have_refused) {
  const auto stack = stack_of(MemoryBudget::observe(1000));
  ASSERT_TRUE(stack.budget->allocate({.bytes = 1000}));
  ASSERT_TRUE(stack.budget->allocate({.bytes = 1}));
  const auto snapshot = test::snapshot_of(stack.budget->account());
  EXPECT_EQ(snapshot.observed, 1U);
  EXPECT_EQ(snapshot.failures(), 0U);
  EXPECT_EQ(snapshot.claimed, 1001U);
}

// ── what the stack below refuses ──

TEST(DeviceBudget, a_refusal_below_is_passed_on_and_gives_the_claim_back) {
  const auto stack = stack_of(kLimit3000);
  stack.fault->faults().add({.operation = FaultOperation::allocate, .kind = ErrorKind::driver, .device_code = 700});
  const auto refused = stack.budget->allocate({.bytes = 3000});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::driver);
  EXPECT_EQ(refused.error().layer, Layer::driver);
  EXPECT_EQ(refused.error().device_code, 700);
  EXPECT_EQ(stack.stats().refusals, 1U);
  EXPECT_EQ(stack.stats().peak, 0U);
  expect_empty(stack.budget->account());
  EXPECT_TRUE(stack.budget->allocate({.bytes = 3000})) << "nothing of it is left";
}

TEST(DeviceBudget, exceptions_of_the_stack_below_become_errors_and_change_nothing) {
  const auto stack = stack_of(kLimit3000);
  for (bool const number : {false, true}) {
    stack.throwing->throw_a_number = number;
    stack.throwing->throw_on_allocate = true;
    const auto refused = stack.budget->allocate({.bytes = 3000});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::driver);
    EXPECT_EQ(refused.error().layer, Layer::resource);
    EXPECT_THAT(refused.error().message, HasSubstr(number ? "no std::exception" : "boom"));
    expect_empty(stack.budget->account());
    stack.throwing->throw_on_allocate = false;
    const auto block = stack.budget->allocate({.bytes = 3000}).value();

    stack.throwing->throw_on_deallocate = true;
    const auto kept = stack.budget->deallocate(block);
    ASSERT_FALSE(kept);
    EXPECT_EQ(kept.error().kind, ErrorKind::driver);
    EXPECT_EQ(stack.stats().allocated, 3000U);
    EXPECT_EQ(stack.stats().pending_free, 0U);
    expect_balanced(stack.budget->account());
    stack.throwing->throw_on_deallocate = false;
    ASSERT_TRUE(stack.budget->deallocate(block));
    expect_empty(stack.budget->account());
  }
}

TEST(DeviceBudget, a_refused_free_keeps_its_bytes_and_can_be_repeated) {
  for (auto const& options : {HostOptions{}, stream_ordered()}) {
    const auto stack = stack_of(kLimit3000, options);
    const auto block = stack.budget->allocate({.bytes = 3000}).value();
    stack.fault->faults().add({.operation = FaultOperation::deallocate, .kind = ErrorKind::driver});
    EXPECT_FALSE(stack.budget->deallocate(block));
    EXPECT_EQ(stack.stats().claimed, 3000U);
    EXPECT_EQ(stack.stats().pending_free, 0U);
    EXPECT_EQ(stack.stats().failed_frees, 1U);
    EXPECT_EQ(stack.stats().frees, 0U);
    EXPECT_FALSE(stack.budget->allocate({.bytes = 1}));
    expect_balanced(stack.budget->account());
    EXPECT_TRUE(stack.budget->deallocate(block));
    EXPECT_TRUE(stack.budget->reap_pending(ReapMode::synchronize));
    expect_empty(stack.budget->account());
  }
}

TEST(DeviceBudget, misuse_that_the_device_detects_leaves_the_books_alone) {
  const auto stack = stack_of(kLimit3000);
  auto block = stack.budget->allocate({.bytes = 1000}).value();
  auto wrong = block;
  wrong.bytes = 999;
  EXPECT_EQ(stack.budget->deallocate(wrong).error().kind, ErrorKind::wrong_size);
  wrong.bytes = 0;
  EXPECT_EQ(stack.budget->deallocate(wrong).error().kind, ErrorKind::wrong_size);
  EXPECT_EQ(stack.stats().allocated, 1000U);
  ASSERT_TRUE(stack.budget->deallocate(block));
  EXPECT_EQ(stack.budget->deallocate(block).error().kind, ErrorKind::double_free);
  expect_empty(stack.budget->account());
}

// ── pending frees ──

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

// ── reservations ──

TEST(DeviceReservation, is_claimed_at_once_and_spent_by_requests_that_say_so) {
  const auto stack = stack_of(kLimit3000);
  ASSERT_TRUE(stack.budget->reserve(2000));
  EXPECT_EQ(stack.stats().claimed, 2000U);
  EXPECT_EQ(stack.stats().allocated, 0U);
  EXPECT_EQ(stack.stats().unspent, 2000U);
  EXPECT_EQ(stack.stats().unspent_reservations, 1U);
  EXPECT_EQ(stack.stats().peak, 0U);
  EXPECT_EQ(stack.budget->budget_snapshot().value().claimed_bytes, 2000U);
  EXPECT_EQ(stack.budget->budget_snapshot().value().limit_bytes, 3000U);
  EXPECT_FALSE(stack.budget->allocate({.bytes = 1001}));

  const auto block = stack.budget->allocate({.bytes = 1500, .reserved = true});
  ASSERT_TRUE(block);
  EXPECT_EQ(stack.stats().claimed, 2000U) << "paid already";
  EXPECT_EQ(stack.stats().allocated, 1500U);
  EXPECT_EQ(stack.stats().unspent, 500U);
  EXPECT_EQ(stack.stats().unspent_reservations, 1U) << "the token is still there";
  stack.budget->unreserve(500);
  EXPECT_EQ(stack.stats().claimed, 1500U);
  EXPECT_EQ(stack.stats().unspent_reservations, 0U);
  ASSERT_TRUE(stack.budget->deallocate(*block));
  expect_empty(stack.budget->account());
}

TEST(DeviceReservation, ends_once_also_when_it_was_spent_to_the_last_byte) {
  const auto stack = stack_of(kLimit3000);
  ASSERT_TRUE(stack.budget->reserve(3000));
  const auto one = stack.budget->allocate({.bytes = 1000, .reserved = true}).value();
  const auto two = stack.budget->allocate({.bytes = 2000, .reserved = true}).value();
  EXPECT_EQ(stack.stats().unspent_reservations, 1U);
  stack.budget->unreserve(0);
  EXPECT_EQ(stack.stats().unspent_reservations, 0U);
  EXPECT_EQ(stack.stats().claimed, 3000U);
  ASSERT_TRUE(stack.budget->deallocate(one));
  ASSERT_TRUE(stack.budget->deallocate(two));
  expect_empty(stack.budget->account());
}

TEST(DeviceReservation, gets_its_bytes_back_from_a_request_that_failed_below) {
  const auto stack = stack_of(kLimit3000);
  ASSERT_TRUE(stack.budget->reserve(3000));
  stack.fault->faults().add({.operation = FaultOperation::allocate});
  EXPECT_EQ(stack.budget->allocate({.bytes = 1000, .reserved = true}).error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(stack.stats().unspent, 3000U);
  EXPECT_EQ(stack.stats().claimed, 3000U);
  EXPECT_EQ(stack.stats().allocated, 0U);
  stack.budget->unreserve(3000);
  expect_empty(stack.budget->account());
}

TEST(DeviceReservation, is_all_or_nothing_and_reaps_before_it_is_refused) {
  const auto stack = stack_of(kLimit3000, stream_ordered());
  const auto freed = stack.budget->allocate({.bytes = 1000}).value();
  const auto kept = stack.budget->allocate({.bytes = 500}).value();
  ASSERT_TRUE(stack.budget->deallocate(freed));
  const auto refused = stack.budget->reserve(2501);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().requested, 2501U);
  EXPECT_EQ(refused.error().required, 4001U);
  EXPECT_EQ(stack.stats().unspent_reservations, 0U);
  EXPECT_EQ(stack.stats().claimed, 1500U);
  ASSERT_TRUE(stack.budget->reserve(2500)) << "with the pending 1000";
  EXPECT_EQ(stack.stats().claimed, 3000U);
  EXPECT_EQ(stack.stats().pending_free, 0U);
  EXPECT_EQ(stack.budget->reserve(std::uint64_t{1} << 44).error().kind, ErrorKind::overflow);
  stack.budget->unreserve(2500);
  ASSERT_TRUE(stack.budget->deallocate(kept));
  ASSERT_TRUE(stack.budget->reap_pending(ReapMode::synchronize));
  expect_empty(stack.budget->account());
}

TEST(DeviceReservation, needs_a_budget_that_enforces) {
  for (auto const budget : {MemoryBudget::unlimited(), MemoryBudget::observe(1000)}) {
    const auto stack = stack_of(budget);
    EXPECT_FALSE(stack.budget->budget_snapshot());
    const auto refused = stack.budget->reserve(1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
    EXPECT_THAT(refused.error().message, HasSubstr("'" + budget.to_string() + "'"));
    expect_empty(stack.budget->account());
  }
}

TEST(DeviceReservation, cannot_be_spent_or_ended_where_there_is_none) {
  const auto stack = stack_of(kLimit3000);
  const auto refused = stack.budget->allocate({.bytes = 100, .reserved = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(refused.error().message, HasSubstr("found 0 unspent bytes on account-gpu, expected at least 100"));
  stack.budget->unreserve(0);
  stack.budget->unreserve(5);
  expect_empty(stack.budget->account());

  ASSERT_TRUE(stack.budget->reserve(50));
  EXPECT_FALSE(stack.budget->allocate({.bytes = 51, .reserved = true}));
  stack.budget->unreserve(51);
  EXPECT_EQ(stack.stats().unspent, 50U);
  EXPECT_EQ(stack.stats().unspent_reservations, 1U);
  stack.budget->unreserve(50);
  expect_empty(stack.budget->account());
}

TEST(DeviceReservation, the_stack_below_does_not_see_that_bytes_were_reserved_here) {
  const auto below = std::make_shared<test::RecordingResource>();
  below->uuid = "GPU-reserved-flag";
  const auto device = Device::custom("recording", below).value();
  const auto budget = GlobalDeviceBudget::create(device, kLimit3000).value();
  ASSERT_TRUE(budget->reserve(64));
  ASSERT_TRUE(budget->allocate({.bytes = 64, .reserved = true}));
  ASSERT_EQ(below->calls.size(), 1U) << "reservations touch nothing below";
  EXPECT_FALSE(below->calls[0].request.reserved);
}

}  // namespace
}  // namespace headroom
