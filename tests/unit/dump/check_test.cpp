// What is doubtful in a post-mortem: nothing, that it was cut, that it is incomplete, and each sum that does not agree.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flight_builder.hpp"
#include "managers.hpp"
#include "post_mortems.hpp"

namespace headroom::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Of a process that ended: one ledger with two tags, two blocks, one lane that has lost two of ten events.
PostMortem sound() {
  PostMortem dump;
  dump.complete = true;
  dump.liveness = flight::Liveness::dead;
  auto& ledger = dump.ledgers.emplace_back();
  ledger.name = "main";
  ledger.allocated = 300;
  ledger.claimed = 400;
  ledger.peak = 500;
  ledger.live_untracked_bytes = 50;
  for (const std::uint64_t bytes : {100U, 200U}) ledger.tags.emplace_back().bytes = bytes;
  dump.live_allocations = 2;
  dump.live_bytes = 250;
  dump.live.resize(2);
  auto& lane = dump.lanes.emplace_back();
  lane.lane = 3;
  lane.main = {.recorded = 10, .listed = 8, .first = 2, .last = 9, .lost = 2};
  lane.journal = {.recorded = 0, .listed = 0, .first = {}, .last = {}, .lost = 0};
  for (std::uint64_t number = 2; number < 10; ++number) {
    auto& event = dump.events.emplace_back();
    event.lane = 3;
    event.number = number;
  }
  return dump;
}

TEST(CheckPostMortem, a_sound_one_has_no_findings) { EXPECT_THAT(check_post_mortem(sound()), IsEmpty()); }

TEST(CheckPostMortem, one_that_a_real_process_wrote_is_sound) {
  auto manager = null_manager(MemoryBudget::with_limit(10'000), "checked");
  auto held = manager.alloc<std::byte>(1'000).value();
  EXPECT_FALSE(manager.alloc<std::byte>(20'000));
  const auto view = flight::FlightView::of_this_process().value();
  for (const auto liveness : {flight::Liveness::living, flight::Liveness::dead}) {
    const auto dump = read_post_mortem(post_mortem_text(view, {.liveness = liveness}), "dump").value();
    EXPECT_THAT(check_post_mortem(dump), IsEmpty());
  }
}

TEST(CheckPostMortem, one_that_was_cut_says_so_and_nothing_that_follows_from_it) {
  auto dump = sound();
  dump.truncated = true;
  dump.complete = false;
  dump.live_bytes = 7;
  dump.events.clear();
  EXPECT_THAT(check_post_mortem(dump),
              ElementsAre("truncated: the file ends before the post-mortem does; what is here is whole, what "
                          "is not may be missing"));
}

TEST(CheckPostMortem, one_that_is_incomplete_says_why) {
  auto dump = sound();
  dump.complete = false;
  EXPECT_THAT(check_post_mortem(dump), ElementsAre("incomplete: the writer could not write everything that it was asked for"));
  dump.events_left_out_because = "File too large";
  EXPECT_THAT(check_post_mortem(dump),
              ElementsAre("incomplete: the writer could not write everything that it was asked for: File too large"));
}

TEST(CheckPostMortem, allocated_is_at_most_claimed_and_peak) {
  auto dump = sound();
  dump.ledgers[0].claimed = 299;
  dump.ledgers[0].peak = 250;
  EXPECT_THAT(check_post_mortem(dump), ElementsAre("ledger 'main': 300 B allocated, but only 299 B claimed",
                                                   "ledger 'main': 300 B allocated, above its peak of 250 B"));
  dump.liveness = flight::Liveness::living;  // at any instant
  EXPECT_EQ(check_post_mortem(dump).size(), 2U);
}

TEST(CheckPostMortem, tags_add_up_once_nobody_is_at_work) {
  auto dump = sound();
  dump.ledgers[0].tags[1].bytes = 201;
  EXPECT_THAT(check_post_mortem(dump), ElementsAre("ledger 'main': its tags hold 301 B, but 300 B are allocated"));
  dump.in_flight.emplace_back();
  EXPECT_THAT(check_post_mortem(dump), IsEmpty());
  dump.in_flight.clear();
  dump.liveness = flight::Liveness::living;
  EXPECT_THAT(check_post_mortem(dump), IsEmpty());
  dump.liveness = flight::Liveness::dead;
  dump.ledgers[0].is_device_account = true;  // it has no tags and no slots of its own
  dump.live_bytes = 0;
  EXPECT_THAT(check_post_mortem(dump), IsEmpty());
}

TEST(CheckPostMortem, live_allocations_add_up_to_what_the_ledgers_have_in_slots) {
  auto dump = sound();
  dump.live_bytes = 300;
  EXPECT_THAT(check_post_mortem(dump), ElementsAre("live allocations of 300 B, but the ledgers have 250 B in slots"));
  dump = sound();
  dump.live_allocations = 1;
  EXPECT_THAT(check_post_mortem(dump), ElementsAre("2 live allocations are listed, of only 1"));
}

TEST(CheckPostMortem, events_are_listed_or_lost) {
  auto dump = sound();
  dump.lanes[0].main.lost = 1;
  EXPECT_THAT(check_post_mortem(dump), ElementsAre("lane 3, main ring: 8 events listed and 1 lost, of 10"));
  dump.lanes[0].main.lost = 3;  // one that its writer did not live to count
  EXPECT_THAT(check_post_mortem(dump), IsEmpty());
  dump.lanes[0].main.lost.reset();  // not asked for
  EXPECT_THAT(check_post_mortem(dump), IsEmpty());
  dump = sound();
  dump.events.pop_back();
  EXPECT_THAT(check_post_mortem(dump), ElementsAre("7 events, but the lanes have 8"));
}

TEST(CheckPostMortem, no_event_is_there_twice) {
  auto dump = sound();
  dump.events[7].number = 5;
  dump.events[6].number = 5;
  EXPECT_THAT(check_post_mortem(dump), ElementsAre("event 5 of lane 3 is there twice"));
}

}  // namespace
}  // namespace headroom::test
