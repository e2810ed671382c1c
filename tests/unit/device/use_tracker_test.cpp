// Who waits for whom, and at what cost in events.
#include "device/use_tracker.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ordered_streams.hpp"

namespace headroom::device {
namespace {

using testing::OrderedStreams;
using Launch = OrderedStreams::Launch;

constexpr StreamId kA{1}, kB{2}, kC{3}, kD{4};

void* address(std::uint64_t number) { return reinterpret_cast<void*>(number * 4096); }  // NOLINT(performance-no-int-to-ptr)

class UseTrackerTest : public ::testing::Test {
protected:
  UsedBlock allocate(StreamId stream, std::uint64_t number = 1, std::uint64_t generation = 7) {
    events_.allocated(address(number), generation);
    return {address(number), generation, stream};
  }
  // A use as a caller declares it.
  Launch use(UsedBlock const& block, StreamId stream, UseKind kind) {
    EXPECT_TRUE(tracker_->prepare(block, stream, kind));
    auto const launch = events_.launch(stream);
    EXPECT_TRUE(tracker_->finish(block, stream, kind));
    return launch;
  }
  Launch read(UsedBlock const& block, StreamId stream) { return use(block, stream, UseKind::read); }
  Launch write(UsedBlock const& block, StreamId stream) { return use(block, stream, UseKind::write); }
  // A free as a resource makes it; the launch stands for the return of the memory.
  Launch free(UsedBlock const& block, StreamId stream) {
    EXPECT_TRUE(tracker_->prepare_free(block, stream));
    auto const launch = events_.launch(stream);
    events_.freed(block.pointer, block.generation);
    if (tracker_->any()) tracker_->forget(block);
    return launch;
  }
  void TearDown() override {
    EXPECT_EQ(tracker_->tracked_blocks(), 0U);
    EXPECT_EQ(events_.held(), of_ended_streams_) << "the events of a block are given back with it";
    tracker_.reset();
    EXPECT_EQ(events_.held(), 0U);
    EXPECT_EQ(events_.stale(), 0U);
  }

