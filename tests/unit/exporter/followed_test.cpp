// One process that is watched: what a look brings, and what a watcher who came late counts as lost.
#include "followed.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>

#include "flight_builder.hpp"

namespace headroom::exporter {
namespace {

using flight::EventKind;
using flight::FlightBuilder;
using flight::Ring;

TEST(Followed, looks_at_the_books_as_they_are_now) {
  FlightBuilder file;
  auto& pool = file.open_ledger(0, 1, "pool");
  pool.limit = 1000 | flight::kLimitEnforcing;
  pool.claim = pool.alloc = pool.peak = 400;
  Followed followed{file.view()};
  ASSERT_TRUE(followed.tick());
  pool.claim = pool.alloc = pool.peak = 500;
  const auto look = followed.look({});
  ASSERT_EQ(look.ledgers.size(), 1U);
  EXPECT_EQ(look.ledgers[0].allocated, 500U);  // not those of the last tick
  ASSERT_EQ(look.histories.size(), 1U);
  EXPECT_EQ(look.histories.begin()->second.back().high, 400U);
  EXPECT_GE(look.monotonic_ns / 1'000'000'000, look.histories.begin()->second.back().number);
}

TEST(Followed, a_look_without_details_has_figures_alone) {
  FlightBuilder file;
  file.open_ledger(0, 1, "pool").claim = 7;
  Followed followed{file.view()};
  ASSERT_TRUE(followed.tick());
  const auto look = followed.look({.with_details = false});
  EXPECT_EQ(look.ledgers.size(), 1U);
  EXPECT_TRUE(look.histories.empty());
  EXPECT_TRUE(look.lanes.empty());
}

TEST(Followed, what_was_overwritten_before_it_began_is_no_loss_of_its_own) {
  FlightBuilder file;
  file.header().lanes_used = 1;
  for (std::uint64_t ticks = 1; ticks <= 100; ++ticks) file.write(0, Ring::main, record(EventKind::allocate, ticks));
  Followed followed{file.view()};
  EXPECT_EQ(followed.events_lost(), 0U);
  ASSERT_TRUE(followed.tick());
  EXPECT_EQ(followed.events_lost(), 0U);
  const auto read = followed.look({}).losses.events_read;
  // Two rings full: of these the reader sees at most the last eight.
  for (std::uint64_t ticks = 101; ticks <= 116; ++ticks) file.write(0, Ring::main, record(EventKind::allocate, ticks));
  ASSERT_TRUE(followed.tick());
  const auto look = followed.look({});
  EXPECT_GT(look.events_lost, 0U);
  // What was written and not read lies in the block that a reader of a living process leaves alone, before the first look and now.
  EXPECT_EQ(look.losses.events_read + look.losses.events_lost, 116U);
  EXPECT_EQ(look.events_lost, followed.events_lost());
  EXPECT_GE(look.losses.events_read, read);
}

/// Whoever serves looks while the accepting thread ticks and the program works.
TEST(Followed, looks_from_many_threads_while_it_ticks) {
  auto manager = GpuMemoryManager::create(host_device().value(), MemoryBudget::with_limit(1 << 20), "followed").value();
  Followed followed{*flight::FlightView::of_this_process()};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int count = 0; count < 3; ++count) {
    threads.emplace_back([&] {
      while (!done) {
        const auto look = followed.look({});
        for (auto const& ledger : look.ledgers) {
          EXPECT_LE(ledger.allocated, ledger.claimed);
          EXPECT_LE(ledger.allocated, ledger.peak);
        }
        EXPECT_LE(look.failures.size(), Followed::kStoriesShown);
      }
    });
  }
  for (int round = 0; round < 200; ++round) {
    auto kept = manager.alloc<char>(1000 + static_cast<std::size_t>(round));
    EXPECT_TRUE(kept);
    EXPECT_FALSE(manager.alloc<char>(2 << 20));
    EXPECT_TRUE(followed.tick());
  }
  done = true;
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(followed.tick());
  const auto look = followed.look({});
  ASSERT_EQ(look.failures.size(), Followed::kStoriesShown);
  EXPECT_EQ(look.failures.back().requested, std::uint64_t{2} << 20U);
  EXPECT_EQ(look.failures.back().end, follow::FailureEnd::failed);
}

}  // namespace
}  // namespace headroom::exporter
