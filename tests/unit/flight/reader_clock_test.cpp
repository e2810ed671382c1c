// Ticks to nanoseconds.
#include <gtest/gtest.h>

#include "flight_builder.hpp"

namespace headroom::flight {
namespace {

constexpr auto kMost = ~std::uint64_t{0};

TEST(FlightClock, runs_at_the_nominal_rate_around_a_single_sync) {
  ClockMap const clock{2'000'000'000, {{1000, 500, 1'000'000}}};  // half a nanosecond a tick
  EXPECT_EQ(clock.realtime_ns(1000), 1'000'000U);
  EXPECT_EQ(clock.realtime_ns(1200), 1'000'100U);
  EXPECT_EQ(clock.realtime_ns(800), 999'900U);
  EXPECT_EQ(clock.monotonic_ns(1200), 600U);
  EXPECT_EQ(clock.monotonic_ns(0), 0U);
  EXPECT_EQ(clock.duration_ns(3), 1U);
}

TEST(FlightClock, draws_straight_lines_between_syncs_given_in_any_order) {
  ClockMap const clock{1'000'000'000, {{3000, 0, 9000}, {1000, 0, 5000}, {2000, 0, 6000}}};
  EXPECT_EQ(clock.realtime_ns(1500), 5500U);  // slope 1
  EXPECT_EQ(clock.realtime_ns(2500), 7500U);  // slope 3
  EXPECT_EQ(clock.realtime_ns(3000), 9000U);
  EXPECT_EQ(clock.realtime_ns(3010), 9010U);  // nominal again
  EXPECT_EQ(clock.realtime_ns(990), 4990U);
}

TEST(FlightClock, follows_a_realtime_that_was_set_back) {
  ClockMap const clock{1'000'000'000, {{0, 0, 10'000}, {100, 100, 4000}}};
  EXPECT_EQ(clock.realtime_ns(50), 7000U);
  EXPECT_EQ(clock.monotonic_ns(50), 50U);
}

TEST(FlightClock, survives_hostile_numbers) {
  ClockMap const empty{0, {}};
  EXPECT_EQ(empty.realtime_ns(7), 7U);
  ClockMap const fast{1, {{0, kMost, kMost}, {0, 3, 3}, {kMost, 0, kMost}}};
  EXPECT_EQ(fast.realtime_ns(5), kMost);
  EXPECT_EQ(fast.monotonic_ns(kMost), 0U);
  EXPECT_EQ(fast.monotonic_ns(kMost / 2), kMost - kMost / 2);
  EXPECT_EQ(fast.duration_ns(kMost), kMost);
  ClockMap const late{1, {{kMost, kMost, 5}}};
  EXPECT_EQ(late.realtime_ns(0), 0U);
}

TEST(FlightClock, takes_the_whole_syncs_of_a_file_and_the_start) {
  FlightBuilder file;
  file.header().start_ticks = 100;
  file.header().start_realtime_ns = 1'000'000;
  auto const put = [&](std::uint32_t index, std::uint64_t number, std::uint64_t ticks, std::uint64_t realtime_ns) {
    file.sync(index).number = number;
    file.sync(index).ticks = ticks;
    file.sync(index).realtime_ns = realtime_ns;
  };
  auto const count = file.region(Region::clock_syncs).count;
  put(0, 1 + count, 1100, 1'003'000);  // sync number `count`: the second lap
  put(1, 2, 600, 1'002'000);
  put(2, 0, 700, 5);   // being written
  put(3, 99, 800, 6);  // a number that does not belong here
  auto const view = file.view();
  EXPECT_EQ(view.clock().realtime_ns(350), 1'001'000U);
  EXPECT_EQ(view.clock().realtime_ns(850), 1'002'500U);
  EXPECT_EQ(view.process().last_activity_realtime_ns, 1'003'000U);
}

}  // namespace
}  // namespace headroom::flight
