// What was lost is told, and nothing is made up for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scripted_source.hpp"

namespace headroom::follow {
namespace {

constexpr std::uint32_t kTag = 5;

std::shared_ptr<Script> new_script() {
  auto script = std::make_shared<Script>();
  script->name(kTag, "cache");
  return script;
}

std::uint64_t sum_of(LedgerState const& state) {
  std::uint64_t sum = state.unattributed_bytes;
  for (auto const& tag : state.tags) sum += tag.bytes;
  return sum;
}

TEST(FollowGaps, an_instant_among_lost_operations_says_so_and_how_many) {
  auto const script = new_script();
  script->allocate(100, 0x1000, 10, kTag);
  script->allocate(200, 0x2000, 20, kTag);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  script->record = false;
  script->free(300, 0x1000, 10, kTag);
  script->allocate(350, 0x3000, 1, kTag);
  script->allocate(360, 0x4000, 2, kTag);
  script->record = true;
  script->allocate(400, 0x5000, 4, kTag);
  ASSERT_TRUE(model.catch_up());

  EXPECT_EQ(model.state_at(0, 200).known, Known::exact) << "the last instant before the gap";
  auto const inside = model.state_at(0, 320);
  EXPECT_EQ(inside.known, Known::gap);
  EXPECT_EQ(inside.missing_operations, 3U);
  EXPECT_EQ(inside.allocated, 30U) << "just before the gap";
  EXPECT_EQ(inside.as_of_ticks, 200U);
  auto const after = model.state_at(0, 400);
  EXPECT_EQ(after.known, Known::exact);
  EXPECT_EQ(after.allocated, 27U);
  EXPECT_EQ(after.live_allocations, 4U);
  EXPECT_EQ(sum_of(after), 27U);
  EXPECT_EQ(model.losses().operations_missing, 3U);
  EXPECT_EQ(model.losses().gaps, 1U);
}

TEST(FollowGaps, operations_at_the_end_that_only_the_books_know_are_a_gap) {
  auto const script = new_script();
  script->allocate(100, 0x1000, 10, kTag);
  script->record = false;
  script->allocate(200, 0x2000, 20, kTag);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(0, 100).known, Known::exact);
  auto const now = model.state_at(0, 200);
  EXPECT_EQ(now.known, Known::gap);
  EXPECT_EQ(now.allocated, 10U);
  auto const columns = model.series(0, std::nullopt, 100, 300, 2);
  EXPECT_EQ(columns[0].known, Known::gap);
  EXPECT_EQ(columns[0].high, 10U);
}

TEST(FollowGaps, are_listed_with_the_operations_around_them) {
  auto const script = new_script();
  script->allocate(100, 0x1000, 10, kTag);
  script->allocate(200, 0x2000, 20, kTag);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_TRUE(model.gaps(0, 0).empty());
  script->record = false;
  script->free(300, 0x1000, 10, kTag);
  script->allocate(350, 0x3000, 1, kTag);
  script->record = true;
  script->allocate(400, 0x5000, 4, kTag);
  ASSERT_TRUE(model.catch_up());
  script->record = false;
  script->free(500, 0x5000, 4, kTag);
  script->record = true;
  script->allocate(600, 0x6000, 8, kTag);
  script->record = false;
  script->allocate(700, 0x7000, 16, kTag);
  ASSERT_TRUE(model.catch_up());
  auto const gaps = model.gaps(0, 0);
  ASSERT_EQ(gaps.size(), 3U);
  EXPECT_EQ(gaps[0].begin_ticks, 200U);
  EXPECT_EQ(gaps[0].end_ticks, 400U);
  EXPECT_EQ(gaps[0].missing, 2U);
  EXPECT_EQ(gaps[1].begin_ticks, 400U);
  EXPECT_EQ(gaps[1].end_ticks, 600U);
  EXPECT_EQ(gaps[1].missing, 1U);
  EXPECT_EQ(gaps[2].begin_ticks, 600U);
  EXPECT_EQ(gaps[2].end_ticks, 0U) << "nothing is known after it";
  EXPECT_EQ(model.gaps(0, 401).size(), 2U) << "those that end from then on";
  EXPECT_TRUE(model.gaps(9, 0).empty()) << "no such ledger";
}

TEST(FollowGaps, the_past_before_a_gap_stays_exact) {
  auto const script = new_script();
  script->allocate(100, 0x1000, 10, kTag);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  script->record = false;
  script->free(200, 0x1000, 10, kTag);
  script->record = true;
  script->allocate(300, 0x2000, 20, kTag);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(0, 100).known, Known::exact);
  EXPECT_EQ(model.state_at(0, 100).allocated, 10U);
  ASSERT_EQ(model.live_at(0, 100).size(), 1U);
  EXPECT_EQ(model.state_at(0, 101).known, Known::gap) << "nobody knows when it began";
  ASSERT_EQ(model.live_at(0, 300).size(), 1U);
  EXPECT_EQ(model.live_at(0, 300)[0].address, 0x2000U);
}

