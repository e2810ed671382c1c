// How entries and blocks become records, on snapshots that are small enough to be worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/torch_snapshot.hpp>

#include "histories.hpp"
#include "made_snapshots.hpp"

namespace headroom::test {
namespace {

using made::block;
using made::entry;
using made::segment;
using made::snapshot;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using enum TraceEvent::Action;

class MadeSnapshot : public testing::Test {
protected:
  [[nodiscard]] TraceReader open(std::string const& pickle) const { return TraceReader::open(folder_.write(pickle)).value(); }
  [[nodiscard]] std::vector<TraceEvent> events_of(std::string const& pickle) const {
    auto all = read_all(folder_.write(pickle));
    EXPECT_EQ(all.error, "");
    return std::move(all.events);
  }
  [[nodiscard]] TraceSummary summary_of(std::string const& pickle) const {
    return summarize_trace(folder_.write(pickle)).value();
  }

  TempFolder folder_;
};

TEST_F(MadeSnapshot, entries_become_records) {
  auto const events = events_of(snapshot(
      {}, {{entry("segment_alloc", 0x1000, 4096, 4), entry("alloc", 0x1000, 100, 5), entry("free_requested", 0x1000, 100, 6),
            entry("free_completed", 0x1000, 100, 7), entry("segment_free", 0x1000, 4096, 8)}}));
  EXPECT_THAT(events, ElementsAre((TraceEvent{allocate, 0, 5, 0x1000, 100, 0, 2}), (TraceEvent{free, 0, 7, 0x1000, 100, 0, 4})));
}

TEST_F(MadeSnapshot, a_trace_without_completions_is_freed_by_its_requests) {
  auto const pickle = snapshot({}, {{entry("alloc", 0x1000, 100, 5), entry("free_requested", 0x1000, 100, 6)}});
  EXPECT_THAT(events_of(pickle),
              ElementsAre((TraceEvent{allocate, 0, 5, 0x1000, 100, 0, 1}), (TraceEvent{free, 0, 6, 0x1000, 100, 0, 2})));
  EXPECT_EQ(open(pickle).snapshot()->free_requests, 1U);
}

TEST_F(MadeSnapshot, which_entry_is_the_free_is_each_devices_own_matter) {
  auto const events = events_of(
      snapshot({}, {{entry("alloc", 0x10, 1, 1), entry("free_requested", 0x10, 1, 2)},
                    {entry("alloc", 0x10, 1, 1), entry("free_requested", 0x10, 1, 2), entry("free_completed", 0x10, 1, 3)}}));
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[1], (TraceEvent{.action = free, .time_us = 2, .pointer = 0x10, .bytes = 1, .line = 2, .device = 0}));
  EXPECT_EQ(events[3], (TraceEvent{.action = free, .time_us = 3, .pointer = 0x10, .bytes = 1, .line = 3, .device = 1}));
}

TEST_F(MadeSnapshot, out_of_memory_is_a_failed_allocation_and_needs_no_address) {
  auto const oom = pickled::dict({{"action", pickled::text("oom")},
                                  {"device_free", pickled::integer(7)},
                                  {"size", pickled::integer(1ULL << 42U)},
                                  {"stream", pickled::integer(3)},
                                  {"time_us", pickled::integer(9)}});
  EXPECT_THAT(events_of(snapshot({}, {{oom}})), ElementsAre((TraceEvent{allocate_failure, 0, 9, 0, 1ULL << 42U, 3, 1})));
}

TEST_F(MadeSnapshot, what_is_freed_without_an_allocation_was_live_before) {
  // 0x30 is live before; 0x20 too, and the second free of it has nothing to free.
  auto const pickle = snapshot({}, {{entry("alloc", 0x10, 5, 100), entry("free_completed", 0x30, 7, 101),
                                     entry("free_completed", 0x20, 9, 102), entry("free_completed", 0x20, 9, 103),
                                     entry("free_completed", 0x10, 5, 104), entry("free_completed", 0x10, 5, 105)}});
  auto const events = events_of(pickle);
  ASSERT_THAT(events, SizeIs(8));
  EXPECT_EQ(events[0], (TraceEvent{.time_us = 100, .pointer = 0x20, .bytes = 9, .from_before = true})) << "by address";
  EXPECT_EQ(events[1], (TraceEvent{.time_us = 100, .pointer = 0x30, .bytes = 7, .from_before = true}));
  auto const summary = summary_of(pickle);
  EXPECT_EQ(summary.from_before_allocations, 2U);
  EXPECT_EQ(summary.from_before_bytes, 16U);
  EXPECT_EQ(summary.allocations, 1U);
  EXPECT_EQ(summary.peak_bytes, 21U);
  EXPECT_EQ(summary.unmatched_frees, 2U) << "the second frees of 0x20 and 0x10";
  EXPECT_EQ(summary.events, 6U);
}

TEST_F(MadeSnapshot, active_blocks_that_no_entry_mentions_were_live_before_wherever_the_segments_stand) {
  auto const segments =
      std::vector{segment(0, 0x1000, 0x1000,
                          {block({.address = 0x1000, .bytes = 512, .requested = 500}),
                           block({.address = 0x1200, .bytes = 512, .requested = 300, .state = "active_awaiting_free"}),
                           block({.address = 0x1400, .bytes = 512, .requested = 200, .state = "inactive"}),
                           block({.address = 0x1600, .bytes = 512})})};
  auto const trace = std::vector{entry("alloc", 0x1000, 500, 50)};
  auto const before = snapshot(segments, {trace});
  auto const behind = pickled::pickle(
      pickled::dict({{"device_traces", pickled::list({pickled::list(trace)})}, {"segments", pickled::list(segments)}}));
  for (auto const& pickle : {before, behind}) {
    EXPECT_THAT(events_of(pickle), ElementsAre((TraceEvent{.time_us = 50, .pointer = 0x1200, .bytes = 300, .from_before = true}),
                                               (TraceEvent{.time_us = 50, .pointer = 0x1600, .bytes = 512, .from_before = true}),
                                               (TraceEvent{allocate, 0, 50, 0x1000, 500, 0, 1})));
    auto const reader = open(pickle);
    EXPECT_EQ(reader.snapshot()->from_before_allocations, 2U);
    EXPECT_EQ(reader.snapshot()->from_before_bytes, 812U);
    EXPECT_EQ(reader.snapshot()->rounded_blocks, 1U) << "of 0x1600 nobody knows what was asked for";
    auto const figures = cache_figures(*reader.snapshot());
    ASSERT_THAT(figures, SizeIs(1));
    EXPECT_EQ(figures[0].active_bytes, 1536U);
    EXPECT_EQ(figures[0].allocated_bytes, 1024U) << "without the block that waits for its stream";
    EXPECT_EQ(figures[0].largest_inactive_bytes, 512U);
    EXPECT_EQ(figures[0].fragmentation, 0.0);
  }
}

TEST_F(MadeSnapshot, an_active_block_whose_address_the_history_freed_is_of_no_history) {
  auto const pickle = snapshot({segment(0, 0x1000, 512, {block({.address = 0x1000, .bytes = 512, .requested = 500})})},
                               {{entry("alloc", 0x1000, 400, 1), entry("free_completed", 0x1000, 400, 2)}});
  EXPECT_THAT(events_of(pickle), SizeIs(2));
  EXPECT_EQ(open(pickle).snapshot()->unexplained_blocks, 1U);
  EXPECT_EQ(open(pickle).snapshot()->from_before_allocations, 0U);
}

TEST_F(MadeSnapshot, a_list_is_the_segments_alone) {
  auto const pickle = pickled::pickle(pickled::list({segment(1, 0x1000, 512, {block({.bytes = 512, .requested = 500})}),
                                                     segment(0, 0x1000, 512, {block({.bytes = 512, .requested = 400})})}));
  auto const reader = open(pickle);
  EXPECT_THAT(reader.devices(), ElementsAre(0, 1));
  EXPECT_THAT(events_of(pickle), ElementsAre((TraceEvent{.pointer = 0x1000, .bytes = 400, .device = 0, .from_before = true}),
                                             (TraceEvent{.pointer = 0x1000, .bytes = 500, .device = 1, .from_before = true})));
  EXPECT_EQ(reader.snapshot()->segments[0].device, 0U);
}

TEST_F(MadeSnapshot, devices_come_one_after_the_other_and_one_can_be_chosen) {
  // Device 1 has segment entries only, device 3 no trace at all.
  auto const pickle = snapshot({segment(3, 0x10, 512, {block({.bytes = 512, .requested = 3})})},
                               {{entry("alloc", 0x10, 1, 5)},
                                {entry("segment_alloc", 0x10, 512, 6)},
                                {entry("alloc", 0x10, 2, 4), entry("free_completed", 0x20, 8, 5)}});
  auto reader = open(pickle);
  EXPECT_THAT(reader.devices(), ElementsAre(0, 2, 3));
  auto const wrong = reader.only_device(1);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(wrong.error().message, reader.name() + ": device 1 has no records; expected one that has records: 0, 2, 3");
  EXPECT_THAT(events_of(pickle),
              ElementsAre((TraceEvent{allocate, 0, 5, 0x10, 1, 0, 1, 0}),
                          (TraceEvent{.time_us = 4, .pointer = 0x20, .bytes = 8, .device = 2, .from_before = true}),
                          (TraceEvent{allocate, 0, 4, 0x10, 2, 0, 1, 2}), (TraceEvent{free, 0, 5, 0x20, 8, 0, 2, 2}),
                          (TraceEvent{.pointer = 0x10, .bytes = 3, .device = 3, .from_before = true})));
  reader = open(pickle);  // events_of() wrote the file anew
  auto const summary = summarize_trace(reader).value();
  EXPECT_EQ(summary.duplicate_allocations, 0U) << "an address is a device's own";
  EXPECT_EQ(summary.peak_bytes, 1U + 10U + 3U);
  EXPECT_EQ(summary.live_bytes, 6U);
  EXPECT_THAT(summary.devices,
              ElementsAre((DeviceSum{.device = 0, .allocations = 1, .peak_bytes = 1, .live_bytes = 1, .live_allocations = 1}),
                          (DeviceSum{.device = 2,
                                     .allocations = 1,
                                     .frees = 1,
                                     .from_before_allocations = 1,
                                     .from_before_bytes = 8,
                                     .peak_bytes = 10,
                                     .live_bytes = 2,
                                     .live_allocations = 1}),
                          (DeviceSum{.device = 3,
                                     .from_before_allocations = 1,
                                     .from_before_bytes = 3,
                                     .peak_bytes = 3,
                                     .live_bytes = 3,
                                     .live_allocations = 1})));

  auto chosen = open(pickle);
  ASSERT_TRUE(chosen.only_device(2));
  EXPECT_THAT(chosen.devices(), ElementsAre(2));
  auto const of_two = summarize_trace(chosen).value();
  EXPECT_EQ(of_two.peak_bytes, 10U);
  EXPECT_THAT(of_two.devices, SizeIs(1));
}

TEST_F(MadeSnapshot, times_that_are_missing_are_those_of_the_entry_before) {
  auto const without_time = [](std::uint64_t address) {
    return pickled::dict(
        {{"action", pickled::text("alloc")}, {"addr", pickled::integer(address)}, {"size", pickled::integer(1)}});
  };
  auto const events = events_of(snapshot({}, {{without_time(0x10), entry("segment_alloc", 0x10, 1, 77), without_time(0x20)}}));
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].time_us, 0U);
  EXPECT_EQ(events[1].time_us, 77U);
  EXPECT_EQ(events[1].stream, 0U);
}