  OrderedStreams events_;
  std::optional<UseTracker> tracker_{std::in_place, events_};
  std::size_t of_ended_streams_ = 0;  // events that the test leaves to the end of the tracker
};

TEST_F(UseTrackerTest, own_stream_uses_need_no_event_and_no_entry) {
  auto const block = allocate(kA);
  for (int round = 0; round < 1000; ++round) {
    write(block, kA);
    read(block, kA);
  }
  EXPECT_FALSE(tracker_->any());
  EXPECT_FALSE(tracker_->prepare_free(block, kA).value());
  free(block, kA);
  EXPECT_EQ(events_.records(), 0U);
  EXPECT_EQ(events_.waits(), 0U);
}

TEST_F(UseTrackerTest, own_stream_uses_of_one_block_stay_free_while_another_has_an_entry) {
  auto const shared = allocate(kA, 1);
  auto const own = allocate(kA, 2);
  read(shared, kB);
  auto const records = events_.records();
  write(own, kA);
  read(own, kA);
  EXPECT_EQ(events_.records(), records);
  EXPECT_EQ(tracker_->tracked_blocks(), 1U);
  free(own, kA);
  free(shared, kA);
}

TEST_F(UseTrackerTest, allocation_is_the_first_write_and_its_event_is_recorded_once_when_another_stream_needs_it) {
  auto const block = allocate(kA);
  auto const filled = events_.launch(kA);  // undeclared, on its own stream
  EXPECT_EQ(events_.records(), 0U);
  auto const on_b = read(block, kB);
  EXPECT_EQ(events_.records(kA), 1U);
  EXPECT_EQ(events_.waits(kB), 1U);
  auto const on_c = read(block, kC);
  EXPECT_EQ(events_.records(kA), 1U) << "the same event";
  EXPECT_EQ(events_.waits(kC), 1U);
  EXPECT_EQ(events_.records(), 3U) << "and one for each of the two reads";
  EXPECT_TRUE(on_b.comes_after(filled));
  EXPECT_TRUE(on_c.comes_after(filled));
  EXPECT_FALSE(on_c.comes_after(on_b)) << "reads do not wait for each other";
  free(block, kA);
}

TEST_F(UseTrackerTest, read_waits_for_the_last_write_only) {
  auto const block = allocate(kA);
  auto const written = write(block, kB);
  auto const first = read(block, kC);
  auto const second = read(block, kD);
  EXPECT_TRUE(first.comes_after(written));
  EXPECT_TRUE(second.comes_after(written));
  EXPECT_FALSE(second.comes_after(first));
  EXPECT_EQ(events_.waits(kD), 1U) << "the write on B stands for the allocation that it waited for";
  free(block, kA);
}

TEST_F(UseTrackerTest, write_and_free_wait_for_the_last_write_and_all_reads_on_other_streams) {
  auto const block = allocate(kA);
  auto const read_a = read(block, kA);
  auto const read_b = read(block, kB);
  auto const read_c = read(block, kC);
  auto const written = write(block, kD);
  for (auto const& before : {read_a, read_b, read_c}) EXPECT_TRUE(written.comes_after(before));
  EXPECT_EQ(events_.waits(kD), 3U) << "the allocation on A, and the reads on B and C";
  auto const again = read(block, kB);
  EXPECT_TRUE(again.comes_after(written));
  auto const freed = free(block, kC);
  EXPECT_TRUE(freed.comes_after(written));
  EXPECT_TRUE(freed.comes_after(again));
}

TEST_F(UseTrackerTest, same_stream_waits_are_skipped) {
  auto const block = allocate(kA);
  write(block, kB);  // waits for the allocation
  ASSERT_EQ(events_.waits(), 1U);
  read(block, kB);
  write(block, kB);
  read(block, kB);
  write(block, kB);
  free(block, kB);
  EXPECT_EQ(events_.waits(), 1U);
  EXPECT_EQ(events_.records(), 6U) << "the allocation, and one for each of five uses";
}

TEST_F(UseTrackerTest, stream_waits_once_for_the_same_write) {
  auto const block = allocate(kA);
  for (int round = 0; round < 100; ++round) read(block, kB);
  EXPECT_EQ(events_.waits(kB), 1U);
  auto const written = write(block, kA);
  EXPECT_EQ(events_.waits(kA), 1U);
  for (int round = 0; round < 100; ++round) EXPECT_TRUE(read(block, kB).comes_after(written));
  EXPECT_EQ(events_.waits(kB), 2U);
  free(block, kA);
}

TEST_F(UseTrackerTest, read_of_a_stream_stands_for_its_earlier_write) {
  auto const block = allocate(kA);
  auto const written = write(block, kB);
  auto const seen = read(block, kB);
  auto const next = write(block, kC);
  EXPECT_TRUE(next.comes_after(written));
  EXPECT_TRUE(next.comes_after(seen));
  EXPECT_EQ(events_.waits(kC), 1U);
  free(block, kC);
}

TEST_F(UseTrackerTest, own_stream_use_of_a_shared_block_is_waited_for_to_its_end_and_no_further) {
  auto const block = allocate(kA);
  read(block, kB);
  auto const written = write(block, kA);
  auto const unrelated = events_.launch(kA);
  auto const seen = read(block, kB);
  EXPECT_TRUE(seen.comes_after(written));
  EXPECT_FALSE(seen.comes_after(unrelated));
  free(block, kA);
}

TEST_F(UseTrackerTest, block_read_a_hundred_thousand_times_holds_one_event_per_stream) {
  auto const block = allocate(kA);
  std::vector<Launch> last(3);
  for (std::uint64_t round = 0; round < 100'000; ++round) last[round % 3] = read(block, StreamId{2 + round % 3});
  EXPECT_EQ(events_.held(), 4U) << "three reads, and the allocation that a read on one more stream would wait for";
  EXPECT_LE(events_.most_held(), 5U) << "the new one exists before the old one goes";
  EXPECT_EQ(events_.waits(), 3U);
  auto const written = write(block, kA);
  EXPECT_EQ(events_.waits(kA), 3U);
  for (auto const& read : last) EXPECT_TRUE(written.comes_after(read));
  EXPECT_EQ(events_.held(), 1U) << "the write stands for all of them";
  free(block, kA);
}

TEST_F(UseTrackerTest, free_on_another_stream_of_a_block_never_used_elsewhere_waits_without_an_entry) {
  auto const block = allocate(kA);
  auto const written = write(block, kA);
  EXPECT_TRUE(tracker_->prepare_free(block, kB).value());
  EXPECT_FALSE(tracker_->any());
  EXPECT_EQ(events_.records(kA), 1U);
  EXPECT_EQ(events_.held(), 0U);
  EXPECT_TRUE(free(block, kB).comes_after(written));
}

TEST_F(UseTrackerTest, use_that_was_not_prepared_is_waited_for_but_stands_for_nothing) {
  auto const block = allocate(kA);
  auto const read_b = read(block, kB);
  auto const on_c = events_.launch(kC);
  ASSERT_TRUE(tracker_->finish(block, kC, UseKind::write));
  EXPECT_EQ(events_.waits(kC), 0U);
  auto const freed = free(block, kD);
  EXPECT_TRUE(freed.comes_after(on_c));
  EXPECT_TRUE(freed.comes_after(read_b)) << "nothing shows that the write on C came after it";
}

TEST_F(UseTrackerTest, unprepared_first_use_elsewhere_keeps_the_allocation_to_wait_for) {
  auto const block = allocate(kA);
  auto const filled = events_.launch(kA);
  auto const on_b = events_.launch(kB);
  ASSERT_TRUE(tracker_->finish(block, kB, UseKind::read));
  EXPECT_EQ(events_.records(kA), 0U);
  auto const on_c = read(block, kC);
  EXPECT_TRUE(on_c.comes_after(filled));
  EXPECT_FALSE(on_c.comes_after(on_b));
  EXPECT_TRUE(free(block, kA).comes_after(on_b));
}

TEST_F(UseTrackerTest, use_declared_while_a_write_is_being_enqueued_is_not_taken_out_by_it) {
  auto const block = allocate(kA);
  ASSERT_TRUE(tracker_->prepare(block, kB, UseKind::write));
  auto const between = read(block, kC);
  auto const written = events_.launch(kB);
  ASSERT_TRUE(tracker_->finish(block, kB, UseKind::write));
  EXPECT_FALSE(written.comes_after(between)) << "as two launches without an order";
  auto const freed = free(block, kA);
  EXPECT_TRUE(freed.comes_after(between));
  EXPECT_TRUE(freed.comes_after(written));
}

// A whole other use of the stream is declared between the outer use's ticket and its event, or between its event and its entry.
TEST_F(UseTrackerTest, two_threads_on_one_stream_may_be_entered_in_another_order_than_they_recorded) {
  for (auto const outer_kind : {UseKind::read, UseKind::write}) {
    for (auto const inner_kind : {UseKind::read, UseKind::write}) {
      for (auto* const hook : {&events_.before_record, &events_.after_record}) {
        auto const block = allocate(kA);
        read(block, kC);
        auto const outer = events_.launch(kB);
        std::optional<Launch> inner;
        *hook = [&](StreamId) {
          inner = events_.launch(kB);
          ASSERT_TRUE(tracker_->finish(block, kB, inner_kind));
        };
        ASSERT_TRUE(tracker_->finish(block, kB, outer_kind));
        ASSERT_TRUE(inner);
        if (outer_kind == UseKind::write || inner_kind == UseKind::write) {
          auto const seen = read(block, kA);
          EXPECT_TRUE(outer_kind == UseKind::read || seen.comes_after(outer));
          EXPECT_TRUE(inner_kind == UseKind::read || seen.comes_after(*inner));
        }
        auto const written = write(block, kD);
        EXPECT_TRUE(written.comes_after(outer));
        EXPECT_TRUE(written.comes_after(*inner));
        free(block, kD);
      }
    }
  }
}

TEST_F(UseTrackerTest, own_stream_use_that_saw_no_entry_is_before_the_allocations_event) {
  auto const block = allocate(kA);
  std::optional<Launch> late;
  // Another thread is about to record the allocation's event: its entry exists already, so the use is entered.
  events_.before_record = [&](StreamId) { late = write(block, kA); };
  ASSERT_TRUE(tracker_->prepare(block, kB, UseKind::read));
  ASSERT_TRUE(late);
  EXPECT_TRUE(free(block, kC).comes_after(*late));
}

TEST_F(UseTrackerTest, generation_tells_a_reused_address_from_the_block_it_once_was) {
  auto const old = allocate(kA, 1, 7);
  read(old, kB);
  free(old, kA);
  auto const block = allocate(kA, 1, 8);
  EXPECT_EQ(tracker_->prepare(old, kB, UseKind::read).error().kind, ErrorKind::use_after_free);
  EXPECT_EQ(tracker_->finish(old, kB, UseKind::read).error().kind, ErrorKind::use_after_free);
  EXPECT_EQ(tracker_->tracked_blocks(), 0U) << "a stale block leaves nothing behind";
  EXPECT_EQ(events_.held(), 0U);
  auto const seen = read(block, kB);
  EXPECT_EQ(tracker_->prepare(old, kC, UseKind::write).error().kind, ErrorKind::use_after_free);
  EXPECT_TRUE(free(block, kA).comes_after(seen)) << "nor takes anything away";
}

TEST_F(UseTrackerTest, block_that_never_was_is_refused_and_leaves_nothing) {
  UsedBlock const unknown{address(99), 1, kA};
  auto const refused = tracker_->prepare(unknown, kB, UseKind::read);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::use_after_free);
  EXPECT_EQ(refused.error().layer, Layer::resource);
  EXPECT_EQ(tracker_->tracked_blocks(), 0U);
}

TEST_F(UseTrackerTest, free_that_comes_while_the_entry_is_made_leaves_none_behind) {
  auto const block = allocate(kA);
  events_.before_is_live = [&] { free(block, kA); };
  EXPECT_EQ(tracker_->finish(block, kB, UseKind::read).error().kind, ErrorKind::use_after_free);
  EXPECT_EQ(tracker_->tracked_blocks(), 0U);

  auto const next = allocate(kA, 2);
  events_.before_record = [&](StreamId) { free(next, kA); };
  EXPECT_EQ(tracker_->prepare(next, kB, UseKind::read).error().kind, ErrorKind::use_after_free);
}

// ── streams that end ──

TEST_F(UseTrackerTest, work_of_an_ended_stream_is_still_waited_for) {
  auto const block = allocate(kA);
  auto const written = write(block, kA);
  ASSERT_TRUE(tracker_->stream_ends(kA));
  events_.end(kA);
  EXPECT_TRUE(read(block, kB).comes_after(written));
  EXPECT_TRUE(free(block, kC).comes_after(written));
  auto const other = allocate(kA, 2);
  EXPECT_TRUE(free(other, kC).comes_after(written)) << "also by a free without any use before";
  of_ended_streams_ = 1;
}

TEST_F(UseTrackerTest, ended_stream_without_work_is_waited_for_by_nobody) {
  auto const block = allocate(kA);
  events_.end(kA);  // noted by nobody: as after a tidying that found the event come
  EXPECT_TRUE(tracker_->prepare(block, kB, UseKind::read));
  EXPECT_EQ(events_.waits(), 0U);
  EXPECT_TRUE(tracker_->prepare(block, kB, UseKind::write));
  EXPECT_TRUE(tracker_->stream_ends(kA)) << "a stream that does not exist";
  free(block, kB);
}

TEST_F(UseTrackerTest, last_events_of_ended_streams_are_dropped_once_they_have_come) {
  for (std::uint64_t stream = 100; stream < 107; ++stream) ASSERT_TRUE(tracker_->stream_ends(StreamId{stream}));
  EXPECT_EQ(events_.held(), 7U);
  events_.finish_all();
  ASSERT_TRUE(tracker_->stream_ends(StreamId{107}));
  EXPECT_EQ(events_.held(), 1U) << "the eighth threw out the seven";
  for (std::uint64_t stream = 108; stream < 1108; ++stream) {
    events_.finish_all();
    ASSERT_TRUE(tracker_->stream_ends(StreamId{stream}));
    ASSERT_LE(events_.held(), 8U);
  }
  of_ended_streams_ = events_.held();
}

TEST_F(UseTrackerTest, uses_of_ended_streams_leave_a_block_once_they_have_finished) {
  auto const block = allocate(kA);
  for (std::uint64_t stream = 100; stream < 10'100; ++stream) {
    ASSERT_TRUE(tracker_->prepare(block, StreamId{stream}, UseKind::read));
    ASSERT_TRUE(tracker_->finish(block, StreamId{stream}, UseKind::read));
    events_.end(StreamId{stream});
    events_.finish_all();
  }
  EXPECT_LE(events_.most_held(), 10U);
  free(block, kA);
}

TEST_F(UseTrackerTest, uses_that_have_not_finished_stay_however_many_there_are) {
  auto const block = allocate(kA);
  std::vector<Launch> reads;
  for (std::uint64_t stream = 2; stream < OrderedStreams::kStreams; ++stream) reads.push_back(read(block, StreamId{stream}));
  auto const freed = free(block, kA);
  for (auto const& read : reads) EXPECT_TRUE(freed.comes_after(read));
}

TEST_F(UseTrackerTest, new_stream_of_a_reused_value_comes_after_the_one_that_had_it) {
  auto const block = allocate(kA);
  auto const written = write(block, kB);
  ASSERT_TRUE(tracker_->stream_ends(kB));
  events_.end(kB);
  events_.make(kB);
  ASSERT_TRUE(tracker_->stream_made(kB));
  EXPECT_EQ(events_.waits(kB), 2U) << "one for the allocation, one for the old stream";
  EXPECT_TRUE(read(block, kB).comes_after(written));
  EXPECT_EQ(events_.waits(kB), 2U) << "so that the same value may go on meaning the same order";
  ASSERT_TRUE(tracker_->stream_made(kD)) << "a value never seen";
  EXPECT_EQ(events_.waits(kD), 0U);
  free(block, kB);
  of_ended_streams_ = 1;
}

TEST_F(UseTrackerTest, use_on_a_stream_that_was_destroyed_is_refused) {
  auto const block = allocate(kA);
  ASSERT_TRUE(tracker_->prepare(block, kB, UseKind::read));
  events_.end(kB);
  auto const refused = tracker_->finish(block, kB, UseKind::read);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::stream_misuse);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("stream 2"));
  free(block, kA);
}