TEST(FollowGaps, what_is_freed_after_a_gap_was_live_since_it) {
  auto const script = new_script();
  script->allocate(100, 0x1000, 10, kTag);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  script->record = false;
  script->allocate(200, 0x2000, 20, kTag);
  script->record = true;
  script->allocate(300, 0x3000, 40, kTag);
  script->free(400, 0x2000, 20, kTag);  // before anybody looks at the table
  ASSERT_TRUE(model.catch_up());
  auto const state = model.state_at(0, 300);
  EXPECT_EQ(state.known, Known::exact);
  EXPECT_EQ(state.allocated, 70U);
  EXPECT_EQ(sum_of(state), 70U);
  EXPECT_EQ(state.live_allocations, 3U);
  EXPECT_EQ(model.state_at(0, 400).allocated, 50U);
}

TEST(FollowGaps, an_address_that_is_given_out_again_before_its_free_is_booked_loses_no_block) {
  auto const script = new_script();
  script->allocate(100, 0x1000, 10, kTag);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  script->record = false;
  script->allocate(200, 0x2000, 20, kTag);
  script->record = true;
  script->allocate(300, 0x2000, 40, kTag);  // the device has the block back already
  script->free(400, 0x2000, 20, kTag);      // … and now the books have
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(0, 300).allocated, 70U);
  EXPECT_EQ(sum_of(model.state_at(0, 300)), 70U);
  auto const state = model.state_at(0, 400);
  EXPECT_EQ(state.known, Known::exact);
  EXPECT_EQ(state.allocated, 50U);
  EXPECT_EQ(state.live_allocations, 2U);
  auto const live = model.live_at(0, 400);
  ASSERT_EQ(live.size(), 2U);
  EXPECT_EQ(live[1].bytes, 40U);
}

/// 70 bytes between the gaps, of which 20 came in the first and go in the second.
std::shared_ptr<Script> with_two_gaps() {
  auto script = new_script();
  script->allocate(100, 0x1000, 10, kTag);
  script->record = false;
  script->allocate(200, 0x2000, 20, kTag);
  script->record = true;
  script->allocate(300, 0x3000, 40, kTag);
  script->record = false;
  script->free(400, 0x2000, 20, kTag);
  script->record = true;
  script->allocate(500, 0x4000, 80, kTag);
  return script;
}

TEST(FollowGaps, between_two_gaps_of_one_read_only_the_sum_is_known) {
  auto const script = with_two_gaps();
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const between = model.state_at(0, 300);
  EXPECT_EQ(between.allocated, 70U);
  EXPECT_EQ(between.known, Known::partial);
  EXPECT_EQ(between.unattributed_bytes, 30U);
  auto const after = model.state_at(0, 500);
  EXPECT_EQ(after.known, Known::exact);
  EXPECT_EQ(after.allocated, 130U);
  EXPECT_EQ(model.losses().gaps, 2U);
}

TEST(FollowGaps, a_stretch_says_whether_the_table_was_looked_at_for_it) {
  auto const script = with_two_gaps();
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  std::vector<bool> are_whole;
  std::vector<std::size_t> live;
  model.for_each_stretch(
      0,
      [&](PastStretch const& stretch) {
        are_whole.push_back(stretch.is_whole);
        live.push_back(stretch.live.size());
      },
      [](Operation const&) {});
  EXPECT_EQ(are_whole, (std::vector<bool>{true, false, true})) << "at its birth there was nothing to look for";
  EXPECT_EQ(live, (std::vector<std::size_t>{0, 0, 2}));
}

