// What a budget admits and refuses, and what a refusal leaves behind.
#include <cstdint>
#include <vector>

#include "managers.hpp"

namespace headroom::test {
namespace {

using Buffer = TrackedBuffer<std::byte>;

TEST(Budget, admits_an_exact_fit_and_refuses_the_next_byte) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto whole = manager.alloc<std::byte>(1000);
  ASSERT_TRUE(whole);
  EXPECT_EQ(manager.remaining_bytes(), 0U);
  auto one_more = manager.alloc<std::byte>(1);
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(one_more.error().layer, Layer::manager);
}

TEST(Budget, refusal_carries_every_figure_and_changes_nothing) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  const AllocTag weights{"refusal-weights"};
  auto held = manager.alloc<std::byte>(700, weights).value();
  const auto refused = manager.alloc<std::byte>(301);
  ASSERT_FALSE(refused);
  Error const& error = refused.error();
  EXPECT_EQ(error.requested, 301U);
  EXPECT_EQ(error.current, 700U);
  EXPECT_EQ(error.required, 1001U);
  EXPECT_EQ(error.limit, 1000U);
  EXPECT_EQ(error.peak, 700U);
  EXPECT_FALSE(error.required_is_clamped);
  EXPECT_STREQ(error.holders[0].tag, "refusal-weights");
  EXPECT_EQ(error.holders[0].bytes, 700U);
  EXPECT_NE(error.to_string().find("refusal-weights"), std::string::npos) << error.to_string();

  EXPECT_EQ(manager.allocated_bytes(), 700U);
  EXPECT_EQ(manager.claimed_bytes(), 700U);
  EXPECT_EQ(manager.peak_bytes(), 700U);
  EXPECT_EQ(manager.stats().refusals, 1U);
  EXPECT_TRUE(manager.audit().clean()) << manager.audit().to_string();
}

TEST(Budget, a_freed_gap_is_refilled_exactly) {
  auto manager = null_manager(MemoryBudget::with_limit(900));
  auto a = manager.alloc<std::byte>(300).value();
  auto b = manager.alloc<std::byte>(300).value();
  auto c = manager.alloc<std::byte>(300).value();
  ASSERT_TRUE(b.release());
  EXPECT_FALSE(manager.alloc<std::byte>(301));
  EXPECT_TRUE(manager.alloc<std::byte>(300));
}

TEST(Budget, of_zero_allows_only_empty_requests) {
  auto manager = null_manager(MemoryBudget::with_limit(0));
  EXPECT_FALSE(manager.alloc<std::byte>(1));
  const auto empty = manager.alloc<std::byte>(0);
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->data(), nullptr);
  EXPECT_EQ(manager.pressure_level(), PressureLevel::critical);
}

TEST(Budget, unlimited_refuses_only_what_no_ledger_can_hold) {
  auto manager = null_manager(MemoryBudget::unlimited());
  EXPECT_EQ(manager.remaining_bytes(), std::nullopt);
  auto most = manager.alloc<std::byte>((std::uint64_t{1} << 44) - 1);
  ASSERT_TRUE(most) << most.error().to_string();
  const auto beyond = manager.alloc<std::byte>(1);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().kind, ErrorKind::overflow);
  EXPECT_EQ(manager.pressure_level(), PressureLevel::none);
}

TEST(Budget, observe_counts_what_it_would_have_refused_and_refuses_nothing) {
  auto manager = null_manager(MemoryBudget::observe(1000));
  std::vector<Buffer> held;
  for (int i = 0; i < 3; ++i) held.push_back(manager.alloc<std::byte>(400).value());
  held.push_back(manager.alloc<std::byte>(400).value());
  EXPECT_EQ(manager.allocated_bytes(), 1600U);
  EXPECT_EQ(manager.stats().observed_refusals, 2U);  // 800 + 400 and 1200 + 400
  EXPECT_EQ(manager.stats().refusals, 0U);
  EXPECT_EQ(manager.pressure_level(), PressureLevel::critical);
  const auto seen = snapshot_of(manager);
  EXPECT_FALSE(seen.enforcing);
  EXPECT_EQ(seen.observed, 2U);
  EXPECT_EQ(seen.over_budget(), 600U);
}

TEST(Budget, from_device_memory_is_four_fifths_rounded_down) {
  EXPECT_EQ(MemoryBudget::from_device_memory(1001).limit_bytes(), 800U);
  EXPECT_EQ(MemoryBudget::from_device_memory(~std::uint64_t{0}).limit_bytes(), 14757395258967641292U);
}

TEST(Budget, above_the_device_works_as_the_device) {
  auto host = host_manager(MemoryBudget::with_limit(std::uint64_t{10} << 30),
                           {.total_bytes = std::uint64_t{1} << 30, .touch_memory = false});
  EXPECT_EQ(host.manager.budget().limit_bytes(), std::uint64_t{1} << 30);
  EXPECT_FALSE(events_of(flight::EventKind::budget).empty());
}

TEST(Budget, lowered_below_use_takes_nothing_away_and_grants_nothing) {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  auto held = manager.alloc<std::byte>(800).value();
  manager.set_budget(MemoryBudget::with_limit(500));
  EXPECT_EQ(manager.allocated_bytes(), 800U);
  EXPECT_EQ(manager.remaining_bytes(), 0U);  // never a wrapped number
  EXPECT_EQ(snapshot_of(manager).over_budget(), 300U);
  EXPECT_EQ(manager.pressure_level(), PressureLevel::critical);
  EXPECT_FALSE(manager.alloc<std::byte>(1));
  ASSERT_TRUE(held.release());
  EXPECT_TRUE(manager.alloc<std::byte>(500));
}

TEST(Budget, check_looks_and_takes_no_claim) {
  auto manager = null_manager(MemoryBudget::with_limit(100));
  EXPECT_TRUE(manager.check_budget(100));
  const auto over = manager.check_budget(101);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().kind, ErrorKind::over_budget);
  EXPECT_EQ(over.error().required, 101U);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  EXPECT_EQ(manager.stats().refusals, 0U);
}

struct HostileSize {
  std::uint64_t count;
  bool eight_byte_elements;
};

class HostileSizes : public ::testing::TestWithParam<HostileSize> {};

TEST_P(HostileSizes, are_overflow_before_anything_is_touched) {
  auto manager = null_manager(MemoryBudget::with_limit(std::uint64_t{1} << 30));
  const auto [count, wide] = GetParam();
  const auto kind = wide ? manager.alloc<std::uint64_t>(count).map_error([](Error const& e) { return e.kind; }).error()
                         : manager.alloc<std::byte>(count).map_error([](Error const& e) { return e.kind; }).error();
  EXPECT_EQ(kind, ErrorKind::overflow);
  EXPECT_EQ(manager.claimed_bytes(), 0U);
  const auto refusals = snapshot_of(manager).refusals;
  EXPECT_EQ(refusals[static_cast<std::size_t>(ErrorKind::overflow)][static_cast<std::size_t>(Layer::request)], 1U);
}

INSTANTIATE_TEST_SUITE_P(NearTheEndOfSixtyFourBits, HostileSizes,
                         ::testing::Values(HostileSize{SIZE_MAX, false}, HostileSize{SIZE_MAX - 510, false},
                                           HostileSize{SIZE_MAX / 2 + 1, false}, HostileSize{std::uint64_t{1} << 44, false},
                                           HostileSize{std::uint64_t{1} << 61, true},
                                           HostileSize{(std::uint64_t{1} << 61) - 1, true}));

}  // namespace
}  // namespace headroom::test
