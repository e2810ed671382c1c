// Snapshots of PyTorch as sources of a model: a ledger for each device, with the names that were recorded.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/follow.hpp>
#include <headroom/torch_snapshot.hpp>
#include <headroom/trace.hpp>

#include "made_snapshots.hpp"

namespace headroom::follow {
namespace {

using test::made::block;
using test::made::entry;
using test::made::frame;
using test::made::segment;
using test::made::snapshot;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
namespace pickled = test::pickled;

constexpr auto kEnd = ~std::uint64_t{0};

std::string data(std::string_view name) { return std::string{HEADROOM_TEST_DATA} + '/' + std::string{name}; }

TEST(FollowSnapshot, a_real_one_gives_pytorchs_figures) {
  auto model = Model::open_history(data("torch-2026-begins-in-the-middle.pickle.xz")).value();
  ASSERT_TRUE(model.catch_up());
  EXPECT_TRUE(model.ended());
  ASSERT_THAT(model.ledgers(), SizeIs(1));
  EXPECT_EQ(model.ledgers()[0].name, "device 0");
  EXPECT_EQ(model.ledgers()[0].device_ordinal, 0);
  EXPECT_EQ(model.peak(0).bytes, 13'923'997'700U);
  auto const end = model.state_at(0, kEnd);
  EXPECT_EQ(end.known, Known::exact);
  EXPECT_EQ(end.allocated, 1'373'919'236U);
  EXPECT_EQ(end.live_allocations, 229U);
  EXPECT_EQ(model.losses().gaps, 0U);
  // What was live before is so from the first entry on.
  EXPECT_EQ(model.first_ticks(), 1'776'479'641'085'369U) << "its microsecond, and one";
  auto const beginning = model.state_at(0, model.first_ticks());
  EXPECT_EQ(beginning.known, Known::exact);
  EXPECT_EQ(beginning.allocated, 1'373'919'236U + 25'165'824U) << "with the first entry's own";
}

TEST(FollowSnapshot, a_real_failure_is_a_story_with_its_site) {
  auto model = Model::open_history(data("torch-2.11-whole.pickle.xz")).value();
  ASSERT_TRUE(model.catch_up());
  auto const stories = model.failures();
  ASSERT_THAT(stories, SizeIs(1));
  EXPECT_EQ(stories[0].requested, 4'398'046'511'104U);
  EXPECT_EQ(stories[0].site, "probe.py:41 <module>");
  EXPECT_EQ(stories[0].ledger_name, "device 0");
  EXPECT_EQ(stories[0].end, FailureEnd::failed);
}

TEST(FollowSnapshot, annotations_are_marks_in_the_order_of_time) {
  auto model = Model::open_history(data("torch-2.11-whole.pickle.xz")).value();
  ASSERT_TRUE(model.catch_up());
  std::vector<std::string> marks;
  std::uint64_t before = 0;
  model.for_each_journal_event(0, kEnd, [&](flight::Event const& event) {
    EXPECT_LE(before, event.ticks);
    before = event.ticks;
    if (event.kind != flight::EventKind::mark) return;
    auto const label = model.source().name(static_cast<std::uint32_t>(event.words[6]));
    ASSERT_TRUE(label);
    EXPECT_EQ(label->kind, flight::EntryKind::mark);
    marks.push_back(label->label + (event.words[2] != 0 ? " begins" : " ends"));
  });
  ASSERT_THAT(marks, SizeIs(26));
  EXPECT_EQ(marks[0], "training begins");
  EXPECT_EQ(marks[1], "Optimizer.step#Adam.step begins");
  EXPECT_EQ(marks[2], "Optimizer.step#Adam.step ends");
  EXPECT_EQ(marks[25], "training ends");
}

class MadeSource : public testing::Test {
protected:
  std::string write(std::string const& pickle) {
    std::ofstream{path_, std::ios::binary} << pickle;
    return path_;
  }
  void TearDown() override { static_cast<void>(std::remove(path_.c_str())); }

private:
  std::string path_ = testing::TempDir() + "follow-snapshot-" + std::to_string(::getpid()) + ".pickle";
};

// Device 0 from 1,000 µs on, device 2 before it, with the same address.
std::string two_devices() {
  auto const frames = pickled::list({frame("model.py", 7, "forward"), frame("train.py", 3, "main")});
  return snapshot(
      {segment(2, 0x1000, 1024, {block({.bytes = 1024, .requested = 1000, .more = {{"category", pickled::text("weights")}}})})},
      {{entry("alloc", 0x10, 100, 1'000, {{"frames", frames}, {"category", pickled::text("activations")}}),
        entry("alloc", 0x20, 50, 1'010), entry("oom", 0, 7, 1'015, {{"frames", frames}}),
        entry("free_completed", 0x10, 100, 1'020)},
       {},
       {entry("alloc", 0x10, 30, 500), entry("free_completed", 0x10, 30, 600)}},
      {{"external_annotations", pickled::list({pickled::dict({{"stage", pickled::text("START")},
                                                              {"name", pickled::text("of a device without records")},
                                                              {"device", pickled::integer(1)},
                                                              {"time_us", pickled::integer(1)}})})}});
}

TEST_F(MadeSource, devices_are_ledgers_with_times_of_their_own) {
  auto model = Model::open_history(write(two_devices())).value();
  ASSERT_TRUE(model.catch_up());
  ASSERT_THAT(model.ledgers(), SizeIs(2));
  EXPECT_EQ(model.ledgers()[1].name, "device 2");
  EXPECT_EQ(model.ledgers()[1].device_ordinal, 2);
  EXPECT_EQ(model.peak(0).bytes, 150U);
  EXPECT_EQ(model.peak(1).bytes, 1'030U);
  EXPECT_EQ(model.state_at(1, 501).allocated, 1'030U);
  EXPECT_EQ(model.state_at(1, 601).allocated, 1'000U);
  EXPECT_EQ(model.state_at(1, 601).known, Known::exact);
  EXPECT_EQ(model.state_at(0, 1'011).allocated, 150U);
  EXPECT_EQ(model.state_at(0, kEnd).allocated, 50U);
  EXPECT_EQ(model.first_ticks(), 501U);
  EXPECT_EQ(model.last_ticks(), 1'021U);
  EXPECT_EQ(model.losses().operations_missing, 0U);
}

TEST_F(MadeSource, tags_sites_and_stacks_have_their_names) {
  auto model = Model::open_history(write(two_devices())).value();
  ASSERT_TRUE(model.catch_up());
  auto const then = model.state_at(0, 1'001);
  ASSERT_THAT(then.tags, SizeIs(1));
  EXPECT_EQ(then.tags[0].name, "activations");
  EXPECT_EQ(then.tags[0].bytes, 100U);
  auto const live = model.live_at(0, 1'011);
  ASSERT_THAT(live, SizeIs(2));
  EXPECT_EQ(live[0].site, "model.py:7 forward");
  EXPECT_EQ(live[0].tag, "activations");
  EXPECT_EQ(live[1].site, "");
  auto const from_before = model.live_at(1, kEnd);
  ASSERT_THAT(from_before, SizeIs(1));
  EXPECT_EQ(from_before[0].tag, "weights");
  EXPECT_EQ(from_before[0].bytes, 1'000U);
  ASSERT_THAT(model.failures(), SizeIs(1));

  auto source = open_history_source(write(two_devices())).value();
  News news;
  while (!news.ended) ASSERT_TRUE(source->read(news));
  auto const site = static_cast<std::uint32_t>(news.events.front().words[6]);
  EXPECT_EQ(source->name(site)->kind, flight::EntryKind::site);
  EXPECT_EQ(source->stack_of(site), "train.py:3 main;model.py:7 forward");
  EXPECT_EQ(source->stack_of(0), "");
  EXPECT_FALSE(source->name(0));
  for (auto const& event : news.events) EXPECT_NE(event.kind, flight::EventKind::mark) << "device 1 has no records";
  auto const books = source->ledgers();
  ASSERT_THAT(books, SizeIs(2));
  EXPECT_EQ(books[0].peak, 150U);
  EXPECT_EQ(books[0].counters.allocations, 2U);
  EXPECT_EQ(books[0].failures(), 1U);
  std::uint64_t tagged_at_peak = 0;
  for (auto const& tag : books[0].tags) {
    if (tag.name == "activations") tagged_at_peak = tag.at_peak_bytes;
  }
  EXPECT_EQ(tagged_at_peak, 100U);
  std::vector<std::uint32_t> ledgers;
  source->for_each_live([&](flight::LiveAllocation const& allocation) { ledgers.push_back(allocation.ledger); });
  EXPECT_THAT(ledgers, testing::UnorderedElementsAre(0, 1));
}

TEST_F(MadeSource, the_state_at_the_end_is_there_and_its_segments_are_no_regions) {
  auto const source = open_history_source(write(two_devices())).value();
  ASSERT_NE(source->torch_snapshot(), nullptr);
  EXPECT_THAT(source->torch_snapshot()->segments, SizeIs(1));
  EXPECT_THAT(source->regions(1), IsEmpty()) << "its blocks are smaller than in their segments";
  EXPECT_THAT(source->ledgers(), IsEmpty()) << "a ledger turns up with its first record";
}

TEST_F(MadeSource, only_the_chosen_device_is_followed) {
  auto reader = TraceReader::open(write(two_devices())).value();
  ASSERT_TRUE(reader.only_device(2));
  Model model{history_source(std::move(reader))};
  ASSERT_TRUE(model.catch_up());
  ASSERT_THAT(model.ledgers(), SizeIs(1));
  EXPECT_EQ(model.ledgers()[0].name, "device 2");
  EXPECT_EQ(model.peak(0).bytes, 1'030U);
}

TEST_F(MadeSource, more_than_a_ledger_can_hold_is_an_error_with_the_entry) {
  auto model =
      Model::open_history(write(snapshot({}, {{entry("alloc", 1, (1ULL << 44U) - 1, 1), entry("alloc", 2, 1, 1)}}))).value();
  auto const done = model.catch_up();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().kind, ErrorKind::overflow);
  EXPECT_THAT(done.error().message, testing::HasSubstr(": device 0, entry 2: size 1 brings"));
}

TEST_F(MadeSource, each_tag_has_what_it_held_at_the_last_of_several_peaks) {
  auto const of = [](char const* tag) { return pickled::Fields{{"category", pickled::text(tag)}}; };
  auto const trace = std::vector{
      entry("alloc", 0x10, 100, 1, of("a")),  // peak 100
      entry("alloc", 0x20, 50, 2, of("b")),   // peak 150
      entry("free_completed", 0x10, 100, 3),  // a had 100 at that one
      entry("alloc", 0x30, 120, 4, of("c")),  // peak 170: b 50, c 120
      entry("free_completed", 0x20, 50, 5),   //
      entry("alloc", 0x40, 10, 6, of("a")),   // no peak
      entry("alloc", 0x50, 5, 7),             //
      entry("free_completed", 0x40, 10, 8),   //
      entry("alloc", 0x60, 35, 9, of("d")),   // 160: no peak
  };
  auto source = open_history_source(write(snapshot({}, {trace}))).value();
  News news;
  while (!news.ended) ASSERT_TRUE(source->read(news));
  auto const books = source->ledgers();
  ASSERT_THAT(books, SizeIs(1));
  EXPECT_EQ(books[0].peak, 170U);
  std::map<std::string, std::uint64_t> at_peak;
  for (auto const& tag : books[0].tags) at_peak[tag.name] = tag.at_peak_bytes;
  EXPECT_EQ(at_peak["a"], 0U);
  EXPECT_EQ(at_peak["b"], 50U);
  EXPECT_EQ(at_peak["c"], 120U);
  EXPECT_EQ(at_peak["d"], 0U);
}

}  // namespace
}  // namespace headroom::follow
