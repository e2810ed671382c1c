// Random programs of threads, hooks, listeners, policies and faults over one guard, under a scheduler that owns every turn. Each seed
// is one program and one schedule. See schedule.hpp for what it finds beside broken books.
//
//   HEADROOM_STRESS_SEEDS=10000 stress_guard --gtest_filter='GuardSimulator.*'    so many seeds instead of some hundreds
//   HEADROOM_SEED=4711 stress_guard --gtest_filter='GuardSimulator.*'             this seed
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>

#include <gtest/gtest.h>

#include "scale.hpp"
#include "schedule.hpp"
#include "simulated_world.hpp"

namespace headroom::test {
namespace {

std::optional<std::uint64_t> number_from(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

constexpr bool kSanitized =
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    true;
#else
    false;
#endif

struct Sums {
  std::uint64_t operations = 0, grants = 0, failures = 0, recoveries = 0, waits = 0, hook_runs = 0, hook_throws = 0,
                checkpoints = 0, notices = 0, released = 0, device_refusals = 0, steps = 0, switches = 0, sleeps = 0,
                timeouts = 0;
};

// One program to its end; the hash of its schedule.
std::uint64_t simulate(Schedule& schedule, std::uint64_t seed, Sums& sums) {
  SimulatedWorld world{schedule, seed};
  schedule.on_all_asleep = [&] { world.check_sleepers(); };
  schedule.describe = [&] { return world.describe(); };
  std::vector<std::function<void()>> bodies;
  for (std::size_t i = 0; i < world.actors(); ++i) bodies.emplace_back([&world, i] { world.act(i); });
  const std::uint64_t hash = schedule.run(seed, bodies);
  world.finish();
  schedule.on_all_asleep = {};
  schedule.describe = {};

  const GuardStats stats = world.stats();
  Counted const& counted = world.counted();
  sums.operations += counted.operations;
  sums.grants += counted.grants;
  sums.failures += counted.failures;
  sums.recoveries += stats.recoveries;
  sums.waits += stats.waits;
  sums.hook_runs += counted.hook_runs;
  sums.hook_throws += counted.hook_throws;
  sums.checkpoints += counted.checkpoints;
  sums.notices += counted.notices;
  sums.released += counted.released;
  sums.device_refusals += world.device().refusals;
  sums.steps += schedule.totals().steps;
  sums.switches += schedule.totals().switches;
  sums.sleeps += schedule.totals().sleeps;
  sums.timeouts += schedule.totals().timeouts;
  return hash;
}

void expect_no_failure_of(std::uint64_t seed) {
  if (!::testing::Test::HasFailure()) return;
  std::cout << "failed with seed " << seed << "; again with HEADROOM_SEED=" << seed
            << " stress_guard --gtest_filter='GuardSimulator.*'" << std::endl;
}

TEST(GuardSimulator, random_programs_end_without_deadlock_and_with_balanced_books) {
  if (!kTestPoints) GTEST_SKIP() << "built without test points";
  const auto only = number_from("HEADROOM_SEED");
  const std::uint64_t first = only.value_or(1);
  const std::uint64_t count = only ? 1 : number_from("HEADROOM_STRESS_SEEDS").value_or(scaled(kSanitized ? 150 : 800));
  Schedule schedule;
  Sums sums;
  std::uint64_t done = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (; done < count && !HasFailure(); ++done) {
    simulate(schedule, first + done, sums);
    expect_no_failure_of(first + done);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::cout << "[ simulator ] seeds " << first << " to " << first + done - 1 << ": " << sums.operations << " operations, "
            << sums.grants << " granted, " << sums.failures << " failed, " << sums.recoveries << " recovered, " << sums.waits
            << " waits, " << sums.hook_runs << " hook runs (" << sums.hook_throws << " threw), " << sums.checkpoints
            << " callbacks, " << sums.notices << " notices, " << sums.device_refusals << " refusals of the device; " << sums.steps
            << " steps, " << sums.switches << " turns handed over, " << sums.sleeps << " sleeps, " << sums.timeouts
            << " timeouts; " << took.count() << " s" << std::endl;
  if (only || HasFailure()) return;
  // What it is there to try was tried.
  for (const std::uint64_t sum : {sums.recoveries, sums.waits, sums.hook_runs, sums.hook_throws, sums.checkpoints, sums.notices,
                                  sums.released, sums.device_refusals, sums.switches, sums.sleeps, sums.timeouts}) {
    EXPECT_GT(sum, 0U);
  }
}

TEST(GuardSimulator, the_same_seed_is_the_same_schedule) {
  if (!kTestPoints) GTEST_SKIP() << "built without test points";
  Schedule schedule;
  std::uint64_t before = 0;
  for (const std::uint64_t seed : {3U, 17U, 101U, 4711U, 65'537U}) {
    Sums once, again;
    const std::uint64_t hash = simulate(schedule, seed, once);
    EXPECT_EQ(simulate(schedule, seed, again), hash) << "seed " << seed;
    EXPECT_EQ(once.steps, again.steps) << "seed " << seed;
    EXPECT_EQ(once.grants, again.grants) << "seed " << seed;
    EXPECT_EQ(once.failures, again.failures) << "seed " << seed;
    EXPECT_NE(hash, before) << "another seed, the same schedule";
    before = hash;
  }
}

}  // namespace
}  // namespace headroom::test
