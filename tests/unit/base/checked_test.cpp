// Cases S05 and S64: sizes near 2^64 are found out before anything is compared with them.
#include <gtest/gtest.h>

#include "base/checked.hpp"

namespace headroom {
namespace {

TEST(CheckedAdd, answers_up_to_the_last_value_and_no_further) {
  EXPECT_EQ(checked_add(0, 0), 0U);
  EXPECT_EQ(checked_add(kMaxUint64 - 1, 1), kMaxUint64);
  EXPECT_EQ(checked_add(kMaxUint64, 0), kMaxUint64);
  EXPECT_EQ(checked_add(kMaxUint64, 1), std::nullopt);
  EXPECT_EQ(checked_add(1, kMaxUint64), std::nullopt);
  EXPECT_EQ(checked_add(kMaxUint64, kMaxUint64), std::nullopt);
}

TEST(CheckedSub, refuses_to_go_below_zero) {
  EXPECT_EQ(checked_sub(5, 5), 0U);
  EXPECT_EQ(checked_sub(5, 3), 2U);
  EXPECT_EQ(checked_sub(3, 5), std::nullopt);
}

TEST(CheckedMul, finds_typed_allocations_that_overflow) {
  EXPECT_EQ(checked_mul(std::uint64_t{1} << 61U, 8), std::nullopt);          // S64: exactly 2^64
  EXPECT_EQ(checked_mul((std::uint64_t{1} << 61U) - 1, 8), kMaxUint64 - 7);  // one element fewer
  EXPECT_EQ(checked_mul(kMaxUint64, 8), std::nullopt);                       // count = −1
  EXPECT_EQ(checked_mul(kMaxUint64, 1), kMaxUint64);
  EXPECT_EQ(checked_mul(kMaxUint64, 0), 0U);
  EXPECT_EQ(checked_mul(std::uint64_t{1} << 32U, std::uint64_t{1} << 32U), std::nullopt);
  EXPECT_EQ(checked_mul(24, 2'000U << 20U), 50'331'648'000U);  // S13: 24 × 2000 MiB
}

TEST(CheckedRoundUp, rounds_to_any_granularity) {
  EXPECT_EQ(checked_round_up(0, 512), 0U);
  EXPECT_EQ(checked_round_up(1, 512), 512U);
  EXPECT_EQ(checked_round_up(512, 512), 512U);
  EXPECT_EQ(checked_round_up(513, 512), 1'024U);
  EXPECT_EQ(checked_round_up(100, 30), 120U);
  EXPECT_EQ(checked_round_up(120, 30), 120U);
  EXPECT_EQ(checked_round_up(7, 1), 7U);
}

TEST(CheckedRoundUp, does_not_wrap_near_the_end) {  // S05: the rounding itself can wrap and then pass every test
  EXPECT_EQ(checked_round_up(kMaxUint64, 512), std::nullopt);
  EXPECT_EQ(checked_round_up(kMaxUint64 - 511, 512), kMaxUint64 - 511);
  EXPECT_EQ(checked_round_up(kMaxUint64 - 510, 512), std::nullopt);
  EXPECT_EQ(checked_round_up(kMaxUint64, kMaxUint64), kMaxUint64);
  EXPECT_EQ(checked_round_up(5, 0), std::nullopt);
}

static_assert(checked_add(2, 3) == std::uint64_t{5} && checked_round_up(3, 4) == std::uint64_t{4}, "usable in constants");

}  // namespace
}  // namespace headroom
