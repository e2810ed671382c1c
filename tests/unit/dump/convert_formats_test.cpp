// Logs, stacks and JSON, on histories and scripts that are worked out by hand; sinks that are full after every k-th byte.
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <headroom/trace.hpp>

#include "conversions.hpp"

namespace headroom::test {
namespace {

using flight::EventKind;
using follow::Script;
using nlohmann::json;
using Lines = std::vector<std::string>;

constexpr char kHistory[] =
    "77,12:00:00.000010,allocate,0x10,100,0x5\n"
    "77,12:00:00.000012,allocate failure,(nil),9000,0x0\n"
    "78,12:00:00.000013,allocate,0x20,50,0x5\n"
    "78,12:00:00.000020,free,0x10,100,0x5\n";

// ── csv ──

TEST(ConvertCsv, a_history_comes_back_as_it_was) {
  EXPECT_EQ(converted(HistoryFile{kHistory}.source(), ConvertFormat::csv),
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "77,12:00:00.000010,allocate,0x10,100,0x5\n"
            "77,12:00:00.000012,allocate failure,0x0,9000,0x0\n"
            "78,12:00:00.000013,allocate,0x20,50,0x5\n"
            "78,12:00:00.000020,free,0x10,100,0x5\n");
}

TEST(ConvertCsv, blocks_from_before_come_first_and_add_up) {
  auto const script = training_script();
  script->record = false;
  script->allocate(10, 16, 100, 1);
  script->record = true;
  script->allocate(1'000, 32, 50, 2);
  script->free(2'500, 16, 100, 1);
  auto const text = converted(source_of(script), ConvertFormat::csv);
  // Realtime of the script's tick 0 is 1,000 s; the first record is at tick 1,000.
  EXPECT_EQ(text,
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "0,00:16:40.000001,allocate,0x10,100,0x0\n"  // known by its free alone: nobody knows whose thread it was
            "7,00:16:40.000001,allocate,0x20,50,0x0\n"
            "7,00:16:40.000002,free,0x10,100,0x0\n");
  const HistoryFile file{text.substr(text.find('\n') + 1)};
  auto const summary = summarize_trace(file.path()).value();
  EXPECT_EQ(summary.peak_bytes, 150U);
  EXPECT_EQ(summary.live_bytes, 50U);
  EXPECT_EQ(summary.unmatched_frees, 0U);
}

std::shared_ptr<Script> two_managers(std::uint64_t second_address) {
  auto script = training_script();
  script->allocate(1'000, 16, 100);
  script->ledger = 1;
  script->book(1).name = "other";
  script->allocate(1'100, second_address, 7);
  return script;
}

TEST(ConvertCsv, managers_with_one_address_at_one_time_are_an_error_that_names_them) {
  auto const error = conversion_error(source_of(two_managers(16)), ConvertFormat::csv);
  EXPECT_EQ(error.kind, ErrorKind::invalid_argument);
  EXPECT_EQ(error.message,
            "the managers 'main' and 'other' have blocks at one address at one time, and a log cannot tell them apart; expected "
            "one of them to be chosen");
  EXPECT_EQ(converted(source_of(two_managers(32)), ConvertFormat::csv).size(), 39U + 40U + 38U);
  EXPECT_EQ(converted(source_of(two_managers(16)), ConvertFormat::csv, {.manager = "other"}),
            "Thread,Time,Action,Pointer,Size,Stream\n7,00:16:40.000001,allocate,0x10,7,0x0\n");
}

TEST(ConvertCsv, an_address_may_wander_from_manager_to_manager) {
  auto const script = training_script();
  script->allocate(1'000, 16, 100);
  script->free(1'050, 16, 100);
  script->ledger = 1;
  script->book(1).name = "other";
  script->allocate(1'100, 16, 7);
  EXPECT_NE(converted(source_of(script), ConvertFormat::csv).find("allocate,0x10,7"), std::string::npos);
}

TEST(ConvertCsv, a_block_from_before_comes_when_it_was_allocated) {
  auto const script = training_script();
  script->allocate(1'000, 16, 100);
  script->free(1'050, 16, 100);
  script->ledger = 1;
  script->book(1).name = "other";
  script->record = false;
  script->allocate(3'100, 16, 7);  // by the table, after the other had gone
  script->record = true;
  script->allocate(5'000, 32, 1);
  EXPECT_EQ(converted(source_of(script), ConvertFormat::csv),
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "7,00:16:40.000001,allocate,0x10,100,0x0\n"
            "7,00:16:40.000001,free,0x10,100,0x0\n"
            "7,00:16:40.000003,allocate,0x10,7,0x0\n"
            "7,00:16:40.000005,allocate,0x20,1,0x0\n");
}

/// The first manager's block goes in a gap or stays, while the second one has its address.
std::shared_ptr<Script> two_managers_and_a_gap(bool is_freed_in_gap) {
  auto script = training_script();
  script->book(1).name = "other";
  script->allocate(1'000, 16, 100);
  script->record = false;
  is_freed_in_gap ? script->free(1'500, 16, 100) : script->allocate(1'500, 48, 3);
  script->record = true;
  script->ledger = 1;
  script->allocate(3'000, 16, 7);
  script->ledger = 0;
  script->allocate(5'000, 32, 1);
  return script;
}

TEST(ConvertCsv, a_block_that_went_in_a_gap_is_gone_where_another_manager_has_its_address) {
  EXPECT_EQ(converted(source_of(two_managers_and_a_gap(true)), ConvertFormat::csv),
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "7,00:16:40.000001,allocate,0x10,100,0x0\n"
            "7,00:16:40.000003,free,0x10,100,0x0\n"
            "7,00:16:40.000003,allocate,0x10,7,0x0\n"
            "7,00:16:40.000005,allocate,0x20,1,0x0\n");
  EXPECT_NE(conversion_error(source_of(two_managers_and_a_gap(false)), ConvertFormat::csv).message.find("'main' and 'other'"),
            std::string::npos);
}

TEST(ConvertCsv, a_pause_of_more_than_a_day_comes_back) {
  const HistoryFile file{
      "1,86399000000,allocate,0x10,1,0x0\n"
      "1,86401000000,allocate,0x20,1,0x0\n"  // past midnight: a reader adds the day
      "1,190000000000,free,0x10,1,0x0\n"     // more than a day later
      "1,190000000001,free,0x20,1,0x0\n"};
  auto const text = converted(file.source(), ConvertFormat::csv);
  EXPECT_EQ(text,
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "1,23:59:59.000000,allocate,0x10,1,0x0\n"
            "1,00:00:01.000000,allocate,0x20,1,0x0\n"
            "1,190000000000,free,0x10,1,0x0\n"
            "1,190000000001,free,0x20,1,0x0\n");
  const HistoryFile again{text.substr(text.find('\n') + 1)};
  auto const summary = summarize_trace(again.path()).value();
  EXPECT_EQ(summary.first_time_us, 86'399'000'000U);
  EXPECT_EQ(summary.last_time_us, 190'000'000'001U);
  EXPECT_EQ(converted(again.source(), ConvertFormat::csv), text);
}

// ── folded ──

TEST(ConvertFolded, what_is_live_in_the_end_by_stack) {
  auto const script = training_script();
  script->allocate(1'000, 16, 100, 1, 9);
  script->allocate(1'100, 32, 50, 2);
  script->allocate(1'200, 48, 11, 1, 9);
  script->allocate(1'300, 64, 5);
  script->free(1'400, 32, 50, 2);
  EXPECT_EQ(converted(source_of(script), ConvertFormat::folded),
            "script;main;untagged;unknown site 5\n"
            "script;main;weights;train.cpp:4 void step() 111\n");
}

TEST(ConvertFolded, who_held_the_peak) {
  auto const script = training_script();
  script->allocate(1'000, 16, 100, 1);
  script->allocate(1'100, 32, 50, 2);  // 150: the peak
  script->free(1'200, 16, 100, 1);
  script->allocate(1'300, 48, 100, 2);  // 150 again: the first time counts
  script->free(1'400, 32, 50, 2);
  EXPECT_EQ(converted(source_of(script), ConvertFormat::folded, {.at_peak = true}),
            "script;main;cache;unknown site 50\nscript;main;weights;unknown site 100\n");
}

TEST(ConvertFolded, a_peak_before_the_record_is_an_error) {
  auto const script = training_script();
  script->record = false;
  script->allocate(10, 16, 100, 1);
  script->free(20, 16, 100, 1);
  script->record = true;
  script->allocate(1'100, 32, 50, 2);
  auto const error = conversion_error(source_of(script), ConvertFormat::folded, {.at_peak = true});
  EXPECT_EQ(error.kind, ErrorKind::invalid_argument);
  EXPECT_NE(error.message.find("the peak of manager 'main', 100 B, was reached before the record begins"), std::string::npos)
      << error.message;
}

TEST(ConvertFolded, a_peak_that_was_live_when_the_record_begins_is_known) {
  auto const script = training_script();
  script->record = false;
  script->allocate(10, 16, 100, 1);
  script->record = true;
  script->free(1'000, 16, 100, 1);
  EXPECT_EQ(converted(source_of(script), ConvertFormat::folded, {.at_peak = true}), "script;main;weights;unknown site 100\n");
  EXPECT_EQ(converted(HistoryFile{kHistory}.source(), ConvertFormat::folded, {.at_peak = true}).ends_with(" 150\n"), true);
}

TEST(ConvertFolded, frames_cannot_be_broken_by_names) {
  auto const script = training_script();
  script->book().name = "a;b";
  script->name(1, "c\nd;e\r");
  script->allocate(1'000, 16, 100, 1);
  EXPECT_EQ(converted(source_of(script), ConvertFormat::folded), "script;a:b;c d:e ;unknown site 100\n");
}

TEST(ConvertFolded, unattributed_bytes_are_a_stack_of_their_own) {
  auto const script = training_script();
  script->record = false;
  script->in_table = false;
  script->allocate(10, 16, 100, 1);
  script->record = true;
  script->in_table = true;
  script->allocate(1'000, 32, 50, 2);
  EXPECT_EQ(converted(source_of(script), ConvertFormat::folded),
            "script;main;(unattributed);unknown site 100\nscript;main;cache;unknown site 50\n");
}

TEST(ConvertFolded, an_empty_source_has_no_stack) { EXPECT_EQ(converted(HistoryFile{""}.source(), ConvertFormat::folded), ""); }

// ── json ──

TEST(ConvertJson, a_history_as_rows) {
  auto const history = json::parse(converted(HistoryFile{kHistory}.source(), ConvertFormat::json));
  EXPECT_EQ(history.at("schema"), "headroom.history");
  EXPECT_EQ(history.at("start_clock_ns"), 43'200'000'010'000);
  EXPECT_EQ(history.at("events"), json::parse(R"([
      [0, "allocate", "0x10", 100, 77, "0x5", 0, 0, 0, 100],
      [2000, "allocate_failure", null, 9000, 77, "0x0", 0, 0, 0, 100],
      [3000, "allocate", "0x20", 50, 78, "0x5", 0, 0, 0, 150],
      [10000, "free", "0x10", 100, 78, "0x5", 0, 0, 0, 50]])"));
  EXPECT_EQ(history.at("managers"), json::parse(R"([{"manager": 0, "name": "history", "live_bytes": 50, "peak_bytes": 150}])"));
  EXPECT_EQ(history.at("summary"), json::parse(R"({"events": 4, "allocations": 2, "frees": 1, "failures": 1, "live_bytes": 50,
      "live_allocations": 1, "duration_ns": 10000})"));
}

TEST(ConvertJson, of_a_process_there_is_the_post_mortem_instead) {
  auto const error = conversion_error(source_of(training_script()), ConvertFormat::json);
  EXPECT_EQ(error.kind, ErrorKind::unsupported);
  EXPECT_NE(error.message.find("write_post_mortem()"), std::string::npos);
}

// ── all of them ──

constexpr std::array kFormats{ConvertFormat::chrome, ConvertFormat::torch, ConvertFormat::csv, ConvertFormat::folded,
                              ConvertFormat::json};

TEST(Convert, formats_are_known_by_their_names) {
  for (auto const format :
       {ConvertFormat::chrome, ConvertFormat::torch, ConvertFormat::csv, ConvertFormat::folded, ConvertFormat::json}) {
    EXPECT_EQ(parse_convert_format(to_string(format)).value(), format);
  }
  auto const unknown = parse_convert_format("svg");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "found the format 'svg'; expected chrome, torch, csv, folded or json");
}

TEST(Convert, a_sink_that_is_full_ends_it_with_the_sinks_error) {
  std::string lines;
  for (int i = 1; i <= 3'000; ++i) lines += "1," + std::to_string(i) + ",allocate,0x" + std::to_string(i) + "0,1,0x0\n";
  const HistoryFile file{lines};
  for (auto const format : kFormats) {
    auto const whole = converted(file.source(), format);
    // Writers hand on pieces of 64 KiB: every size that ends in another piece, and one byte too few.
    for (std::size_t room = 0; room < whole.size(); room = room * 2 + 1'000) {
      TextSink sink{room};
      auto const done = convert(file.source(), format, sink.function());
      ASSERT_FALSE(done) << to_string(format) << ' ' << room;
      EXPECT_EQ(done.error().message, "the test's sink is full");
      EXPECT_TRUE(whole.starts_with(sink.text));
    }
    TextSink short_by_one{whole.size() - 1};
    EXPECT_FALSE(convert(file.source(), format, short_by_one.function())) << to_string(format);
    TextSink enough{whole.size()};
    EXPECT_TRUE(convert(file.source(), format, enough.function())) << to_string(format);
    EXPECT_EQ(enough.text, whole);
  }
}

TEST(Convert, a_small_output_fails_at_every_byte) {
  for (auto const format : kFormats) {
    const HistoryFile file{kHistory};
    auto const whole = converted(file.source(), format);
    for (std::size_t room = 0; room < whole.size(); ++room) {
      TextSink sink{room};
      ASSERT_FALSE(convert(file.source(), format, sink.function())) << to_string(format) << ' ' << room;
    }
  }
}

TEST(Convert, a_sink_that_throws_is_a_failed_write) {
  auto const done = convert(HistoryFile{kHistory}.source(), ConvertFormat::csv,
                            [](std::string_view) -> Result<void> { throw std::runtime_error{"no"}; });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().kind, ErrorKind::io);
}

TEST(Convert, a_full_disk_says_so) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) GTEST_SKIP() << "no /dev/full here";
  for (auto const format : kFormats) {
    auto const done = convert(HistoryFile{kHistory}.source(), format, full);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().kind, ErrorKind::io);
    EXPECT_EQ(done.error().message, "the output cannot be written: No space left on device");
  }
  ::close(full);
}

TEST(Convert, a_broken_history_is_told_with_its_line) {
  for (auto const format : kFormats) {
    auto const error = conversion_error(HistoryFile{"1,1,allocate,0x10,100,0x0\n1,2,frob,0x10,100,0x0\n"}.source(), format);
    EXPECT_EQ(error.kind, ErrorKind::parse);
    EXPECT_NE(error.message.find(":3:"), std::string::npos) << error.message;
  }
}

TEST(Convert, progress_counts_events) {
  std::atomic<std::uint64_t> progress{0};
  ConvertOptions options;
  options.progress = &progress;
  ConvertReport report;
  static_cast<void>(converted(HistoryFile{kHistory}.source(), ConvertFormat::csv, options, &report));
  EXPECT_EQ(progress.load(), 4U);
  EXPECT_EQ(report.events, 4U);
  EXPECT_EQ(report.written, 4U);
}

}  // namespace
}  // namespace headroom::test
