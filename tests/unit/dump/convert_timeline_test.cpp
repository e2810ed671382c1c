// Timelines: what was live before, what is missing, what follows from it; worked out by hand. Ticks of a script are nanoseconds.
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "conversions.hpp"
#include "dump/timeline.hpp"
#include "made_snapshots.hpp"

namespace headroom::test {
namespace {

using dump::Timeline;
using flight::EventKind;
using follow::Script;
using Lines = std::vector<std::string>;

/// Writes down what it sees, a line each.
class Recorder final : public dump::TimelineVisitor {
public:
  void begin(dump::TimelineProcess const& process) override { names_ = process.names; }
  void ledger(dump::TimelineLedger const& ledger) override {
    lines.push_back("ledger " + std::to_string(ledger.id) + " " + ledger.name + " " + std::to_string(ledger.allocated) +
                    (ledger.unattributed == 0 ? "" : " unattributed " + std::to_string(ledger.unattributed)) +
                    (ledger.from_birth ? "" : " older") +
                    (ledger.operations_before ? " after " + std::to_string(*ledger.operations_before) : ""));
  }
  void before(dump::TimelineBlock const& block) override { lines.push_back("before" + text_of(block)); }
  void operation(dump::TimelineOperation const& operation) override {
    auto const is_allocation = operation.kind == EventKind::allocate;
    lines.push_back(std::to_string(operation.time_ns) + (is_allocation ? " allocate" : " free") + text_of(operation.block) +
                    " = " + std::to_string(operation.allocated_after) +
                    (operation.unattributed_after == 0 ? "" : " unattributed " + std::to_string(operation.unattributed_after)) +
                    (operation.known ? "" : " unknown") + (operation.assumed ? " assumed" : ""));
    if (lines.size() == most) is_stopped_ = true;
  }
  void gap(dump::TimelineGap const& gap) override {
    lines.push_back(std::to_string(gap.time_ns) + " gap of " + std::to_string(gap.missing) + " in " + std::to_string(gap.ledger) +
                    " = " + std::to_string(gap.allocated_after));
  }
  void note(dump::TimelineNote const& note) override {
    lines.push_back(std::to_string(note.time_ns) + " note " + std::to_string(static_cast<int>(note.kind)) + " " +
                    std::string{note.name});
  }
  void end(dump::TimelineEnd const& end) override {
    for (auto const& ledger : end.ledgers) {
      lines.push_back(std::to_string(end.time_ns) + " end of " + std::to_string(ledger.id) + " = " +
                      std::to_string(ledger.allocated) +
                      (ledger.unattributed == 0 ? "" : " unattributed " + std::to_string(ledger.unattributed)));
    }
  }
  [[nodiscard]] bool stopped() const noexcept override { return is_stopped_; }