TEST_F(MadeSnapshot, negative_streams_are_their_64_bits) {
  auto const pickle = snapshot({}, {{pickled::dict({{"action", pickled::text("alloc")},
                                                    {"addr", pickled::integer(1)},
                                                    {"size", pickled::integer(1)},
                                                    {"stream", pickled::negative(-2)}})}});
  EXPECT_EQ(events_of(pickle).front().stream, 0xFFFF'FFFF'FFFF'FFFEU);
}

TEST_F(MadeSnapshot, numbers_may_have_all_64_bits) {
  auto const event = events_of(snapshot({}, {{entry("alloc", ~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0})}})).front();
  EXPECT_EQ(event.pointer, ~std::uint64_t{0});
  EXPECT_EQ(event.bytes, ~std::uint64_t{0});
  EXPECT_EQ(event.time_us, ~std::uint64_t{0});
}

TEST_F(MadeSnapshot, unknown_actions_and_keys_are_no_harm) {
  auto const pickle = snapshot({},
                               {{entry("alloc", 0x10, 1, 1, {{"frobnicated", pickled::list({pickled::none()})}}),
                                 pickled::dict({{"action", pickled::text("frobnicate")}})}},
                               {{"more", pickled::list({pickled::text("x"), pickled::dict({})})}});
  EXPECT_THAT(events_of(pickle), SizeIs(1));
  auto const reader = open(pickle);
  EXPECT_EQ(reader.snapshot()->unknown_actions, 1U);
  EXPECT_EQ(reader.snapshot()->entries, 2U);
}

