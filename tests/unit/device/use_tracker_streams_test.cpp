// Streams that end, and events and waits that fail: nothing is forgotten, nothing is left.
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "use_trackers.hpp"

namespace headroom::device {
namespace {

using testing::kA;
using testing::kB;
using testing::kC;
using testing::kD;
using testing::Launch;
using testing::OrderedStreams;
using testing::UseTrackerTest;

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

}  // namespace
}  // namespace headroom::device