TEST(FollowGaps, a_late_record_is_waited_for_as_long_as_patience_says) {
  auto const script = new_script();
  auto const first = script->make_allocate(100, 0x1000, 10, kTag);
  auto const late = script->make_allocate(200, 0x2000, 20, kTag);
  auto const third = script->make_allocate(300, 0x3000, 40, kTag);
  script->put(first);
  script->put(third);
  auto model = model_of(script, {.patience = std::chrono::milliseconds{1}});
  ASSERT_TRUE(model.poll());
  EXPECT_EQ(model.losses().waiting_events, 1U);
  EXPECT_EQ(model.state_at(0, 300).allocated, 10U);
  script->now = 300 + 999'999;  // a tick is a nanosecond: just short of it
  ASSERT_TRUE(model.poll());
  EXPECT_EQ(model.losses().gaps, 0U);
  script->put(late);
  ASSERT_TRUE(model.poll());
  EXPECT_EQ(model.losses().waiting_events, 0U);
  EXPECT_EQ(model.losses().gaps, 0U);
  EXPECT_EQ(model.state_at(0, 250).allocated, 30U);
  EXPECT_EQ(model.state_at(0, 300).allocated, 70U);
}

TEST(FollowGaps, a_poll_that_brings_no_record_says_so_only_if_no_answer_changes) {
  auto const script = new_script();
  auto const first = script->make_allocate(100, 0x1000, 10, kTag);
  (void)script->make_allocate(200, 0x2000, 20, kTag);  // lost
  auto const third = script->make_allocate(300, 0x3000, 40, kTag);
  script->put(first);
  script->put(third);
  script->put(script->event(flight::EventKind::mark, 310));  // the journal is held back for one read
  auto model = model_of(script, {.patience = std::chrono::milliseconds{1}});
  EXPECT_TRUE(model.poll().value());
  EXPECT_TRUE(model.poll().value()) << "the mark is there now";
  EXPECT_FALSE(model.poll().value());
  script->now = 300 + 1'000'000;  // patience is over
  EXPECT_TRUE(model.poll().value());
  EXPECT_EQ(model.state_at(0, 300).allocated, 70U);
  EXPECT_FALSE(model.poll().value());
  script->ended = true;
  EXPECT_TRUE(model.poll().value());
  EXPECT_TRUE(model.ended());
  EXPECT_FALSE(model.poll().value());
}

TEST(FollowGaps, a_record_that_comes_too_late_is_counted_and_changes_nothing) {
  auto const script = new_script();
  auto const first = script->make_allocate(100, 0x1000, 10, kTag);
  auto const late = script->make_allocate(200, 0x2000, 20, kTag);
  auto const third = script->make_allocate(300, 0x3000, 40, kTag);
  script->put(first);
  script->put(third);
  auto model = model_of(script, {.patience = std::chrono::milliseconds{1}});
  ASSERT_TRUE(model.poll());
  script->now = 300 + 1'000'000;
  ASSERT_TRUE(model.poll());
  EXPECT_EQ(model.losses().operations_missing, 1U);
  EXPECT_EQ(model.state_at(0, 300).allocated, 70U);
  EXPECT_EQ(model.state_at(0, 300).known, Known::exact) << "the table has the block";
  script->put(late);
  ASSERT_TRUE(model.poll());
  EXPECT_EQ(model.losses().late_events, 1U);
  EXPECT_EQ(model.state_at(0, 300).allocated, 70U);
  EXPECT_EQ(model.state_at(0, 300).live_allocations, 3U);
}

TEST(FollowGaps, numbers_that_wrap_are_no_gap) {
  auto const script = new_script();
  script->books[0].number = (std::uint64_t{1} << 20U) - 3;  // the next one is 2^20 − 2
  script->book().counters.allocations = script->books[0].number;
  script->book().counters.frees = 0;
  for (std::uint64_t i = 0; i < 6; ++i) script->allocate(100 + i, 0x1000 + i * 64, 1, kTag);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.losses().gaps, 0U);
  EXPECT_EQ(model.state_at(0, 105).allocated, 6U);
}

