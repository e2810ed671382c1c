// Everything at once: sixteen threads, every way to get memory and to lose it, failures on purpose, and a reader that checks all the
// while what must hold. Runs by the clock (HEADROOM_STRESS_SECONDS); what it asserts does not depend on it.
#include <atomic>
#include <barrier>
#include <chrono>
#include <iostream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <headroom/launch.hpp>

#include "device_budgets.hpp"
#include "everything_worker.hpp"
#include "managers.hpp"
#include "scale.hpp"

namespace headroom::test {
namespace {

constexpr int kThreads = 16;

/// What holds at every instant, through the API and as a reader of the flight memory sees it.
class Checker {
public:
  explicit Checker(World& world) : world_{world}, view_{flight::FlightView::of_this_process().value()} {}

  void look() {
    for (std::size_t at = 0; at < kManagers; ++at) {
      auto const& manager = world_.managers[at];
      check(view_.words(manager.ledger_cell().value()), World::kLargestBudget[at], manager.name());
      const auto stats = manager.stats();
      check({stats.claimed, stats.allocated, stats.peak}, World::kLargestBudget[at], manager.name());
      EXPECT_LE(manager.remaining_bytes(), World::kLargestBudget[at]);
    }
    check_account(*world_.account, World::kDeviceBudget);
    check_account(*world_.second_account, World::kSecondDeviceBudget);
    EXPECT_LE(world_.host->bytes_outstanding(), 10 * kOneMiB);
    EXPECT_LE(world_.second_host->bytes_outstanding(), 4 * kOneMiB);
    if (++looks_ % 16 != 0) return;
    for (auto const& ledger : view_.ledgers()) {
      EXPECT_LE(ledger.allocated, ledger.claimed) << ledger.name;
      EXPECT_LE(ledger.allocated, ledger.peak) << ledger.name;
    }
  }
  [[nodiscard]] std::uint64_t looks() const noexcept { return looks_; }

private:
  static void check(flight::FlightView::Words const& words, std::uint64_t limit, std::string const& name) {
    EXPECT_LE(words.allocated, words.claimed) << name;
    EXPECT_LE(words.allocated, words.peak) << name;
    EXPECT_LE(words.claimed, limit) << name;
  }
  void check_account(GlobalDeviceBudget const& budget, std::uint64_t limit) const {
    auto const& account = budget.account();
    check(view_.words(account.ledger_cell().value()), limit, account.name());
    EXPECT_LE(account.claimed_bytes(), limit);
    EXPECT_LE(account.peak_bytes(), limit);
  }

  World& world_;
  flight::FlightView view_;
  std::uint64_t looks_ = 0;
};

// What the threads left: blocks on the shelf, reservations, frees that failed.
void give_everything_back(World& world, Tally& total) {
  for (auto* host : {world.host.get(), world.second_host.get()}) host->faults().clear();
  Worker cleaner{world, 99};
  cleaner.clear_shelf();
  for (auto& token : world.tokens) token.reset();
  for (auto const origin : {Origin::plain, Origin::routed}) total.retried += world.manager(origin).retry_failed_deallocations();
  total.add(cleaner.tally());
  total.written_off_bytes += world.manager(Origin::forgetful).write_off_failed_deallocations();
}

void expect_nothing_left(World& world) {
  for (auto& manager : world.managers) {
    EXPECT_TRUE(manager.reap_pending_deallocations());
    EXPECT_EQ(manager.deallocation_failure_bytes(), 0U) << manager.name();
    const auto report = manager.audit();
    EXPECT_TRUE(report.clean()) << manager.name() << ": " << report.to_string();
    EXPECT_EQ(report.claimed, 0U) << manager.name();
    EXPECT_EQ(report.allocated, 0U) << manager.name();
    EXPECT_EQ(report.unspent, 0U) << manager.name();
    EXPECT_EQ(report.live_allocations, 0U) << manager.name();
    const auto seen = snapshot_of(manager);
    EXPECT_EQ(seen.in_flight_bytes, 0U) << manager.name();
    EXPECT_EQ(seen.unspent_reservations, 0U) << manager.name();
    EXPECT_EQ(seen.failed_frees, 0U) << manager.name();
    EXPECT_EQ(seen.live_untracked, 0U) << manager.name();
  }
  for (auto const* budget : {world.account.get(), world.second_account.get()}) expect_empty(budget->account());
  for (auto const& host : {world.host, world.second_host}) {
    EXPECT_TRUE(host->reap_pending(ReapMode::synchronize));
    EXPECT_EQ(host->bytes_outstanding(), 0U);
    EXPECT_EQ(host->usage().live_blocks, 0U);
    EXPECT_EQ(host->usage().tracked_blocks, 0U);
  }
  for (auto const* door : {&world.door_on_plain, &world.door_on_overlay}) {
    EXPECT_EQ(door->live_blocks(), 0U);
    EXPECT_EQ(door->addresses_twice(), 0U);
  }
}

TEST(Stress, everything_at_once_on_sixteen_threads_leaves_nothing_behind) {
  World world;
  const auto unfinished = Launch::unfinished_launches();
  const auto until = std::chrono::steady_clock::now() + stress_time(2);
  std::atomic<bool> done{false};  // written by the test, read by the checker; relaxed would do, it only ends the loop
  std::barrier start{kThreads};
  std::vector<Tally> tallies(kThreads);
  std::vector<std::thread> threads;
  for (unsigned index = 0; index < kThreads; ++index) {
    threads.emplace_back([&, index] {
      Worker worker{world, index + 1};
      start.arrive_and_wait();
      while (std::chrono::steady_clock::now() < until && !::testing::Test::HasFailure()) {
        for (int i = 0; i < 64; ++i) worker.step();
      }
      worker.finish();
      tallies[index] = worker.tally();
    });
  }
  std::uint64_t looks = 0;
  std::thread checking{[&] {
    Checker checker{world};
    do {
      checker.look();
    } while (!done && !::testing::Test::HasFailure());
    looks = checker.looks();
  }};
  for (auto& thread : threads) thread.join();
  done = true;
  checking.join();

  Tally total;
  for (auto const& tally : tallies) total.add(tally);
  give_everything_back(world, total);
  expect_nothing_left(world);
  EXPECT_EQ(Launch::unfinished_launches(), unfinished);
  EXPECT_EQ(world.runtime.streams_in_use(), 0U);
  EXPECT_GT(looks, 0U);
  std::cout << "[ everything ] " << total.to_string() << "; checked " << looks << " times" << std::endl;
}

}  // namespace
}  // namespace headroom::test
