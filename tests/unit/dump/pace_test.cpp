// How often: once a minute, and soon again after a turn of which nothing came.
#include <gtest/gtest.h>

#include "dump/pace.hpp"

namespace headroom::test {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(Pace, gives_one_turn_a_minute) {
  dump::Pace pace;
  EXPECT_TRUE(pace.take_turn(100 * kSecond));
  EXPECT_FALSE(pace.take_turn(100 * kSecond));
  EXPECT_FALSE(pace.take_turn(160 * kSecond - 1));
  EXPECT_TRUE(pace.take_turn(160 * kSecond));
  EXPECT_FALSE(pace.take_turn(161 * kSecond));
}

TEST(Pace, gives_another_turn_five_seconds_after_one_that_failed) {
  dump::Pace pace;
  EXPECT_TRUE(pace.take_turn(100 * kSecond));
  pace.turn_failed(101 * kSecond);
  EXPECT_FALSE(pace.take_turn(106 * kSecond - 1));
  EXPECT_TRUE(pace.take_turn(106 * kSecond));
  EXPECT_FALSE(pace.take_turn(112 * kSecond));  // that one had no error
}

}  // namespace
}  // namespace headroom::test