// Two lanes, one of which has not been written for most of a lap of the numbers.
TEST(FollowGaps, a_lane_that_went_quiet_long_ago_comes_before_the_busy_one) {
  constexpr std::uint32_t kWeights = 6;
  constexpr std::uint64_t kTenSeconds = 10'000'000'000;
  auto const script = new_script();
  script->name(kWeights, "weights");
  auto const put_in_lane = [&](std::uint32_t lane, flight::Event event) {
    event.lane = lane;
    script->put(event);
  };
  for (std::uint64_t i = 0; i < 2000; ++i) put_in_lane(0, script->make_allocate(1000 + i, 0x10'0000 + i * 64, 10, kWeights));
  // The worker's records of these were overwritten.
  script->books[0].number += 698'000;
  script->book().counters.allocations += 349'000;
  script->book().counters.frees += 349'000;
  script->thread = 8;
  for (std::uint64_t i = 0; i < 500; ++i) {
    auto const ticks = kTenSeconds + i * 400;
    auto const address = 0x90'0000 + i * 256;
    put_in_lane(1, script->make_allocate(ticks, address, 7, kTag));
    put_in_lane(1, script->make_allocate(ticks + 100, address + 64, 7, kTag));
    put_in_lane(1, script->make_allocate(ticks + 200, address + 128, 7, kTag));
    put_in_lane(1, script->make_free(ticks + 300, address + 128, 7, kTag));
  }
  auto const end = kTenSeconds + 499 * 400 + 300;
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());

  EXPECT_EQ(model.losses().gaps, 1U);
  EXPECT_EQ(model.losses().operations_missing, 698'000U);
  EXPECT_EQ(model.losses().late_events, 0U);
  auto const loaded = model.state_at(0, 2999);
  EXPECT_EQ(loaded.known, Known::exact);
  EXPECT_EQ(loaded.allocated, 20'000U);
  auto const idle = model.state_at(0, kTenSeconds - 1);
  EXPECT_EQ(idle.known, Known::gap);
  EXPECT_EQ(idle.missing_operations, 698'000U);
  auto const first = model.state_at(0, kTenSeconds);
  EXPECT_EQ(first.known, Known::exact) << "what was live before it stands in the table";
  EXPECT_EQ(first.allocated, 20'007U);
  auto const now = model.state_at(0, end);
  EXPECT_EQ(now.known, Known::exact);
  EXPECT_EQ(now.as_of_ticks, end);
  EXPECT_EQ(now.allocated, 27'000U);
  EXPECT_EQ(now.live_allocations, 3000U);
  ASSERT_EQ(now.tags.size(), 2U);
  EXPECT_EQ(now.tags[0].bytes, 20'000U);
  EXPECT_EQ(now.tags[1].bytes, 7000U);

  // And what follows is not late.
  put_in_lane(1, script->make_allocate(end + 100, 0x8000, 3, kTag));
  put_in_lane(0, script->make_allocate(end + 200, 0x8100, 2, kWeights));
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.losses().late_events, 0U);
  EXPECT_EQ(model.losses().gaps, 1U);
  EXPECT_EQ(model.state_at(0, end + 200).allocated, 27'005U);
}

TEST(FollowGaps, a_thread_that_was_stopped_before_it_stamped_its_record_makes_no_lap) {
  auto const script = new_script();
  script->allocate(100, 0x1000, 10, kTag);
  // Its allocation is done, its record is stamped when the program goes on: a tenth of a second later.
  auto const stopped = script->make_allocate(100'000'300, 0x2000, 20, kTag);
  script->allocate(200, 0x3000, 40, kTag);
  script->put(stopped);
  script->allocate(100'000'400, 0x4000, 80, kTag);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.losses().gaps, 0U);
  EXPECT_EQ(model.losses().late_events, 0U);
  EXPECT_EQ(model.state_at(0, 100'000'400).allocated, 150U);
  EXPECT_EQ(model.state_at(0, 100'000'400).live_allocations, 4U);
}

TEST(FollowGaps, of_several_journal_gaps_the_last_one_to_end_counts) {
  auto const script = new_script();
  script->allocate(50, 0x1000, 10, kTag);
  script->book().limit = 1000;
  auto const mark_in_lane = [&](std::uint32_t lane, std::uint64_t ticks) {
    auto mark = script->event(flight::EventKind::mark, ticks);
    mark.lane = lane;
    mark.number = 10;
    script->put(mark);
  };
  mark_in_lane(1, 200);
  mark_in_lane(2, 500);
  mark_in_lane(3, 600);
  auto const lose = [&](std::uint32_t lane) {
    script->gaps.push_back({.ring = flight::Ring::journal, .lane = lane, .first_missing = 3, .last_missing = 9});
  };
  lose(2);
  lose(1);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_FALSE(model.state_at(0, 300).limit_known) << "lane 2 may have lost a change of the budget";
  EXPECT_FALSE(model.state_at(0, 499).limit_known);
  EXPECT_TRUE(model.state_at(0, 500).limit_known);

  // One that no record ends may reach up to now, whatever the others do.
  script->now = 900;
  lose(4);
  lose(3);
  mark_in_lane(3, 800);
  ASSERT_TRUE(model.catch_up());
  EXPECT_FALSE(model.state_at(0, 850).limit_known);
  EXPECT_TRUE(model.state_at(0, 900).limit_known);
}

TEST(FollowGaps, the_frame_of_a_dead_process_is_completed_from_its_table) {
  auto const script = new_script();
  script->allocate(100, 0x1000, 10, kTag);
  script->allocate(200, 0x2000, 20, kTag);
  script->record = false;  // died before these two records
  script->allocate(300, 0x3000, 40, kTag);
  script->free(310, 0x1000, 10, kTag);
  script->ended = true;
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_TRUE(model.ended());
  auto const state = model.state_at(0, 1000);
  EXPECT_EQ(state.allocated, 60U);
  EXPECT_EQ(state.known, Known::exact);
  EXPECT_EQ(state.live_allocations, 2U);
  std::vector<bool> recovered;
  model.for_each_operation(0, 0, 1000, [&](Operation const& operation) {
    recovered.push_back(operation.recovered);
    return true;
  });
  EXPECT_THAT(recovered, testing::ElementsAre(false, false, true, true));
  EXPECT_FALSE(model.poll().value()) << "nothing follows an end";
}

TEST(FollowGaps, a_free_of_nothing_known_is_counted_and_no_sum_goes_below_zero) {
  auto const script = new_script();
  script->allocate(100, 0x1000, 10, kTag);
  auto stray = script->make_allocate(200, 0x2000, 20, kTag);
  stray.kind = flight::EventKind::free;  // a damaged record: frees what was never there
  stray.words[2] = 0x7777;
  script->put(stray);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.losses().unmatched_frees, 1U);
  auto const state = model.state_at(0, 200);
  EXPECT_EQ(state.live_allocations, 1U);
  EXPECT_EQ(state.known, Known::partial);
  EXPECT_EQ(state.unattributed_bytes, 20U);
}

TEST(FollowGaps, memory_is_bounded_and_the_forgotten_past_has_no_figures) {
  auto const script = new_script();
  auto model = model_of(script, {.memory_bytes = std::size_t{256} << 10U});
  std::uint64_t ticks = 0;
  for (int round = 0; round < 40; ++round) {
    for (std::uint64_t i = 0; i < 500; ++i) {
      script->allocate(++ticks, 0x1000 + i * 64, 64, kTag);
    }
    for (std::uint64_t i = 0; i < 500; ++i) {
      script->free(++ticks, 0x1000 + i * 64, 64, kTag);
    }
    ASSERT_TRUE(model.poll());
    EXPECT_LE(model.memory_bytes(), std::size_t{256} << 10U);
  }
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(0, 10).known, Known::forgotten);
  EXPECT_EQ(model.state_at(0, 10).allocated, 0U);
  EXPECT_GT(model.losses().forgotten_operations, 30'000U);
  EXPECT_LT(model.first_ticks(), ticks - 1000) << "some of the past is kept";
  // 250 operations before the end: 500 − 250 blocks were still there.
  auto const state = model.state_at(0, ticks - 250);
  EXPECT_EQ(state.known, Known::exact);
  EXPECT_EQ(state.allocated, 250U * 64);
  EXPECT_EQ(model.live_at(0, ticks - 250).size(), 250U);
}

}  // namespace
}  // namespace headroom::follow