TEST_F(MadeSnapshot, a_category_is_the_tag_and_else_the_metadata) {
  auto reader = open(snapshot(
      {}, {{entry("alloc", 0x10, 1, 1, {{"category", pickled::text("activation")}, {"user_metadata", pickled::text("step 1")}}),
            entry("alloc", 0x20, 1, 1, {{"user_metadata", pickled::text("step 1")}}),
            entry("alloc", 0x30, 1, 1, {{"user_metadata", pickled::text("")}}),
            entry("alloc", 0x40, 1, 1, {{"user_metadata", pickled::dict({})}}),
            entry("free_completed", 0x10, 1, 1, {{"category", pickled::text("activation")}})}}));
  std::vector<std::string> tags;
  TraceEvent event;
  while (*reader.next(event)) tags.emplace_back(reader.name_of(event.tag));
  EXPECT_THAT(tags, ElementsAre("activation", "step 1", "", "", "activation"));
  EXPECT_EQ(reader.name_of(0), "");
  EXPECT_EQ(reader.name_of(99), "");
}

TEST_F(MadeSnapshot, stacks_are_told_outermost_first_and_shared_ones_have_one_id) {
  auto const inner = made::frame("model;v2.py", 12, "forward");
  auto const outer = made::frame("train.py", 3, "main");
  auto const frames = pickled::list({inner, outer});
  auto reader = open(snapshot(
      {}, {{entry("alloc", 0x10, 1, 1, {{"frames", pickled::remembered(frames, 0)}}),
            entry("alloc", 0x20, 1, 1, {{"frames", pickled::again(0)}}), entry("alloc", 0x30, 1, 1, {{"frames", frames}}),
            entry("alloc", 0x40, 1, 1, {{"frames", pickled::list({inner})}}),
            entry("alloc", 0x50, 1, 1, {{"frames", pickled::list(std::initializer_list<made::Opcodes>{})}})}}));
  std::vector<std::uint32_t> sites;
  TraceEvent event;
  while (*reader.next(event)) sites.push_back(event.site);
  ASSERT_THAT(sites, SizeIs(5));
  EXPECT_EQ(sites[1], sites[0]);
  EXPECT_EQ(sites[2], sites[0]);
  EXPECT_NE(sites[3], sites[0]) << "another stack of the same innermost frame";
  EXPECT_EQ(sites[4], 0U);
  EXPECT_EQ(reader.name_of(sites[0]), "model;v2.py:12 forward");
  EXPECT_EQ(reader.stack_of(sites[0]), "train.py:3 main;model:v2.py:12 forward");
  EXPECT_EQ(reader.stack_of(sites[3]), "model:v2.py:12 forward");
  EXPECT_EQ(reader.stack_of(0), "");
  EXPECT_EQ(reader.stack_of(999), "");
}

