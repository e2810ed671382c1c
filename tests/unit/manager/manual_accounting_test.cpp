// record_free and reset_tracking: judges that never move a counter, but for the peak.
#include "managers.hpp"

namespace headroom::test {
namespace {

TEST(RecordFree, of_nothing_succeeds_always) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  EXPECT_TRUE(manager.record_free(0));
  auto held = manager.alloc<std::byte>(10).value();
  EXPECT_TRUE(manager.record_free(0));
}

TEST(RecordFree, is_refused_while_anything_is_live_or_claimed) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto held = manager.alloc<std::byte>(100).value();
  EventWatch events;
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{100}, UINT64_MAX}) {
    auto refused = manager.record_free(bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
    EXPECT_EQ(refused.error().requested, bytes);
    EXPECT_EQ(refused.error().current, 100U);
  }
  ASSERT_TRUE(held.release());
  auto reservation = manager.reserve_bytes(50).value();
  EXPECT_EQ(manager.record_free(1).error().kind, ErrorKind::invalid_argument) << "claimed by a reservation";
  EXPECT_EQ(manager.claimed_bytes(), 50U);
  EXPECT_EQ(manager.peak_bytes(), 100U);
  EXPECT_EQ(manager.stats().refusals, 0U);
  EXPECT_EQ(manager.stats().frees, 1U);
  EXPECT_EQ(manager.alloc_count(), 1U);
  EXPECT_EQ(events.count(manager, flight::EventKind::refusal), 0U) << "no request was made";
}

TEST(RecordFree, when_idle_is_an_underflow) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto refused = manager.record_free(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::overflow);
  EXPECT_NE(refused.error().message.find("underflow"), std::string::npos);
  EXPECT_EQ(refused.error().current, 0U);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(manager.allocated_bytes(), 0U);
}

TEST(ResetTracking, resets_the_peak_only_when_nothing_is_live_or_claimed) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto held = manager.alloc<std::byte>(300).value();
  auto refused = manager.reset_tracking();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(refused.error().current, 300U);
  EXPECT_EQ(manager.peak_bytes(), 300U);
  ASSERT_TRUE(held.release());
  {
    auto reservation = manager.reserve_bytes(1).value();
    EXPECT_FALSE(manager.reset_tracking());
    EXPECT_EQ(manager.peak_bytes(), 300U);
  }
  EXPECT_TRUE(manager.reset_tracking());
  EXPECT_EQ(manager.peak_bytes(), 0U);
  EXPECT_EQ(manager.alloc_count(), 1U) << "the peak alone";
}

TEST(BudgetLimit, is_the_limit_in_force_or_absent) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  EXPECT_EQ(manager.budget_limit_bytes(), 1000U);
  manager.set_budget(MemoryBudget::observe(500));
  EXPECT_EQ(manager.budget_limit_bytes(), 500U);
  manager.set_budget(MemoryBudget::unlimited());
  EXPECT_FALSE(manager.budget_limit_bytes());
}

TEST(CheckBudget, knows_reservations_and_all_kinds_of_budget) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto reservation = manager.reserve_bytes(900).value();
  EXPECT_TRUE(manager.check_budget(100));
  auto refused = manager.check_budget(101);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(refused.error().current, 900U);
  EXPECT_EQ(refused.error().unspent_bytes, 900U);
  EXPECT_EQ(refused.error().unspent_reservations, 1U);
  EXPECT_EQ(manager.check_budget(UINT64_MAX).error().kind, ErrorKind::overflow);
  manager.set_budget(MemoryBudget::observe(1000));
  EXPECT_TRUE(manager.check_budget(101)) << "it refuses nothing";
  EXPECT_EQ(manager.check_budget(flight::kBytesMask - 899).error().kind, ErrorKind::overflow) << "the sum";
  EXPECT_EQ(manager.claimed_bytes(), 900U);
}

}  // namespace
}  // namespace headroom::test
