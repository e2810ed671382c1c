// collect() over built flight images: every value worked out by hand.
#include "metrics.hpp"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>

#include "families_support.hpp"
#include "flight_builder.hpp"

namespace headroom::exporter {
namespace {

using flight::FlightBuilder;
using flight::InFlight;

constexpr std::uint32_t kPoolCell = 3;

/// One manager "pool" on device 1 with a budget of 1000, 700 claimed, 600 allocated.
class Collect : public testing::Test {
protected:
  Collect() {
    auto& header = file_.header();
    header.lanes_used = 2;
    header.pid = 42;
    header.run = 0x0123456789abcdefULL;
    std::strcpy(header.program, "train");
    std::strcpy(header.version, "0.1.0");
    std::strcpy(header.host, "node-7");
    header.start_realtime_ns = 1'700'000'000'500'000'000ULL;
    file_.put_name(1, flight::EntryKind::device, 0, 1, "Test GPU");
    auto& pool = file_.open_ledger(kPoolCell, 2, "pool");
    pool.device_id = 1;
    pool.limit = 1000 | flight::kLimitEnforcing;
    pool.claim = 700;
    pool.alloc = 600;
    pool.peak = 650;
    pool.unspent = 100;
    pool.pressure = std::uint64_t{1};
  }

  [[nodiscard]] FamilyList families(CollectOptions const& options = {}) const { return collect(file_.view(), options); }
  [[nodiscard]] std::optional<double> value(std::string_view name, Wanted const& wanted = {}) const {
    return value_of(families(), name, wanted);
  }

