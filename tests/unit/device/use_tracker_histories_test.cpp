// Histories at random, of one thread and of many, against the rules as they stand in device.hpp.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "use_trackers.hpp"

namespace headroom::device {
namespace {

using testing::kA;
using testing::kB;
using testing::Launch;
using testing::OrderedStreams;
using testing::UseTrackerTest;

// What was declared of one block, with the rules as they stand in device.hpp.
struct Declared {
  std::vector<std::pair<Launch, UseKind>> uses;
  [[nodiscard]] bool all_before(Launch const& launch, UseKind kind) const {
    return std::ranges::all_of(uses, [&](auto const& use) {
      return (kind == UseKind::read && use.second == UseKind::read) || launch.comes_after(use.first);
    });
  }
};

TEST_F(UseTrackerTest, random_histories_of_one_thread_keep_the_rules) {
  std::mt19937_64 random{1};
  for (int history = 0; history < 500; ++history) {
    auto const pick = [&random](std::uint64_t n) { return random() % n; };
    auto const block = allocate(StreamId{pick(5)}, 1, static_cast<std::uint64_t>(history) + 1);
    Declared declared;
    for (std::uint64_t use = pick(40); use != 0; --use) {
      StreamId const stream{pick(OrderedStreams::kStreams)};
      auto const kind = pick(3) == 0 ? UseKind::write : UseKind::read;
      if (pick(10) == 0) events_.finish_all();
      if (pick(8) == 0) {  // not prepared: ordered by nobody, but waited for
        declared.uses.emplace_back(events_.launch(stream), kind);
      } else {
        ASSERT_TRUE(tracker_->prepare(block, stream, kind));
        auto const launch = events_.launch(stream);
        ASSERT_TRUE(declared.all_before(launch, kind)) << "history " << history;
        declared.uses.emplace_back(launch, kind);
      }
      ASSERT_TRUE(tracker_->finish(block, stream, kind));
      ASSERT_LE(events_.held(), 2 * OrderedStreams::kStreams);
    }
    ASSERT_TRUE(declared.all_before(free(block, StreamId{pick(OrderedStreams::kStreams)}), UseKind::write));
  }
}

// Eight threads share blocks and streams. Each checks its launch against the uses whose finish had returned before its prepare;
// the free of a block, by whoever is its last user, is checked against all of them.
TEST_F(UseTrackerTest, uses_declared_by_many_threads_keep_the_rules) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 300;
  constexpr std::size_t kBlocks = 3;
  struct Shared {
    UsedBlock block;
    std::mutex mutex;  // guards `declared`
    Declared declared;
    std::atomic<int> users{kThreads};  // the last one out frees: acq_rel orders the others' uses before it
  };
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    std::array<Shared, kBlocks> shared;
    for (std::size_t at = 0; at < kBlocks; ++at) shared[at].block = allocate(StreamId{at}, at + 1, round);
    std::atomic<int> violations{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, seed = round * kThreads + static_cast<std::uint64_t>(thread)] {
        std::mt19937_64 random{seed};
        for (auto& one : shared) {
          for (int use = 0; use < 4; ++use) {
            StreamId const stream{random() % 5};
            auto const kind = random() % 3 == 0 ? UseKind::write : UseKind::read;
            Declared before;
            {
              std::lock_guard const lock(one.mutex);
              before = one.declared;
            }
            if (!tracker_->prepare(one.block, stream, kind)) ++violations;
            auto const launch = events_.launch(stream);
            if (!before.all_before(launch, kind)) ++violations;
            if (!tracker_->finish(one.block, stream, kind)) ++violations;
            std::lock_guard const lock(one.mutex);
            one.declared.uses.emplace_back(launch, kind);
          }
          if (one.users.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            if (!one.declared.all_before(free(one.block, StreamId{random() % 7}), UseKind::write)) ++violations;
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
    ASSERT_EQ(violations, 0) << "round " << round;
  }
}

// Uses that race with the free: each is accepted or refused as use_after_free, and nothing stays behind.
TEST_F(UseTrackerTest, uses_that_race_with_the_free_leave_nothing_behind) {
  constexpr int kThreads = 8;
  for (std::uint64_t round = 1; round <= 300; ++round) {
    auto const block = allocate(kA, round % 5 + 1, round);
    std::atomic<int> violations{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        if (thread % 4 == 0) {
          // Only one free of a block is accepted; the others stand for those that the resource refuses.
          if (!tracker_->prepare_free(block, kB) && thread == 0) ++violations;
          if (thread != 0) return;
          events_.freed(block.pointer, block.generation);
          if (tracker_->any()) tracker_->forget(block);
          return;
        }
        StreamId const stream{static_cast<std::uint64_t>(thread)};
        for (auto const kind : {UseKind::read, UseKind::write}) {
          for (auto const& result : {tracker_->prepare(block, stream, kind), tracker_->finish(block, stream, kind)}) {
            if (!result && result.error().kind != ErrorKind::use_after_free) ++violations;
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
    ASSERT_EQ(violations, 0);
    ASSERT_EQ(tracker_->tracked_blocks(), 0U) << "round " << round;
    ASSERT_EQ(events_.held(), 0U);
  }
}

}  // namespace
}  // namespace headroom::device
