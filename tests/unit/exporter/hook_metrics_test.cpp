// The samples of hooks, over built flight images: every value worked out by hand.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <headroom/guard.hpp>
#include <headroom/host_resource.hpp>

#include "families_support.hpp"
#include "flight_builder.hpp"
#include "metrics.hpp"

namespace headroom::exporter {
namespace {

using flight::FlightBuilder;

class HookMetrics : public testing::Test {
protected:
  HookMetrics() {
    file_.open_ledger(0, 1, "pool");
    file_.open_ledger(1, 2, "other pool");
  }
  flight::HookCell& put(std::uint32_t cell, std::uint32_t id, std::uint32_t ledger, std::string_view name) {
    file_.put_name(id, flight::EntryKind::hook, ledger, cell, name);
    auto& hook = file_.hook(cell);
    hook.directory_id = id;
    file_.header().hooks_used = cell + 1;
    return hook;
  }
  [[nodiscard]] FamilyList families() const {
    CollectOptions options;
    options.monotonic_ns = 9'000'000'000;
    return collect(file_.view(), options);
  }
  FlightBuilder file_;
};

TEST_F(HookMetrics, none_without_hooks) { EXPECT_TRUE(samples_of(families(), "hook_runs_total").empty()); }

TEST_F(HookMetrics, of_one_hook) {
  auto& hook = put(0, 10, 1, "cache");
  hook.runs = 4;
  hook.skips = 5;
  hook.busy_skips = 6;
  hook.errors = 1;
  hook.overruns = 2;
  hook.reported_bytes = 1000;
  hook.freed_bytes = 512;
  hook.duration_ns = 3'000'000'000;
  hook.duration_histogram[1] = 3;   // below 2 ns
  hook.duration_histogram[30] = 1;  // below 2^30 ns
  const auto found = families();
  const Wanted cache{{"manager", "pool"}, {"hook", "cache"}};
  EXPECT_EQ(value_of(found, "hook_runs_total", cache), 4);
  EXPECT_EQ(value_of(found, "hook_freed_bytes_total", cache), 512);
  EXPECT_EQ(value_of(found, "hook_reported_bytes_total", cache), 1000);
  EXPECT_EQ(value_of(found, "hook_errors_total", cache), 1);
  EXPECT_EQ(value_of(found, "hook_overruns_total", cache), 2);
  EXPECT_EQ(value_of(found, "hook_running_seconds", cache), 0);
  EXPECT_EQ(value_of(found, "hook_skips_total", {{"hook", "cache"}, {"reason", "overhead"}}), 5);
  EXPECT_EQ(value_of(found, "hook_skips_total", {{"hook", "cache"}, {"reason", "busy"}}), 6);
  const auto durations = samples_of(found, "hook_duration_seconds", cache).at(0).histogram;
  EXPECT_EQ(durations.sample_count, 4U);
  EXPECT_EQ(durations.sample_sum, 3.0);
  EXPECT_EQ(durations.bucket.at(1).cumulative_count, 3U);
  EXPECT_EQ(durations.bucket.at(1).upper_bound, 2e-9);
  EXPECT_EQ(durations.bucket.at(29).cumulative_count, 3U);
  EXPECT_EQ(durations.bucket.at(30).cumulative_count, 4U);
}

// The builder's clock: a tick is a nanosecond, and both begin at 0.
TEST_F(HookMetrics, one_that_runs_says_for_how_long) {
  put(0, 10, 1, "slow").running_since_ticks = 2'500'000'000;
  EXPECT_EQ(value_of(families(), "hook_running_seconds", {{"hook", "slow"}}), 6.5);
}

TEST_F(HookMetrics, of_one_name_are_added_up_and_managers_are_kept_apart) {
  put(0, 10, 1, "cache").runs = 1;
  put(1, 11, 1, "cache").runs = 2;
  put(2, 12, 2, "cache").runs = 4;
  const auto found = families();
  EXPECT_EQ(samples_of(found, "hook_runs_total").size(), 2U);
  EXPECT_EQ(value_of(found, "hook_runs_total", {{"manager", "pool"}}), 3);
  EXPECT_EQ(value_of(found, "hook_runs_total", {{"manager", "other pool"}}), 4);
}

TEST_F(HookMetrics, those_without_a_cell_belong_to_no_manager) {
  put(255, 10, 0, "other").runs = 7;
  const auto found = samples_of(families(), "hook_runs_total");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].counter.value, 7);
  for (auto const& label : found[0].label) EXPECT_NE(label.name, "manager");
}

TEST(HookMetricsOfGuards, no_counter_falls_while_a_hook_of_its_name_lives) {
  auto manager = GpuMemoryManager::create(host_device({.touch_memory = false}).value(), MemoryBudget::with_limit(100)).value();
  const auto held = manager.alloc<std::byte>(100).value();
  const auto guard_with_hook = [&] {
    auto guard = std::make_unique<MemoryGuard>(MemoryGuardBuilder(manager).build().value());
    EXPECT_TRUE(guard->register_hook({.name = "of two guards", .callback = [](HookContext const&) { return 3U; }}));
    return guard;
  };
  const auto run = [](MemoryGuard const& guard, int times) {
    for (int i = 0; i < times; ++i) EXPECT_FALSE(guard.safe_alloc_with_hooks<std::byte>(1));
  };
  const auto figures = [] {
    const auto found = collect(flight::FlightView::of_this_process().value(), {});
    std::vector<double> values;
    for (char const* const family : {"hook_runs_total", "hook_reported_bytes_total"}) {
      for (auto const& sample : samples_of(found, family, {{"hook", "of two guards"}})) values.push_back(sample.counter.value);
    }
    return values;
  };
  using Values = std::vector<double>;
  auto first = guard_with_hook();
  auto second = guard_with_hook();
  run(*first, 5);
  run(*second, 2);
  EXPECT_EQ(figures(), (Values{7, 21}));
  first.reset();
  EXPECT_EQ(figures(), (Values{7, 21}));
  run(*second, 1);
  EXPECT_EQ(figures(), (Values{8, 24}));
  auto third = guard_with_hook();
  EXPECT_EQ(figures(), (Values{8, 24}));
  run(*third, 1);
  second.reset();
  EXPECT_EQ(figures(), (Values{9, 27}));
  third.reset();
  EXPECT_EQ(figures(), Values{});  // none of the name is left
  auto fourth = guard_with_hook();
  EXPECT_EQ(figures(), (Values{0, 0}));
}

TEST_F(HookMetrics, promtool_is_silent) {
  put(0, 10, 1, "a\"b\\c\nd").runs = 1;
  if (!has_promtool()) GTEST_SKIP() << "promtool is not installed";
  EXPECT_EQ(promtool_says(text_of(families())), "");
}

}  // namespace
}  // namespace headroom::exporter
