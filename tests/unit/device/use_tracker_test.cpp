// Who waits for whom, and at what cost in events.
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "use_trackers.hpp"

namespace headroom::device {
namespace {

using testing::address;
using testing::kA;
using testing::kB;
using testing::kC;
using testing::kD;
using testing::Launch;
using testing::UseTrackerTest;

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

}  // namespace
}  // namespace headroom::device