  FlightBuilder file_;
};

TEST_F(Collect, labels_say_whose_figures_these_are) {
  const auto found = samples_of(families(), "allocated_bytes");
  ASSERT_EQ(found.size(), 1U);
  const Labels expected{{"process", "train"},
                        {"pid", "42"},
                        {"run", flight::short_run(0x0123456789abcdefULL)},
                        {"device", "1"},
                        {"manager", "pool"}};
  EXPECT_EQ(found.front().label, expected);
}

TEST_F(Collect, host_is_a_label_only_when_asked_for) {
  CollectOptions options;
  options.with_host = true;
  EXPECT_EQ(samples_of(families(options), "allocated_bytes", {{"host", "node-7"}}).size(), 1U);
  EXPECT_TRUE(samples_of(families(), "allocated_bytes", {{"host", "node-7"}}).empty());
}

TEST_F(Collect, gauges_of_a_budget) {
  EXPECT_EQ(value("budget_bytes"), 1000);
  EXPECT_EQ(value("budget_enforcing"), 1);
  EXPECT_EQ(value("allocated_bytes"), 600);
  EXPECT_EQ(value("claimed_bytes"), 700);
  EXPECT_EQ(value("remaining_bytes"), 300);
  EXPECT_EQ(value("over_budget_bytes"), 0);
  EXPECT_EQ(value("peak_bytes"), 650);
  EXPECT_EQ(value("reserved_unspent_bytes"), 100);
  EXPECT_EQ(value("sentinel_bytes"), 0);
  EXPECT_EQ(value("pressure_level"), 1);
}

TEST_F(Collect, a_budget_lowered_below_use_shows_by_how_much) {
  file_.ledger(kPoolCell).limit = 450 | flight::kLimitEnforcing;
  EXPECT_EQ(value("remaining_bytes"), 0);
  EXPECT_EQ(value("over_budget_bytes"), 250);
}

TEST_F(Collect, a_budget_of_nothing_is_shown_as_0) {
  file_.ledger(kPoolCell).limit = flight::kLimitEnforcing;
  EXPECT_EQ(value("budget_bytes"), 0);
}

TEST_F(Collect, an_unlimited_budget_is_absent_and_so_is_what_remains_of_it) {
  file_.ledger(kPoolCell).limit = flight::kLimitNone;
  EXPECT_EQ(value("budget_bytes"), std::nullopt);
  EXPECT_EQ(value("remaining_bytes"), std::nullopt);
  EXPECT_EQ(value("over_budget_bytes"), 0);
  EXPECT_EQ(value("budget_enforcing"), 0);
  EXPECT_EQ(value("allocated_bytes"), 600);
}

TEST_F(Collect, an_observed_budget_does_not_enforce) {
  file_.ledger(kPoolCell).limit = 1000;
  EXPECT_EQ(value("budget_bytes"), 1000);
  EXPECT_EQ(value("budget_enforcing"), 0);
}

TEST_F(Collect, the_peak_is_never_below_what_is_allocated) {
  file_.ledger(kPoolCell).peak = 10;
  EXPECT_EQ(value("peak_bytes"), 600);
}

TEST_F(Collect, counters_are_sums_over_lanes) {
  auto& first = file_.lane(0).counters[kPoolCell];
  first.allocations = 5;
  first.allocation_bytes = 900;
  first.size_histogram[8] = 5;  // [128, 256)
  auto& second = file_.lane(1).counters[kPoolCell];
  second.allocations = 2;
  second.frees = 3;
  second.allocation_bytes = 100;
  second.deallocation_bytes = 400;
  second.size_histogram[6] = 2;  // [32, 64)
  EXPECT_EQ(value("allocations_total"), 7);
  EXPECT_EQ(value("frees_total"), 3);
  EXPECT_EQ(value("live_allocations"), 4);
  EXPECT_EQ(value("allocation_bytes_total"), 1000);
  EXPECT_EQ(value("deallocation_bytes_total"), 400);
  const auto sizes = samples_of(families(), "allocation_size_bytes").at(0).histogram;
  EXPECT_EQ(sizes.sample_count, 7U);
  EXPECT_EQ(sizes.sample_sum, 1000);
  EXPECT_EQ(sizes.bucket[6].cumulative_count, 2U);
  EXPECT_EQ(sizes.bucket[7].cumulative_count, 2U);
  EXPECT_EQ(sizes.bucket[8].cumulative_count, 7U);
}

TEST_F(Collect, failures_by_reason_and_layer_exist_from_the_start) {
  file_.tallies(kPoolCell).refusals[static_cast<std::size_t>(ErrorKind::over_budget)][static_cast<std::size_t>(Layer::manager)] =
      17;
  file_.tallies(kPoolCell).refusals[static_cast<std::size_t>(ErrorKind::io)][static_cast<std::size_t>(Layer::runtime)] = 2;
  EXPECT_EQ(value("allocation_failures_total", {{"reason", "over_budget"}, {"layer", "manager"}}), 17);
  EXPECT_EQ(value("allocation_failures_total", {{"reason", "io"}, {"layer", "runtime"}}),
            2);  // unexpected, so shown when it happens
  EXPECT_EQ(value("allocation_failures_total", {{"reason", "device_out_of_memory"}, {"layer", "driver"}}), 0);
  EXPECT_EQ(value("allocation_failures_total", {{"reason", "parse"}}), std::nullopt);
  for (const char* reason : {"driver", "double_free", "unknown_pointer", "wrong_size", "wrong_owner", "use_after_free"}) {
    EXPECT_EQ(value("deallocation_failures_total", {{"reason", reason}}), 0) << reason;
  }
}

TEST_F(Collect, failed_frees_are_counted_and_their_bytes_shown) {
  file_.tallies(kPoolCell).free_failures[static_cast<std::size_t>(ErrorKind::double_free)] = 3;
  file_.ledger(kPoolCell).failed_free_bytes = 512;
  EXPECT_EQ(value("deallocation_failures_total", {{"reason", "double_free"}}), 3);
  EXPECT_EQ(value("deallocation_failure_bytes"), 512);
}

TEST_F(Collect, pressure_transitions_exist_for_every_pair_of_levels) {
  file_.tallies(kPoolCell).transitions[0][4] = 2;
  EXPECT_EQ(samples_of(families(), "pressure_transitions_total").size(), 20U);
  EXPECT_EQ(value("pressure_transitions_total", {{"from", "none"}, {"to", "critical"}}), 2);
  EXPECT_EQ(value("pressure_transitions_total", {{"from", "critical"}, {"to", "high"}}), 0);
}

TEST_F(Collect, a_device_account_is_no_row_among_managers) {
  auto& account = file_.open_ledger(5, 3, "device account");
  account.kind = 1;
  account.device_id = 1;
  account.limit = 5000 | flight::kLimitEnforcing;
  account.claim = 4000;
  account.alloc = 4000;
  account.pending_free_bytes = 300;
  EXPECT_EQ(value("device_account_pending_free_bytes", {{"device", "1"}}), 300);
  EXPECT_EQ(value("device_budget_bytes", {{"device", "1"}}), 5000);
  EXPECT_EQ(value("device_claimed_bytes", {{"device", "1"}}), 4000);
  EXPECT_EQ(value("allocated_bytes"), 600);                                          // the manager's, and only its
  EXPECT_EQ(samples_of(families(), "device_claimed_bytes").at(0).label.size(), 4U);  // process, pid, run, device
}

TEST_F(Collect, device_memory_is_shown_once_a_device_and_only_when_known) {
  EXPECT_EQ(value("device_total_bytes"), std::nullopt);
  file_.ledger(kPoolCell).device_total = 8000 + 1;
  auto& other = file_.open_ledger(6, 4, "other");
  other.device_id = 1;
  other.device_total = 8000 + 1;
  EXPECT_EQ(value("device_total_bytes", {{"device", "1"}}), 8000);
  EXPECT_EQ(value("device_free_bytes"), std::nullopt);
}

// Not a built image: what a manager of this process publishes by itself.
TEST_F(Collect, what_a_device_uses_outside_is_a_gauge_of_a_living_manager) {
  auto device =
      host_device({.total_bytes = 1 << 20, .context_overhead_bytes = 1 << 16, .touch_memory = false, .ordinal = 7}).value();
  auto manager = GpuMemoryManager::create(device, MemoryBudget::unlimited(), "living").value();
  const auto found = collect(flight::FlightView::of_this_process().value(), {});
  EXPECT_EQ(value_of(found, "device_total_bytes", {{"device", "7"}}), 1 << 20);
  EXPECT_EQ(value_of(found, "device_free_bytes", {{"device", "7"}}), (1 << 20) - (1 << 16));
  EXPECT_EQ(value_of(found, "device_used_outside_bytes", {{"device", "7"}}), 1 << 16);
}

TEST_F(Collect, two_managers_of_one_name_stay_two_series) {
  file_.open_ledger(6, 4, "pool").device_id = 1;
  file_.ledger(6).claim = 5;
  file_.ledger(6).alloc = 5;
  EXPECT_EQ(value("allocated_bytes", {{"manager", "pool"}}), 600);
  EXPECT_EQ(value("allocated_bytes", {{"manager", "#4 pool"}}), 5);
}

TEST_F(Collect, a_closed_manager_vanishes) {
  file_.ledger(kPoolCell).state = static_cast<std::uint64_t>(flight::LedgerState::closed);
  file_.ledger(kPoolCell).claim = 0;
  file_.ledger(kPoolCell).alloc = 0;
  EXPECT_TRUE(samples_of(families(), "allocated_bytes").empty());
  EXPECT_TRUE(samples_of(families(), "inflight_operations").empty());
}

TEST_F(Collect, operations_in_flight_are_counted_and_the_oldest_is_timed) {
  EXPECT_EQ(value("inflight_operations", {{"operation", "allocating"}}), 0);
  EXPECT_EQ(value("inflight_oldest_seconds", {{"operation", "freeing"}}), 0);
  for (const std::uint32_t lane : {0U, 1U}) {
    file_.lane(lane).header.owner = 100 + lane;
    file_.lane(lane).header.in_flight_ticks = 3'000'000'000ULL * (lane + 1);  // ticks are nanoseconds here
    file_.lane(lane).header.in_flight = pack_in_flight(InFlight::allocating, kPoolCell, 64);
  }
  CollectOptions options;
  options.monotonic_ns = 10'000'000'000ULL;
  const auto collected = families(options);
  EXPECT_EQ(value_of(collected, "inflight_operations", {{"operation", "allocating"}, {"manager", "pool"}}), 2);
  EXPECT_EQ(value_of(collected, "inflight_oldest_seconds", {{"operation", "allocating"}}), 7.0);
  EXPECT_EQ(value_of(collected, "inflight_operations", {{"operation", "spending"}}), 0);
}

TEST_F(Collect, the_recorder_speaks_for_itself) {
  file_.header().refused_no_lane = 1;
  file_.header().refused_reentrant = 2;
  file_.header().refused_early = 3;
  file_.header().tags_folded = 4;
  EXPECT_EQ(value("events_refused_total", {{"reason", "no_lane"}}), 1);
  EXPECT_EQ(value("events_refused_total", {{"reason", "reentrant"}}), 2);
  EXPECT_EQ(value("events_refused_total", {{"reason", "early"}}), 3);
  EXPECT_EQ(value("tags_folded_total"), 4);
  EXPECT_EQ(value("events_recorded_total"), 0);
  EXPECT_EQ(value("events_lost_total"), std::nullopt);  // nobody follows, so nobody knows
  CollectOptions options;
  options.events_lost = 9;
  EXPECT_EQ(value_of(families(options), "events_lost_total"), 9);
}

TEST_F(Collect, the_process_is_described) {
  EXPECT_EQ(value("build_info", {{"version", "0.1.0"}}), 1);
  EXPECT_EQ(value("process_start_time_seconds"), 1'700'000'000.5);
}

TEST_F(Collect, tags_that_become_one_name_become_one_series) {
  file_.put_name(10, flight::EntryKind::tag, 2, 0, "weights");
  file_.put_name(11, flight::EntryKind::tag, 2, 1, "a\x01");
  file_.put_name(12, flight::EntryKind::tag, 2, 2, "a\x02");
  file_.lane(0).tags[0].bytes = 300;
  file_.lane(0).tags[0].allocations = 4;
  file_.lane(0).tags[1].bytes = 100;
  file_.lane(1).tags[2].bytes = 200;
  EXPECT_EQ(value("tag_allocated_bytes", {{"tag", "weights"}}), 300);
  EXPECT_EQ(value("tag_allocations_total", {{"tag", "weights"}, {"manager", "pool"}}), 4);
  EXPECT_EQ(value("tag_allocated_bytes", {{"tag", "a\xEF\xBF\xBD"}}), 300);
}

}  // namespace
}  // namespace headroom::exporter