// ── failures ──

TEST_F(UseTrackerTest, failed_record_at_finish_leaves_no_use_and_says_so) {
  auto const block = allocate(kA);
  events_.fail_record(1);
  auto const failed = tracker_->finish(block, kB, UseKind::write);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::driver);
  EXPECT_EQ(failed.error().layer, Layer::driver);
  EXPECT_THAT(failed.error().message, ::testing::AllOf(::testing::HasSubstr("recording"), ::testing::HasSubstr("stream 2"),
                                                       ::testing::HasSubstr("no event left")));
  EXPECT_EQ(tracker_->tracked_blocks(), 0U);
  EXPECT_EQ(events_.held(), 0U);

  auto const written = write(block, kB);
  events_.fail_record(1);
  ASSERT_FALSE(tracker_->finish(block, kC, UseKind::write));
  EXPECT_EQ(events_.held(), 1U) << "the write before is still the last";
  EXPECT_TRUE(read(block, kD).comes_after(written));
  free(block, kA);
}

TEST_F(UseTrackerTest, failed_record_of_the_allocation_is_made_up_for_by_the_next_call) {
  auto const block = allocate(kA);
  auto const filled = events_.launch(kA);
  events_.fail_record(1);
  ASSERT_FALSE(tracker_->prepare(block, kB, UseKind::read));
  EXPECT_EQ(events_.held(), 0U);
  EXPECT_TRUE(read(block, kB).comes_after(filled));
  free(block, kA);
  auto const other = allocate(kA, 2);
  events_.fail_record(1);
  ASSERT_FALSE(tracker_->prepare_free(other, kC));
  EXPECT_TRUE(free(other, kC).comes_after(filled));
}

