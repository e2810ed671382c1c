// Peaks, leaks, fragmentation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scripted_source.hpp"

namespace headroom::follow {
namespace {

TEST(FollowPeak, names_the_instant_and_who_held_what) {
  auto const script = named_script();
  script->allocate(100, 0x1000, 300, 5);
  script->allocate(200, 0x2000, 200, 6);
  script->allocate(210, 0x3000, 50, 6);
  script->free(300, 0x2000, 200, 6);
  script->allocate(400, 0x4000, 200, 5);  // as high again: no new peak
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const peak = model.peak(0);
  EXPECT_EQ(peak.bytes, 550U);
  EXPECT_EQ(peak.ticks, 210U);
  EXPECT_FALSE(peak.from_books);
  ASSERT_EQ(peak.tags.size(), 2U);
  EXPECT_EQ(peak.tags[0].name, "weights");
  EXPECT_EQ(peak.tags[0].bytes, 300U);
  EXPECT_EQ(peak.tags[1].bytes, 250U);
  EXPECT_EQ(peak.tags[1].allocations, 2U);
}

TEST(FollowPeak, before_the_kept_past_it_is_what_the_books_noted) {
  auto const script = named_script();
  script->record = false;
  script->allocate(10, 0x1000, 900, 5);
  script->free(20, 0x1000, 900, 5);
  script->record = true;
  script->allocate(100, 0x2000, 10, 6);
  script->book().tags = {{.id = 5, .name = "weights", .bytes = 0, .at_peak_bytes = 800, .allocations = 1}};
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const peak = model.peak(0);
  EXPECT_EQ(peak.bytes, 900U);
  EXPECT_FALSE(peak.ticks.has_value());
  EXPECT_TRUE(peak.from_books);
  ASSERT_EQ(peak.tags.size(), 1U);
  EXPECT_EQ(peak.tags[0].bytes, 800U);
  EXPECT_EQ(peak.unattributed_bytes, 100U);
  EXPECT_EQ(model.state_at(0, 100).peak, 900U) << "nothing since came up to it";
}

TEST(FollowPeak, within_a_past_that_began_in_the_middle_it_is_known_from_then_on) {
  auto const script = named_script();
  script->record = false;
  script->allocate(10, 0x1000, 100, 5);
  script->record = true;
  script->allocate(100, 0x2000, 10, 6);
  script->allocate(200, 0x3000, 50, 6);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_FALSE(model.state_at(0, 150).peak.has_value()) << "it was between 110 and 159: nobody knows";
  EXPECT_EQ(model.state_at(0, 200).peak, 160U);
}

TEST(FollowPeak, a_reset_begins_a_new_one) {
  auto const script = named_script();
  script->allocate(100, 0x1000, 900, 5);
  script->free(200, 0x1000, 900, 5);
  script->allocate(210, 0x1000, 10, 5);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(0, 210).peak, 900U);
  script->book().peak = 10;  // reset
  ASSERT_TRUE(model.catch_up());
  script->allocate(300, 0x2000, 5, 6);
  ASSERT_TRUE(model.catch_up());
  EXPECT_EQ(model.state_at(0, 205).peak, 900U);
  auto const state = model.state_at(0, 300);
  EXPECT_EQ(state.peak, 15U);
  EXPECT_EQ(state.known, Known::exact);
  EXPECT_EQ(model.losses().gaps, 0U);
  EXPECT_EQ(model.peak(0).bytes, 15U);
}

TEST(FollowLeaks, groups_what_outlived_an_instant_by_tag_and_site) {
  auto const script = named_script();
  script->allocate(100, 0x1000, 10, 5, 20);
  script->allocate(110, 0x2000, 20, 5, 20);
  script->allocate(120, 0x3000, 100, 6, 21);
  script->allocate(130, 0x4000, 1000, 6, 21);
  script->free(140, 0x4000, 1000, 6);
  script->allocate(200, 0x5000, 5000, 6, 21);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const leaks = model.alive_since(0, 200, 300);
  EXPECT_EQ(leaks.known, Known::exact);
  EXPECT_EQ(leaks.bytes, 130U);
  EXPECT_EQ(leaks.allocations, 3U);
  ASSERT_EQ(leaks.groups.size(), 2U);
  EXPECT_EQ(leaks.groups[0].tag, "cache");
  EXPECT_EQ(leaks.groups[0].site, "b.cpp:2 g");
  EXPECT_EQ(leaks.groups[0].bytes, 100U);
  EXPECT_EQ(leaks.groups[1].tag, "weights");
  EXPECT_EQ(leaks.groups[1].allocations, 2U);
  EXPECT_EQ(leaks.groups[1].oldest_ticks, 100U);
  EXPECT_EQ(model.alive_since(0, 130, 135).bytes, 130U) << "the block of 130 is not older than 130";
  EXPECT_EQ(model.alive_since(0, 131, 135).bytes, 1130U) << "as of an instant of the past";
}

TEST(FollowLeaks, a_block_of_unknown_age_is_older_than_the_kept_past_only) {
  auto const script = named_script();
  script->record = false;
  script->allocate(10, 0x1000, 100, 5);
  script->record = true;
  script->allocate(100, 0x2000, 1, 6);
  auto const late_free = script->make_free(500, 0x1000, 100, 5);
  script->put(late_free);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const leaks = model.alive_since(0, 150, 400);
  EXPECT_EQ(leaks.bytes, 101U);
  EXPECT_FALSE(leaks.groups[0].oldest_ticks.has_value());
  EXPECT_EQ(model.alive_since(0, 99, 400).bytes, 0U) << "perhaps, but nobody knows";
}

TEST(FollowFragmentation, is_of_the_holes_between_blocks) {
  auto const script = named_script();
  // 1,000 bytes: [0, 100) used, [100, 400) free, [400, 500) used, [500, 600) free, [600, 700) used, [700, 1000) + nothing.
  script->regions = {{.begin = 0x10000, .bytes = 1000}};
  script->allocate(100, 0x10000, 100);
  script->allocate(101, 0x10000 + 400, 100);
  script->allocate(102, 0x10000 + 600, 100);
  script->allocate(200, 0x10000 + 700, 300);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  auto const then = model.fragmentation_at(0, 150).value();
  EXPECT_EQ(then.region_bytes, 1000U);
  EXPECT_EQ(then.free_bytes, 700U);
  EXPECT_EQ(then.largest_hole, 300U);
  EXPECT_EQ(then.holes, 3U);
  EXPECT_DOUBLE_EQ(then.fragmentation.value(), 1.0 - 300.0 / 700.0);
  auto const now = model.fragmentation_at(0, 200).value();
  EXPECT_EQ(now.free_bytes, 400U);
  EXPECT_EQ(now.holes, 2U);
  EXPECT_DOUBLE_EQ(now.fragmentation.value(), 0.25);
}

TEST(FollowFragmentation, of_a_full_region_is_absent_and_of_an_empty_one_zero) {
  std::vector<AddressRegion> const regions{{.begin = 100, .bytes = 50}};
  EXPECT_FALSE(fragmentation_of(regions, std::vector<LiveBlock>{{.address = 100, .bytes = 50}}).fragmentation.has_value());
  EXPECT_EQ(fragmentation_of(regions, {}).fragmentation, 0.0);
  EXPECT_EQ(fragmentation_of({}, {}).region_bytes, 0U);
}

TEST(FollowFragmentation, takes_overlaps_strays_and_the_end_of_the_address_space) {
  auto const top = ~std::uint64_t{0} - 99;
  std::vector<AddressRegion> const regions{{.begin = top, .bytes = 100}, {.begin = 0, .bytes = 100}, {.begin = 50, .bytes = 100}};
  std::vector<LiveBlock> const blocks{
      {.address = top, .bytes = 40},                                 // at the end of all addresses
      {.address = 140, .bytes = 20},                                 // half of it outside
      {.address = 10, .bytes = 20},                                  // twice the same
      {.address = 10, .bytes = 20},  {.address = 5000, .bytes = 7},  // nowhere
  };
  auto const answer = fragmentation_of(regions, blocks);
  EXPECT_EQ(answer.region_bytes, 250U);
  EXPECT_EQ(answer.free_bytes, 10U + 110 + 60);
  EXPECT_EQ(answer.largest_hole, 110U);
  EXPECT_EQ(answer.holes, 3U);
  EXPECT_EQ(answer.bytes_outside, 10U + 7);
}

TEST(FollowFragmentation, is_absent_where_no_region_is_known) {
  auto const script = named_script();
  script->allocate(100, 0x1000, 10);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  EXPECT_FALSE(model.fragmentation_at(0, 100).has_value());
}

TEST(FollowSeries, a_gap_has_no_value) {
  auto const script = named_script();
  script->allocate(100, 0x1000, 10);
  auto model = model_of(script);
  ASSERT_TRUE(model.catch_up());
  script->record = false;
  script->allocate(250, 0x2000, 5);
  script->record = true;
  script->allocate(400, 0x3000, 1);
  ASSERT_TRUE(model.catch_up());
  auto const columns = model.series(0, std::nullopt, 0, 500, 5);
  ASSERT_EQ(columns.size(), 5U);
  EXPECT_EQ(columns[0].known, Known::exact);
  EXPECT_EQ(columns[0].high, 0U) << "before its first operation a ledger holds nothing";
  EXPECT_EQ(columns[1].high, 10U);
  EXPECT_EQ(columns[1].known, Known::gap) << "its first instant is known, the rest is not";
  EXPECT_FALSE(columns[2].has_value);
  EXPECT_EQ(columns[2].known, Known::gap);
  EXPECT_EQ(columns[4].low, 15U) << "just before the first operation after the gap";
  EXPECT_EQ(columns[4].high, 16U);
  EXPECT_TRUE(model.series(0, std::nullopt, 5, 5, 10).empty());
  EXPECT_TRUE(model.series(0, std::nullopt, 0, 5, 0).empty());
  EXPECT_FALSE(model.series(9, std::nullopt, 0, 5, 1)[0].has_value);
  EXPECT_EQ(model.series(0, "no such tag", 100, 101, 1)[0].high, 0U);
}

}  // namespace
}  // namespace headroom::follow