TEST_F(MadeSnapshot, a_block_brings_its_site_and_tag_and_its_history_of_2023_what_was_asked_for) {
  auto const frames = pickled::list({made::frame("a.py", 1, "f")});
  auto const history = pickled::list(
      {pickled::dict({{"addr", pickled::integer(0x1000)}, {"real_size", pickled::integer(77)}, {"frames", frames}})});
  auto reader = open(snapshot(
      {segment(0, 0x1000, 1024,
               {block({.bytes = 512, .more = {{"history", history}}}),
                block({.bytes = 512, .requested = 500, .more = {{"frames", frames}, {"category", pickled::text("weights")}}})})},
      {}));
  TraceEvent event;
  ASSERT_TRUE(*reader.next(event));
  EXPECT_EQ(event.bytes, 77U);
  EXPECT_EQ(event.pointer, 0x1000U);
  EXPECT_EQ(reader.name_of(event.site), "a.py:1 f");
  ASSERT_TRUE(*reader.next(event));
  EXPECT_EQ(event.pointer, 0x1200U) << "the first one's end";
  EXPECT_EQ(reader.name_of(event.tag), "weights");
  EXPECT_EQ(reader.snapshot()->rounded_blocks, 0U);
}

TEST_F(MadeSnapshot, annotations_and_settings_are_kept_and_what_is_none_is_counted) {
  auto const annotation = [](std::string_view stage, std::string_view name) {
    return pickled::dict({{"stage", pickled::text(stage)},
                          {"name", pickled::text(name)},
                          {"device", pickled::integer(0)},
                          {"time_us", pickled::integer(5)}});
  };
  auto const reader = open(snapshot(
      {}, {},
      {{"external_annotations",
        pickled::list({annotation("START", "step"), annotation("END", "step"), annotation("PAUSE", "step"), pickled::none()})},
       {"allocator_settings", pickled::dict({{"PYTORCH_CUDA_ALLOC_CONF", pickled::text("expandable_segments:True")}})}}));
  auto const& state = *reader.snapshot();
  ASSERT_THAT(state.annotations, SizeIs(2));
  EXPECT_TRUE(state.annotations[0].begins);
  EXPECT_FALSE(state.annotations[1].begins);
  EXPECT_EQ(state.annotations[1].name, "step");
  EXPECT_EQ(state.annotations[1].time_us, 5U);
  EXPECT_EQ(state.annotations_left_out, 2U);
  EXPECT_EQ(state.allocator_settings, "expandable_segments:True");
}

TEST_F(MadeSnapshot, without_a_record_there_is_no_device) {
  auto reader = open(snapshot({segment(0, 0x1000, 512, {block({.bytes = 512, .state = "inactive"})})}, {{}}));
  EXPECT_THAT(reader.devices(), IsEmpty());
  EXPECT_TRUE(reader.next_batch()->empty());
  EXPECT_TRUE(reader.next_batch()->empty());
  auto const wrong = reader.only_device(0);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message, reader.name() + ": device 0 has no records; expected one that has records, and none has");
}

TEST_F(MadeSnapshot, traces_in_tuples_are_read_too) {
  auto const pickle =
      pickled::pickle(pickled::dict({{"segments", pickled::tuple({})},
                                     {"device_traces", pickled::tuple({pickled::list({entry("alloc", 0x10, 1, 1)}),
                                                                       pickled::tuple({entry("alloc", 0x20, 2, 1)})})}}));
  EXPECT_THAT(events_of(pickle),
              ElementsAre((TraceEvent{allocate, 0, 1, 0x10, 1, 0, 1, 0}), (TraceEvent{allocate, 0, 1, 0x20, 2, 0, 1, 1})));
}

}  // namespace
}  // namespace headroom::test
