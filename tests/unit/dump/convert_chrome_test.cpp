// Traces for Perfetto, on scripts that are worked out by hand; names of any bytes.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "conversions.hpp"

namespace headroom::test {
namespace {

using flight::EventKind;
using flight::PolicyStep;
using follow::Script;
using nlohmann::json;
using Lines = std::vector<std::string>;
using Values = std::vector<std::pair<double, std::uint64_t>>;

TEST(ConvertChrome, counters_begin_at_time_0_and_end_as_the_books_do) {
  auto const script = training_script();
  script->record = false;
  script->allocate(10, 16, 100, 1);
  script->record = true;
  script->allocate(1'000, 32, 50, 2);
  script->free(2'500, 16, 100, 1);
  auto const trace = json::parse(converted(source_of(script), ConvertFormat::chrome));
  EXPECT_EQ(counter_of(trace, "main allocated_bytes"), (Values{{0, 100}, {0, 150}, {1.5, 50}}));
  EXPECT_EQ(counter_of(trace, "main weights tag_bytes"), (Values{{0, 100}, {1.5, 0}}));
  EXPECT_EQ(counter_of(trace, "main cache tag_bytes"), (Values{{0, 50}}));
  EXPECT_EQ(events_of(trace, "i"), Lines{"record begins@0"});
}

TEST(ConvertChrome, a_counter_that_comes_later_begins_at_time_0_with_nothing) {
  auto const script = training_script();
  script->allocate(1'000, 16, 100, 1);
  script->allocate(3'000, 32, 50, 2);
  auto const trace = json::parse(converted(source_of(script), ConvertFormat::chrome));
  EXPECT_EQ(counter_of(trace, "main cache tag_bytes"), (Values{{0, 0}, {2, 50}}));
}

TEST(ConvertChrome, lost_records_are_told_at_the_end) {
  auto const script = training_script();
  script->allocate(1'000, 16, 100, 1);
  script->record = false;
  script->allocate(1'500, 32, 1, 1);
  script->record = true;
  script->lost = 1;
  script->allocate(3'000, 48, 1, 1);
  auto const trace = json::parse(converted(source_of(script), ConvertFormat::chrome));
  EXPECT_EQ(events_of(trace, "i"), (Lines{"1 operation missing@2000", "1 records lost@2000"}));
}

TEST(ConvertChrome, hooks_and_waits_are_slices_that_nest) {
  auto const script = training_script();
  auto refusal = script->event(EventKind::refusal, 1'000, 1);
  refusal.words[2] = 500;
  refusal.words[5] |=
      std::uint64_t{(static_cast<unsigned>(ErrorKind::over_budget) + 1) * 64 + static_cast<unsigned>(Layer::manager)} << 40U;
  script->put(refusal);
  auto hook = script->event(EventKind::hook_begin, 2'000);
  hook.words[2] = 400;
  hook.words[3] = 300;
  hook.words[5] |= std::uint64_t{2} << 28U;  // "cache"
  script->put(hook);
  auto hook_end = script->event(EventKind::hook_end, 5'000);
  hook_end.words[2] = 250;
  hook_end.words[3] = 3'000;
  hook_end.words[4] = 200;
  hook_end.words[5] |= std::uint64_t{2} << 28U;
  script->put(hook_end);
  auto begun = script->event(EventKind::policy, 6'000);
  begun.words[2] = 9U | (2U << 8U) | (static_cast<std::uint64_t>(PolicyStep::waited) << 16U);
  script->put(begun);
  auto waited = script->event(EventKind::policy, 9'000);
  waited.words[2] = 2U | (2U << 8U);
  waited.words[3] = 3'000;
  script->put(waited);
  auto const trace = json::parse(converted(source_of(script), ConvertFormat::chrome));
  EXPECT_EQ(events_of(trace, "B"), (Lines{"hook cache@1000", "wait@5000"}));
  EXPECT_EQ(events_of(trace, "E"), (Lines{"hook cache@4000", "wait@8000"}));
  EXPECT_EQ(events_of(trace, "i"), Lines{"refused: over_budget@0"});
  for (auto const& event : trace.at("traceEvents")) {
    if (event.at("ph") == "E" && event.at("name") == "hook cache") {
      EXPECT_EQ(event.at("tid"), 7);
      EXPECT_EQ(event.at("args").at("freed_bytes"), 200);
      EXPECT_EQ(event.at("args").at("reported_bytes"), 250);
    }
    if (event.at("ph") == "i") {
      EXPECT_EQ(event.at("args").at("requested_bytes"), 500);
      EXPECT_EQ(event.at("args").at("manager"), "main");
      EXPECT_EQ(event.at("args").at("tag"), "weights");
    }
  }
}

TEST(ConvertChrome, a_hook_that_never_ended_is_closed_and_says_so) {
  auto const script = training_script();
  script->put(script->event(EventKind::hook_begin, 2'000));
  script->allocate(4'000, 16, 1);
  auto const trace = json::parse(converted(source_of(script), ConvertFormat::chrome));
  EXPECT_EQ(events_of(trace, "B"), Lines{"hook@0"});
  EXPECT_EQ(events_of(trace, "E"), Lines{"hook@2000"});
}

TEST(ConvertChrome, an_end_without_its_begin_is_an_instant) {
  auto const script = training_script();
  script->put(script->event(EventKind::hook_end, 2'000));
  auto const trace = json::parse(converted(source_of(script), ConvertFormat::chrome));
  EXPECT_EQ(events_of(trace, "i"), Lines{"hook ended@0"});
  EXPECT_TRUE(events_of(trace, "E").empty());
}

TEST(ConvertChrome, a_gap_is_an_instant_with_its_count) {
  auto const script = training_script();
  script->allocate(1'000, 16, 100, 1);
  script->record = false;
  script->free(1'100, 16, 100, 1);
  script->record = true;
  script->allocate(3'000, 32, 50, 2);
  ConvertReport report;
  auto const trace = json::parse(converted(source_of(script), ConvertFormat::chrome, {}, &report));
  EXPECT_EQ(events_of(trace, "i"), Lines{"1 operation missing@2000"});
  EXPECT_EQ(counter_of(trace, "main allocated_bytes"), (Values{{0, 0}, {0, 100}, {2, 0}, {2, 50}}));
  EXPECT_EQ(counter_of(trace, "main weights tag_bytes"), (Values{{0, 100}, {2, 0}}));
  EXPECT_TRUE(counter_of(trace, "main unattributed_bytes").empty());
  EXPECT_EQ(report.gaps, 1U);
  EXPECT_EQ(report.operations_missing, 1U);
  EXPECT_EQ(report.operations_assumed, 1U);
}

TEST(ConvertChrome, names_of_any_bytes_are_valid_json_and_stay_apart) {
  auto const script = training_script();
  script->book().name = "a\"b\\\n";
  script->name(1, "\xFF\x01;\"}");
  script->name(2, "x");
  script->allocate(1'000, 16, 100, 1);
  script->allocate(1'000, 32, 10, 2);
  // A manager whose name makes its counters look like those of the other's tag.
  script->ledger = 1;
  script->book(1).name = "a\"b\\\n x";
  script->allocate(1'000, 16, 1);
  script->name(3, "\n");
  auto const trace = json::parse(converted(source_of(script), ConvertFormat::chrome));
  EXPECT_EQ(counter_of(trace, "a\"b\\\n \\xff\x01;\"} tag_bytes"), (Values{{0, 100}}));
  EXPECT_EQ(counter_of(trace, "a\"b\\\n x tag_bytes"), (Values{{0, 10}}));
  EXPECT_EQ(counter_of(trace, "a\"b\\\n x allocated_bytes"), (Values{{0, 0}, {0, 1}}));
}

TEST(ConvertChrome, managers_of_one_name_have_counters_of_their_own) {
  auto const script = training_script();
  script->allocate(1'000, 16, 100);
  script->ledger = 1;
  script->book(1).name = "main";
  script->allocate(1'000, 16, 7);
  auto const trace = json::parse(converted(source_of(script), ConvertFormat::chrome));
  EXPECT_EQ(counter_of(trace, "main allocated_bytes").back().second, 100U);
  EXPECT_EQ(counter_of(trace, "main #2 allocated_bytes").back().second, 7U);
}

TEST(ConvertChrome, budgets_are_counters_and_instants) {
  auto const script = training_script();
  script->book().limit = 700;
  script->allocate(1'000, 16, 100);
  auto budget = script->event(EventKind::budget, 3'000);
  budget.words[2] = flight::kLimitEnforcing | 900;
  budget.words[3] = flight::kLimitEnforcing | 700;
  script->put(budget);
  auto const trace = json::parse(converted(source_of(script), ConvertFormat::chrome));
  EXPECT_EQ(counter_of(trace, "main limit_bytes"), (Values{{0, 900}, {2, 700}}));
  EXPECT_EQ(events_of(trace, "i"), Lines{"budget changed@2000"});
}

TEST(ConvertChrome, an_empty_source_is_an_empty_trace) {
  auto const trace = json::parse(converted(HistoryFile{""}.source(), ConvertFormat::chrome));
  EXPECT_EQ(counter_of(trace, "history allocated_bytes"), (Values{{0, 0}}));
}

}  // namespace
}  // namespace headroom::test
