// The event log: which rows, in which order, and how little is looked at when little is new.
#include "event_rows.hpp"

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <gmock/gmock.h>

#include "event_filter.hpp"
#include "event_words.hpp"
#include "figures.hpp"
#include "null_frames.hpp"
#include "scripted_source.hpp"

namespace headroom::viewer {

std::unique_ptr<Panel> make_event_log_panel();

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr TickRange kAlways{.begin = 0, .end = 1'000'000'000};

std::vector<std::uint64_t> ticks_of(EventRows const& rows) {
  std::vector<std::uint64_t> ticks;
  for (auto const& row : rows.rows()) ticks.push_back(row.ticks);
  return ticks;
}

std::vector<std::string> lines_of(EventRows const& rows) {
  std::vector<std::string> lines;
  for (auto const& row : rows.rows()) {
    lines.push_back(row.what == EventRow::What::gap ? "gap of " + std::to_string(row.bytes)
                                                    : std::string{word_of(row.kind)} + " " + std::to_string(row.bytes));
  }
  return lines;
}

Filter filter_of(std::string text) { return {.text = std::move(text)}; }

TEST(EventRows, are_those_of_all_ledgers_and_of_the_journal_in_the_order_of_time) {
  auto const script = follow::named_script();
  script->allocate(100, 0x1000, 10, 5, 20);
  script->ledger = 1;
  script->allocate(150, 0x2000, 20, 6);
  script->ledger = 0;
  auto pressure = script->event(flight::EventKind::pressure, 120);
  pressure.words[2] = 0 | (std::uint64_t{3} << 8U);
  pressure.words[3] = 4 * kMiB;
  script->put(pressure);
  script->free(200, 0x1000, 10, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  EventRows rows;
  EXPECT_TRUE(rows.update(model, {.range = kAlways}, 1));
  EXPECT_THAT(ticks_of(rows), ElementsAre(100, 120, 150, 200));
  EXPECT_EQ(rows.matching(), 4U);
  EXPECT_EQ(rows.rows()[0].site, "a.cpp:1 f");
  EXPECT_EQ(rows.rows()[0].used_after, 10U);
  EXPECT_EQ(rows.rows()[1].text, "none \u2192 high at 4 MiB claimed");
  EXPECT_EQ(rows.rows()[3].used_after, 0U);
  EXPECT_TRUE(rows.update(model, {.ledger = 1, .range = kAlways}, 1));
  EXPECT_THAT(ticks_of(rows), ElementsAre(150));
}

TEST(EventRows, of_what_is_known_already_nothing_is_looked_at_again) {
  auto const script = follow::named_script();
  for (std::uint64_t i = 0; i < 1'000; ++i) script->allocate(100 + i, 0x1000 * (i + 1), 10, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  EventRows rows;
  EXPECT_TRUE(rows.update(model, {.range = kAlways}, 1));
  EXPECT_EQ(rows.looked_at(), 1'000U);
  EXPECT_FALSE(rows.update(model, {.range = kAlways}, 1)) << "nothing changed";
  EXPECT_FALSE(rows.update(model, {.range = {.begin = 0, .end = kAlways.end + 5}}, 1)) << "only the clock moved";
  script->allocate(2'000, 0x7000'0000, 7, 5);
  script->allocate(2'000, 0x7000'1000, 8, 5);
  ASSERT_TRUE(model.catch_up());
  EXPECT_TRUE(rows.update(model, {.range = {.begin = 0, .end = kAlways.end + 9}}, 2));
  EXPECT_EQ(rows.looked_at(), 1'002U) << "the two new ones";
  EXPECT_EQ(rows.matching(), 1'002U);
  script->allocate(2'000, 0x7000'2000, 9, 5);  // of the same instant
  ASSERT_TRUE(model.catch_up());
  EXPECT_TRUE(rows.update(model, {.range = {.begin = 0, .end = kAlways.end + 9}}, 3));
  EXPECT_EQ(rows.matching(), 1'003U);
  EXPECT_EQ(rows.rows().back().bytes, 9U);
}

TEST(EventRows, a_late_event_of_the_journal_takes_its_place_once) {
  auto const script = follow::named_script();
  script->allocate(100, 0x1000, 10, 5);
  script->allocate(300, 0x2000, 20, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  EventRows rows;
  EXPECT_TRUE(rows.update(model, {.range = kAlways}, 1));
  script->put(script->event(flight::EventKind::mark, 200));
  script->allocate(400, 0x3000, 30, 5);
  ASSERT_TRUE(model.catch_up());
  EXPECT_TRUE(rows.update(model, {.range = kAlways}, 2));
  EXPECT_TRUE(rows.update(model, {.range = kAlways}, 3));
  EXPECT_TRUE(rows.update(model, {.range = kAlways}, 4));
  EXPECT_EQ(rows.matching(), rows.rows().size());
  EventRows fresh;
  EXPECT_TRUE(fresh.update(model, {.range = kAlways}, 4));
  EXPECT_THAT(ticks_of(fresh), ElementsAre(100, 200, 300, 400));
}

TEST(EventRows, what_the_journal_says_during_a_pause_is_listed_after_it) {
  auto const script = follow::named_script();
  script->allocate(100, 0x1000, 10, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  EventRows rows;
  TickRange const paused{.begin = 0, .end = 151};
  EXPECT_TRUE(rows.update(model, {.range = paused}, 1));
  for (std::uint64_t read = 2; read < 6; ++read) {
    script->put(script->event(flight::EventKind::mark, read * 100));
    script->allocate(read * 100 + 50, 0x1000 * read, 10, 5);
    ASSERT_TRUE(model.catch_up());
    EXPECT_TRUE(rows.update(model, {.range = paused}, read));
  }
  ASSERT_TRUE(model.catch_up());
  EXPECT_THAT(ticks_of(rows), ElementsAre(100));
  EXPECT_TRUE(rows.update(model, {.range = kAlways}, 6));
  EXPECT_THAT(ticks_of(rows), ElementsAre(100, 200, 250, 300, 350, 400, 450, 500, 550));
}

TEST(EventRows, and_filters_number_threads_as_the_program_does) {
  auto const script = follow::named_script();
  constexpr std::uint64_t kThread = 140'213'000'000'213;  // as a history has it, and more than 32 bits
  script->thread_ids[7] = kThread;
  script->allocate(100, 0x1000, 10, 5);
  script->put(script->event(flight::EventKind::mark, 110));
  script->thread = 8;
  script->allocate(120, 0x2000, 10, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  ASSERT_TRUE(model.catch_up());
  EventRows rows;
  EXPECT_TRUE(rows.update(model, {.range = kAlways, .filter = filter_of("thread:" + std::to_string(kThread))}, 1));
  ASSERT_THAT(ticks_of(rows), ElementsAre(100, 110));
  EXPECT_EQ(rows.rows()[0].thread, kThread);
  EXPECT_EQ(plain_event(model, rows.rows()[1])[5], PlainCell{kThread});
  EXPECT_TRUE(rows.update(model, {.range = kAlways, .filter = filter_of("thread:7")}, 1));
  EXPECT_THAT(ticks_of(rows), IsEmpty());
}

TEST(EventRows, of_a_recorded_history_have_its_threads) {
  auto const path = testing::TempDir() + "headroom-threads-" + std::to_string(::getpid()) + ".csv";
  std::ofstream{path} << "Thread,Time,Action,Pointer,Size,Stream\n"
                         "140213,4,allocate,0x7f3c11200000,2359296,0\n"
                         "140214,552,allocate,0x7f3c85a00000,3072,0\n";
  auto model = follow::Model::open_history(path);
  ASSERT_TRUE(model) << model.error().to_string();
  ASSERT_TRUE(model->catch_up());
  std::filesystem::remove(path);
  EventRows rows;
  EXPECT_TRUE(rows.update(*model, {.range = kAlways, .filter = filter_of("thread:140214")}, 1));
  ASSERT_EQ(rows.rows().size(), 1U);
  EXPECT_EQ(rows.rows()[0].thread, 140'214U);
  EXPECT_EQ(rows.rows()[0].bytes, 3'072U);
}

TEST(EventRows, of_a_former_owner_do_not_have_the_name_of_the_present_one) {
  auto const script = follow::named_script();
  script->allocate(100, 0x1000, 10, 5);
  script->free(110, 0x1000, 10, 5);
  auto& book = script->book();
  book.name = "second";
  book.generation = 2;
  book.created_ticks = 150;
  script->allocate(200, 0x2000, 10, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  EventRows rows;
  EXPECT_TRUE(rows.update(model, {.range = kAlways}, 1));
  ASSERT_THAT(ticks_of(rows), ElementsAre(100, 110, 200));
  EXPECT_EQ(owner_of(model, rows.rows()[1]), "");
  EXPECT_EQ(owner_of(model, rows.rows()[2]), "second");
  EXPECT_EQ(plain_event(model, rows.rows()[0])[7], PlainCell{});
  EXPECT_EQ(plain_event(model, rows.rows()[2])[7], PlainCell{std::string{"second"}});
}

TEST(EventRows, keep_their_times_while_the_past_is_forgotten) {
  auto const script = follow::named_script();
  script->allocate(1'000, 0x1000, 10, 5);
  auto model = follow::model_of(script, {.memory_bytes = 0});  // the least there is
  ASSERT_TRUE(model.catch_up());
  for (std::uint64_t i = 1; i < 20'000; ++i) script->allocate(1'000 + i, 0x1000 * (i + 1), 10, 5);
  auto const before = model.first_ticks();
  ASSERT_TRUE(model.catch_up());
  ASSERT_GT(model.first_ticks(), before) << "the oldest is forgotten";
  EXPECT_EQ(model.origin_ticks(), 1'000U);
  EXPECT_EQ(format_instant(model, 21'000, 1), "+0.000 020 000 s");
  EXPECT_EQ(plain_event(model, {.ticks = 21'000})[0], PlainCell{std::uint64_t{20'000}});
}

TEST(EventRows, for_other_programs_leave_out_what_is_not_known) {
  auto const script = follow::named_script();
  script->book();
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  EventRow gap{.what = EventRow::What::gap, .ticks = 100, .bytes = 0};
  EXPECT_EQ(plain_event(model, gap)[9], PlainCell{std::string{"operations missing"}});
  EXPECT_EQ(plain_event(model, gap)[2], PlainCell{});
  gap.bytes = 1;
  EXPECT_EQ(plain_event(model, gap)[9], PlainCell{std::string{"1 operation missing"}});
  EventRow const pressure{.what = EventRow::What::journal, .kind = flight::EventKind::pressure};
  EXPECT_EQ(plain_event(model, pressure)[2], PlainCell{}) << "pressure has no bytes";
  EventRow const hook{.what = EventRow::What::journal, .kind = flight::EventKind::hook_end};
  EXPECT_EQ(plain_event(model, hook)[2], PlainCell{std::uint64_t{0}}) << "a hook may have freed none";
}

TEST(EventRows, a_gap_stands_before_the_first_operation_after_it) {
  auto const script = follow::named_script();
  script->allocate(100, 0x1000, 10, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  script->record = false;
  script->free(200, 0x1000, 10, 5);
  script->allocate(250, 0x2000, 5, 5);
  script->record = true;
  script->allocate(300, 0x3000, 20, 6);
  ASSERT_TRUE(model.catch_up());
  EventRows rows;
  EXPECT_TRUE(rows.update(model, {.range = kAlways}, 1));
  EXPECT_THAT(lines_of(rows), ElementsAre("allocate 10", "gap of 2", "allocate 20"));
  EXPECT_EQ(rows.matching(), 2U) << "a gap is no event";
  EXPECT_TRUE(rows.update(model, {.range = kAlways, .filter = filter_of("tag:nobody")}, 1));
  EXPECT_THAT(lines_of(rows), ElementsAre("gap of 2")) << "what is missing may fit any filter";
}

TEST(EventRows, only_the_newest_are_kept_and_all_are_counted) {
  auto const script = follow::named_script();
  for (std::uint64_t i = 0; i < 1'000; ++i) script->allocate(100 + i, 0x1000 * (i + 1), i, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  EventRows rows;
  EXPECT_TRUE(rows.update(model, {.range = kAlways, .most = 100}, 1));
  ASSERT_EQ(rows.rows().size(), 100U);
  EXPECT_EQ(rows.matching(), 1'000U);
  EXPECT_EQ(rows.rows().front().bytes, 900U);
  EXPECT_EQ(rows.rows().back().bytes, 999U);
  EXPECT_EQ(rows.row_at(1'050), 50U);
  EXPECT_FALSE(rows.row_at(50).has_value());
}

TEST(EventFilter, terms_hold_all_together) {
  auto const script = follow::named_script();
  script->allocate(100, 0xabc000, 64 * kMiB, 5, 20);
  script->thread = 8;
  script->allocate(101, 0x2000, 1 * kMiB, 6, 20);
  script->allocate(102, 0x3000, 2 * kMiB, 0);
  script->free(103, 0x2000, 1 * kMiB, 6);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  EventRows rows;
  auto const shown = [&](std::string text) {
    (void)rows.update(model, {.range = kAlways, .filter = filter_of(std::move(text))}, 1);
    EXPECT_EQ(rows.complaint(), "");
    return ticks_of(rows);
  };
  EXPECT_THAT(shown("tag:CACHE"), ElementsAre(101, 103));
  EXPECT_THAT(shown("tag:cache kind:free"), ElementsAre(103));
  EXPECT_THAT(shown("size>=2MiB"), ElementsAre(100, 102));
  EXPECT_THAT(shown("size>2MiB"), ElementsAre(100));
  EXPECT_THAT(shown("size<2MiB"), ElementsAre(101, 103));
  EXPECT_THAT(shown("thread:7"), ElementsAre(100));
  EXPECT_THAT(shown("a.cpp"), ElementsAre(100, 101, 103)) << "a free has the site of its block";
  EXPECT_THAT(shown("untagged"), ElementsAre(102));
  EXPECT_THAT(shown("0xabc"), ElementsAre(100));
  EXPECT_THAT(shown("\"a.cpp:1 f\" size<2MiB"), ElementsAre(101, 103));
  (void)rows.update(model, {.range = kAlways, .filter = {.text = "", .kinds = std::uint64_t{1} << 2U}}, 1);
  EXPECT_THAT(ticks_of(rows), ElementsAre(103)) << "frees alone";
}

TEST(EventFilter, what_it_does_not_understand_is_told) {
  EXPECT_THAT(EventFilter{filter_of("size>lots")}.complaint(), HasSubstr("size>lots: expected a size"));
  EXPECT_THAT(EventFilter{filter_of("thread:main")}.complaint(), HasSubstr("expected the number of a thread"));
}

TEST(EventFilter, a_term_takes_the_place_of_its_like) {
  EXPECT_EQ(with_term("", "tag:", "kv"), "tag:kv");
  EXPECT_EQ(with_term("tag:a size>1k", "tag:", "b c"), "size>1k \"tag:b c\"");
}

EventRow tagged(std::string_view tag) { return {.kind = flight::EventKind::free, .bytes = 1'000, .tag = tag}; }

TEST(EventFilter, a_quote_within_a_name_stays_one) {
  std::string text;
  text = with_term(text, "tag:", "the \"big\" one");
  text = with_term(text, "size>", "1");  // what was there is read, and written again
  EventFilter filter{filter_of(text)};
  EXPECT_TRUE(filter.shows(tagged("the \"big\" one")));
  EXPECT_FALSE(filter.shows(tagged("the big one")));
  EXPECT_TRUE(EventFilter{filter_of("\"\" tag:\"the \"")}.shows(tagged("the big one"))) << "nothing in quotes is no term";
}

TEST(EventFilter, a_whole_kind_is_that_one_alone) {
  EventRow const failed{.what = EventRow::What::journal, .kind = flight::EventKind::free_failed};
  EXPECT_FALSE(EventFilter{filter_of("kind:free")}.shows(failed));
  EXPECT_TRUE(EventFilter{filter_of("kind:free")}.shows(tagged("a")));
  EXPECT_TRUE(EventFilter{filter_of("\"kind:free failed\"")}.shows(failed));
  EXPECT_TRUE(EventFilter{filter_of("kind:fail")}.shows(failed));
}

TEST(EventFilter, a_device_is_that_of_the_ledger) {
  auto const script = follow::named_script();
  script->book(0).device_name = "cuda:0";
  script->book(1).device_name = "cuda:1";
  script->allocate(100, 0x1000, 10, 5);
  script->ledger = 1;
  script->allocate(150, 0x2000, 20, 5);
  auto pressure = script->event(flight::EventKind::pressure, 160);
  script->put(pressure);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  ASSERT_TRUE(model.catch_up());
  EventRows rows;
  EXPECT_TRUE(rows.update(model, {.range = kAlways, .filter = filter_of("device:CUDA:1")}, 1));
  EXPECT_THAT(ticks_of(rows), ElementsAre(150, 160));
  EXPECT_TRUE(rows.update(model, {.range = kAlways, .filter = filter_of("device:cuda:0")}, 1));
  EXPECT_THAT(ticks_of(rows), ElementsAre(100));
}

class EventLogPanelTest : public testing::Test {
protected:
  void show(follow::Model& model) { state_.show(&model); }
  NullFrames frames_{1'600, 900};
  ViewState state_;
  std::unique_ptr<Panel> panel_ = make_event_log_panel();
};

TEST_F(EventLogPanelTest, of_a_recorded_history_shows_the_newest_rows_with_what_was_used_after) {
  auto model = follow::Model::open_history(HEADROOM_TEST_DATA "/oom_batch.csv.xz").value();
  ASSERT_TRUE(model.catch_up());
  show(model);
  auto const text = frames_.draw(state_, *panel_);
  auto const last = model.state_at(state_.ledger, model.last_ticks());
  EXPECT_THAT(text, HasSubstr(" events\n"));
  EXPECT_THAT(text, HasSubstr("Used after"));
  EXPECT_GT(last.as_of_ticks, 0U);
  EXPECT_GT(NullFrames::vertices(), 1'000);
  state_.filter.text = "kind:refused";
  EXPECT_THAT(frames_.draw(state_, *panel_, 2), Not(HasSubstr("\tfree\t")));
}

TEST_F(EventLogPanelTest, without_events_says_what_to_do) {
  auto const script = follow::named_script();
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  show(model);
  EXPECT_THAT(frames_.draw(state_, *panel_), HasSubstr("Nothing has happened yet"));
  script->allocate(100, 0x1000, 10, 5);
  ASSERT_TRUE(model.catch_up());
  state_.follow(true);
  EXPECT_THAT(frames_.draw(state_, *panel_, 2), HasSubstr("weights"));
  state_.filter.text = "tag:nobody";
  EXPECT_THAT(frames_.draw(state_, *panel_, 2), HasSubstr("No event fits the filter"));
}

TEST_F(EventLogPanelTest, the_moment_that_is_looked_at_comes_into_sight) {
  auto const script = follow::named_script();
  for (std::uint64_t i = 0; i < 10'000; ++i) script->allocate(100 + i * 10, 0x1000 * (i + 1), i, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  show(model);
  EXPECT_THAT(frames_.draw(state_, *panel_, 3), HasSubstr("9.76 KiB")) << "the newest";
  state_.travel_to(100 + 5'000 * 10);
  auto const text = frames_.draw(state_, *panel_, 3);
  EXPECT_THAT(text, HasSubstr("4.88 KiB"));
  EXPECT_THAT(text, Not(HasSubstr("9.76 KiB")));
}

}  // namespace
}  // namespace headroom::viewer
