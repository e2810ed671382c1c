// The samples of what guards did about shortages, over built flight images.
#include <gtest/gtest.h>

#include "families_support.hpp"
#include "flight_builder.hpp"
#include "metrics.hpp"

namespace headroom::exporter {
namespace {

TEST(GuardMetrics, are_there_with_zeros_and_then_with_the_ledgers_counts) {
  flight::FlightBuilder file;
  file.open_ledger(0, 1, "pool");
  auto found = collect(file.view(), {});
  const Wanted waiting{{"manager", "pool"}, {"policy", "wait_and_retry"}};
  EXPECT_EQ(value_of(found, "oom_policy_runs_total", waiting), 0);
  EXPECT_EQ(value_of(found, "oom_failures_total", {{"manager", "pool"}}), 0);

  auto& tallies = file.tallies(0);
  tallies.policy_runs[2] = 7;
  tallies.recoveries[1] = 3;
  tallies.recoveries[2] = 5;
  tallies.gave_up = 2;
  tallies.policy_waits = 6;
  tallies.policy_wait_ns = 1'500'000'000;
  tallies.checkpoints = 4;
  file.ledger(0).waiters = 9;
  found = collect(file.view(), {});
  EXPECT_EQ(value_of(found, "oom_policy_runs_total", waiting), 7);
  EXPECT_EQ(value_of(found, "oom_recoveries_total", waiting), 5);
  EXPECT_EQ(value_of(found, "oom_recoveries_total", {{"policy", "retry_after_free"}}), 3);
  EXPECT_EQ(value_of(found, "oom_recoveries_total", {{"policy", "fail"}}), 0);
  EXPECT_EQ(value_of(found, "oom_recoveries_total", {{"policy", "checkpoint_and_fail"}}), 0);
  EXPECT_EQ(value_of(found, "oom_failures_total", {{"manager", "pool"}}), 2);
  EXPECT_EQ(value_of(found, "oom_waiters", {}), 9);
  EXPECT_EQ(value_of(found, "oom_waits_total", {}), 6);
  EXPECT_EQ(value_of(found, "oom_wait_seconds_total", {}), 1.5);
  EXPECT_EQ(value_of(found, "oom_checkpoints_total", {}), 4);
}

}  // namespace
}  // namespace headroom::exporter