TEST_F(UseTrackerTest, failed_wait_is_made_up_for_by_the_next_call) {
  auto const block = allocate(kA);
  auto const read_b = read(block, kB);
  auto const read_c = read(block, kC);
  for (int turn = 0; turn < 2; ++turn) {
    events_.fail_wait(3);
    auto const failed =
        turn == 0 ? tracker_->prepare(block, kD, UseKind::write) : tracker_->prepare_free(block, kD).map([](bool) {});
    ASSERT_FALSE(failed);
    EXPECT_THAT(failed.error().message, ::testing::AllOf(::testing::HasSubstr("wait"), ::testing::HasSubstr("stream 4")));
  }
  auto const freed = free(block, kD);
  EXPECT_TRUE(freed.comes_after(read_b));
  EXPECT_TRUE(freed.comes_after(read_c));
}

TEST_F(UseTrackerTest, free_that_the_resource_refused_can_be_repeated_on_any_stream) {
  auto const block = allocate(kA);
  auto const seen = read(block, kB);
  EXPECT_TRUE(tracker_->prepare_free(block, kA).value());
  auto const waits = events_.waits();
  EXPECT_TRUE(tracker_->prepare_free(block, kA).value());
  EXPECT_EQ(events_.waits(), waits) << "kA has waited";
  EXPECT_TRUE(free(block, kC).comes_after(seen));
}

TEST_F(UseTrackerTest, ending_a_stream_fails_when_its_event_cannot_be_recorded) {
  events_.fail_record(1);
  EXPECT_FALSE(tracker_->stream_ends(kA));
  EXPECT_EQ(events_.held(), 0U);
}

// ── against the rules themselves ──

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