  Lines lines;
  std::size_t most = ~std::size_t{0};

private:
  [[nodiscard]] std::string text_of(dump::TimelineBlock const& block) const {
    auto const tag = names_->tag(block.tag);
    auto const site = names_->site(block.site);
    return " " + std::to_string(block.ledger) + ":" + std::to_string(block.address) + "+" + std::to_string(block.bytes) +
           (tag.empty() ? "" : " " + std::string{tag}) + (site.empty() ? "" : " at " + std::string{site});
  }
  dump::TimelineNames const* names_ = nullptr;
  bool is_stopped_ = false;
};

Lines played(std::unique_ptr<follow::Source> source, dump::TimelineOptions options = {}) {
  Timeline timeline{std::move(source), std::move(options)};
  Recorder recorder;
  auto const done = timeline.play(recorder);
  EXPECT_TRUE(done) << done.error().message;
  return std::move(recorder.lines);
}

std::shared_ptr<Script> dead_script() {
  auto script = std::make_shared<Script>();
  script->name(1, "weights");
  script->name(2, "cache");
  script->name(9, "train.cpp:4");
  script->ended = true;
  script->book();
  return script;
}

TEST(ConvertTimeline, operations_come_in_order_with_the_tag_and_site_of_their_block) {
  auto const script = dead_script();
  script->allocate(1'000, 16, 100, 1, 9);
  script->allocate(1'500, 32, 50, 2);
  script->free(1'700, 16, 100, 1);
  EXPECT_EQ(played(source_of(script)),
            (Lines{"ledger 0 ledger 0 0", "0 allocate 0:16+100 weights at train.cpp:4 = 100", "500 allocate 0:32+50 cache = 150",
                   "700 free 0:16+100 weights at train.cpp:4 = 50", "700 end of 0 = 50"}));
}

TEST(ConvertTimeline, blocks_from_before_the_record_come_first) {
  auto const script = dead_script();
  script->record = false;
  script->allocate(10, 16, 100, 1);
  script->allocate(20, 32, 50, 2);
  script->record = true;
  script->free(1'000, 16, 100, 1);  // the oldest record: 16 is known by its free, 32 by the table
  EXPECT_EQ(played(source_of(script)), (Lines{"ledger 0 ledger 0 150 older after 2", "before 0:32+50 cache",
                                              "before 0:16+100 weights", "0 free 0:16+100 weights = 50", "0 end of 0 = 50"}));
}

TEST(ConvertTimeline, what_a_gap_swallowed_is_assumed_where_it_ends) {
  auto const script = dead_script();
  script->allocate(1'000, 16, 100, 1);
  script->allocate(1'100, 32, 50, 2);
  script->record = false;
  script->free(1'200, 16, 100, 1);
  script->allocate(1'300, 48, 7, 1);
  script->record = true;
  script->allocate(2'000, 64, 1, 2);
  EXPECT_EQ(played(source_of(script)),
            (Lines{"ledger 0 ledger 0 0", "0 allocate 0:16+100 weights = 100", "100 allocate 0:32+50 cache = 150",
                   "1000 gap of 2 in 0 = 57", "1000 free 0:16+100 weights = 57 assumed",
                   "1000 allocate 0:48+7 weights = 57 assumed", "1000 allocate 0:64+1 cache = 58", "1000 end of 0 = 58"}));
}

TEST(ConvertTimeline, a_block_that_is_live_before_and_after_several_gaps_stays_live) {
  auto const script = dead_script();
  script->allocate(1'000, 16, 100, 1);
  script->allocate(1'100, 32, 10, 2);
  script->record = false;
  script->allocate(1'200, 48, 7, 2);  // live to the end: the table tells since when
  script->free(1'300, 32, 10, 2);
  script->record = true;
  script->allocate(2'000, 64, 1, 2);
  script->record = false;
  script->allocate(2'100, 80, 20, 2);
  script->record = true;
  script->allocate(3'000, 96, 1, 2);
  // Between the gaps 107 are held: 100 and 7 are known, and leave no room for the 10, which so went in the first one.
  EXPECT_EQ(played(source_of(script)),
            (Lines{"ledger 0 ledger 0 0", "0 allocate 0:16+100 weights = 100", "100 allocate 0:32+10 cache = 110",
                   "1000 gap of 2 in 0 = 107", "1000 free 0:32+10 cache = 107 assumed",
                   "1000 allocate 0:48+7 cache = 107 assumed", "1000 allocate 0:64+1 cache = 108", "2000 gap of 1 in 0 = 128",
                   "2000 allocate 0:80+20 cache = 128 assumed", "2000 allocate 0:96+1 cache = 129", "2000 end of 0 = 129"}));
}

TEST(ConvertTimeline, what_may_have_gone_in_either_of_two_gaps_stays_while_the_ledger_holds_that_much) {
  auto const script = dead_script();
  script->allocate(1'000, 16, 100, 1);
  script->allocate(1'100, 32, 10, 2);
  script->record = false;
  script->allocate(1'200, 48, 30, 2);
  script->record = true;
  script->allocate(2'000, 64, 1, 2);
  script->record = false;
  script->free(2'100, 16, 100, 1);
  script->free(2'200, 48, 30, 2);
  script->record = true;
  script->allocate(3'000, 96, 1, 2);
  EXPECT_EQ(played(source_of(script)),
            (Lines{"ledger 0 ledger 0 0", "0 allocate 0:16+100 weights = 100", "100 allocate 0:32+10 cache = 110",
                   "1000 gap of 1 in 0 = 140", "1000 allocate 0:64+1 cache = 141 unattributed 30", "2000 gap of 2 in 0 = 11",
                   "2000 free 0:16+100 weights = 11 assumed", "2000 allocate 0:96+1 cache = 12", "2000 end of 0 = 12"}));
}

TEST(ConvertTimeline, an_earlier_owner_of_the_cell_is_not_the_manager_that_was_asked_for) {
  auto const script = dead_script();
  script->allocate(1'000, 16, 100, 1);
  script->free(1'100, 16, 100, 1);
  auto& book = script->book();
  book.name = "B";
  book.generation = 2;
  book.created_ticks = 1'200;
  book.peak = 0;
  book.counters = {};
  script->allocate(1'300, 32, 7, 2);
  EXPECT_EQ(played(source_of(script), {.manager = "B", .device = {}}),
            (Lines{"ledger 0 B 0", "0 allocate 0:32+7 cache = 7", "0 end of 0 = 7"}));
}

TEST(ConvertTimeline, blocks_that_nobody_saw_are_unattributed) {
  auto const script = dead_script();
  script->record = false;
  script->in_table = false;
  script->allocate(10, 16, 100, 1);
  script->record = true;
  script->in_table = true;
  script->allocate(1'000, 32, 50, 2);
  EXPECT_EQ(played(source_of(script)),
            (Lines{"ledger 0 ledger 0 100 unattributed 100 older after 1", "0 allocate 0:32+50 cache = 150 unattributed 100",
                   "0 end of 0 = 150 unattributed 100"}));
}

TEST(ConvertTimeline, books_that_are_ahead_of_the_records_win) {
  auto const script = dead_script();
  script->allocate(1'000, 16, 100, 1);
  script->record = false;
  script->free(1'100, 16, 100, 1);
  script->allocate(1'200, 32, 30, 2);
  script->ended = false;  // a living one: nobody knows yet what became of the missing records
  EXPECT_EQ(played(source_of(script)),
            (Lines{"ledger 0 ledger 0 0", "0 allocate 0:16+100 weights = 100", "0 gap of 0 in 0 = 30",
                   "0 free 0:16+100 weights = 30 assumed", "0 allocate 0:32+30 cache = 30 assumed", "0 end of 0 = 30"}));
}

TEST(ConvertTimeline, ledgers_and_the_journal_are_merged_by_time) {
  auto const script = dead_script();
  script->ledger = 3;
  script->book(3).name = "second";
  script->allocate(1'000, 16, 100);
  script->ledger = 0;
  script->allocate(1'200, 16, 5);
  auto mark = script->event(EventKind::mark, 1'100);
  mark.words[6] = 1;
  script->put(mark);
  EXPECT_EQ(played(source_of(script)),
            (Lines{"ledger 0 ledger 0 0", "ledger 1 second 0", "0 allocate 1:16+100 = 100", "100 note 29 weights",
                   "200 allocate 0:16+5 = 5", "200 end of 0 = 5", "200 end of 1 = 100"}));
  script->unread.clear();
}

TEST(ConvertTimeline, one_manager_of_several) {
  auto const make = [] {
    auto const script = dead_script();
    script->ledger = 3;
    script->book(3).name = "second";
    script->allocate(1'000, 16, 100);
    script->ledger = 0;
    script->allocate(1'200, 16, 5);
    return script;
  };
  EXPECT_EQ(played(source_of(make()), {.manager = "second", .device = {}}),
            (Lines{"ledger 0 second 0", "0 allocate 0:16+100 = 100", "0 end of 0 = 100"}));
  Timeline none{source_of(make()), {.manager = "third", .device = {}}};
  Recorder recorder;
  auto const done = none.play(recorder);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(done.error().message, "found no manager 'third'; expected one of: 'ledger 0', 'second'");
}

TEST(ConvertTimeline, an_empty_source_has_a_begin_and_an_end) {
  auto const script = dead_script();
  EXPECT_EQ(played(source_of(script)), (Lines{"ledger 0 ledger 0 0", "0 end of 0 = 0"}));
  EXPECT_EQ(played(HistoryFile{""}.source()), (Lines{"ledger 0 history 0", "0 end of 0 = 0"}));
}

TEST(ConvertTimeline, a_history_is_played_as_it_is_read) {
  const HistoryFile file{
      "77,1000,allocate,0x10,100,0x5\n"
      "77,1002,allocate failure,(nil),9000,0x0\n"
      "78,1003,free,0x10,100,0x5\n"
      "78,1004,free,0x99,1,0x5\n"       // of nothing
      "78,1005,allocate,0x10,0,0x5\n"}  // holds nothing
  ;
  EXPECT_EQ(played(file.source()), (Lines{"ledger 0 history 0", "0 allocate 0:16+100 = 100", "2000 note 16 ",
                                          "3000 free 0:16+100 = 0", "3000 end of 0 = 0"}));
}

TEST(ConvertTimeline, time_0_is_the_least_of_all_devices) {
  TemporaryFolder const folder;
  auto const path = (folder.path() / "two.pickle").string();
  std::ofstream{path} << made::snapshot({}, {{made::entry("alloc", 16, 100, 1'000)}, {made::entry("alloc", 32, 50, 500)}});
  EXPECT_EQ(played(follow::open_history_source(path).value()),
            (Lines{"ledger 0 device 0 0", "500000 allocate 0:16+100 = 100", "ledger 1 device 1 0", "0 allocate 1:32+50 = 50",
                   "500000 end of 0 = 100", "500000 end of 1 = 50"}));
}

TEST(ConvertTimeline, names_of_notes_outlive_the_play) {
  class Names final : public dump::TimelineVisitor {
  public:
    void note(dump::TimelineNote const& note) override { names.push_back(note.name); }
    std::vector<std::string_view> names;
  };
  auto const script = dead_script();
  script->name(3, "a mark whose name is long enough for the heap");
  script->name(4, "b mark whose name is long enough for the heap");
  for (std::uint64_t id = 3; id <= 4; ++id) {
    auto mark = script->event(EventKind::mark, 1'000 + id);
    mark.words[6] = id;
    script->put(mark);
  }
  Timeline timeline{source_of(script)};
  Names seen;
  ASSERT_TRUE(timeline.play(seen));
  ASSERT_EQ(seen.names.size(), 2U);
  EXPECT_EQ(seen.names[0], "a mark whose name is long enough for the heap");
  EXPECT_EQ(seen.names[1], "b mark whose name is long enough for the heap");
}

TEST(ConvertTimeline, threads_and_streams_are_those_of_the_history) {
  class Ids final : public dump::TimelineVisitor {
  public:
    void operation(dump::TimelineOperation const& operation) override {
      ids.push_back(std::to_string(operation.block.thread) + " " + std::to_string(operation.block.stream.value()));
    }
    Lines ids;
  };
  const HistoryFile file{"140000000000077,1,allocate,0x10,100,0x5\n78,2,free,0x10,100,0x6\n"};
  Timeline timeline{file.source()};
  Ids ids;
  ASSERT_TRUE(timeline.play(ids));
  EXPECT_EQ(ids.ids, (Lines{"140000000000077 5", "78 6"}));
}

TEST(ConvertTimeline, a_visitor_may_stop_it) {
  auto const script = dead_script();
  for (std::uint64_t i = 0; i < 10; ++i) script->allocate(1'000 + i, 16 * (i + 1), 1);
  Timeline timeline{source_of(script)};
  Recorder recorder;
  recorder.most = 3;
  ASSERT_TRUE(timeline.play(recorder));
  EXPECT_EQ(recorder.lines.size(), 3U);
}

TEST(ConvertTimeline, what_is_live_in_the_end_can_be_asked) {
  auto const script = dead_script();
  script->allocate(1'000, 16, 100, 1);
  script->allocate(1'100, 32, 50, 2);
  script->free(1'200, 16, 100, 1);
  Timeline timeline{source_of(script)};
  Recorder recorder;
  ASSERT_TRUE(timeline.play(recorder));
  std::vector<std::uint64_t> addresses;
  timeline.for_each_live([&](dump::TimelineBlock const& block) { addresses.push_back(block.address); });
  EXPECT_EQ(addresses, std::vector<std::uint64_t>{32});
  EXPECT_EQ(timeline.totals().events, 3U);
  EXPECT_EQ(timeline.totals().gaps, 0U);
}

}  // namespace
}  // namespace headroom::test
