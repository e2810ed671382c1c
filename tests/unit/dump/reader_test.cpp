// Post-mortems read back: the same figures as a reader of the flight file sees, cut anywhere, broken anywhere.
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "compact_flight.hpp"
#include "flight_builder.hpp"
#include "post_mortems.hpp"

namespace headroom::test {
namespace {

using flight::EventKind;
using flight::FlightBuilder;
using flight::Ring;
using nlohmann::ordered_json;

std::string story_text() {
  FlightBuilder file;
  flight::fill_with_a_story(file);
  return post_mortem_text(file.view(), {.liveness = flight::Liveness::dead, .reason = "why \"not\"\\\xFF"});
}

TEST(PostMortemReader, gives_back_what_a_view_of_the_file_shows) {
  FlightBuilder file;
  flight::fill_with_a_story(file);
  file.ledger(0).generation = 3;
  file.ledger(0).created_ticks = 1'500;
  const auto view = file.view();
  const auto dump =
      read_post_mortem(post_mortem_text(view, {.liveness = flight::Liveness::dead, .reason = "why \"not\"\\\xFF"}), "dump")
          .value();
  EXPECT_FALSE(dump.truncated);
  EXPECT_TRUE(dump.complete);
  EXPECT_EQ(dump.reason, "why \"not\"\\\xFF");
  EXPECT_EQ(dump.events_contents, "included");
  EXPECT_EQ(dump.liveness, flight::Liveness::dead);

  const auto info = view.process();
  EXPECT_EQ(dump.process.program, info.program);
  EXPECT_EQ(dump.process.command, info.command);
  EXPECT_EQ(dump.process.run, info.run);
  EXPECT_EQ(dump.process.start_realtime_ns, info.start_realtime_ns);
  EXPECT_EQ(dump.process.events_recorded, info.events_recorded);
  EXPECT_EQ(dump.process.lanes_in_use, info.lanes_in_use);
  for (const std::uint64_t ticks : {0U, 1'500U, 2'500U, 9'999U}) {
    EXPECT_EQ(dump.clock().realtime_ns(ticks), view.clock().realtime_ns(ticks));
    EXPECT_EQ(dump.clock().monotonic_ns(ticks), view.clock().monotonic_ns(ticks));
  }

  const auto ledgers = view.all_ledgers();
  ASSERT_EQ(dump.ledgers.size(), ledgers.size());
  EXPECT_EQ(ledgers[0].created_ticks, 1'500U);
  for (std::size_t i = 0; i < ledgers.size(); ++i) {
    auto const& a = dump.ledgers[i];
    auto const& b = ledgers[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.device_name, b.device_name);
    EXPECT_EQ(a.device_uuid, b.device_uuid);
    EXPECT_EQ(std::tuple(a.cell, a.directory_id, a.claimed, a.allocated, a.peak, a.limit, a.enforcing, a.live_allocations,
                         a.in_flight_bytes),
              std::tuple(b.cell, b.directory_id, b.claimed, b.allocated, b.peak, b.limit, b.enforcing, b.live_allocations,
                         b.in_flight_bytes));
    EXPECT_EQ(std::tuple(a.generation, a.created_ticks), std::tuple(b.generation, b.created_ticks));
    EXPECT_EQ(a.pressure, b.pressure);
    EXPECT_EQ(a.refusals, b.refusals);
    EXPECT_EQ(a.counters.size_histogram, b.counters.size_histogram);
    ASSERT_EQ(a.tags.size(), b.tags.size());
    for (std::size_t t = 0; t < a.tags.size(); ++t) {
      EXPECT_EQ(std::tuple(a.tags[t].id, a.tags[t].name, a.tags[t].bytes, a.tags[t].at_peak_bytes, a.tags[t].allocations),
                std::tuple(b.tags[t].id, b.tags[t].name, b.tags[t].bytes, b.tags[t].at_peak_bytes, b.tags[t].allocations));
    }
  }
  EXPECT_EQ(dump.label(5), "attention");
  EXPECT_EQ(dump.label(6), "model.cpp:42");
  EXPECT_EQ(dump.label(999), "");

  std::vector<flight::LiveAllocation> live;
  view.for_each_live([&](flight::LiveAllocation const& allocation) { live.push_back(allocation); });
  ASSERT_EQ(dump.live.size(), live.size());
  EXPECT_EQ(dump.live_bytes, 3'000U);
  // Of equal size: the order is that of the keys, from the last slot on.
  for (std::size_t i = 0; i < live.size(); ++i) {
    auto const& a = dump.live[i];
    auto const& b = live[live.size() - 1 - i];
    EXPECT_EQ(std::tuple(a.slot, a.state, a.generation, a.address, a.bytes, a.tag, a.ledger, a.site, a.thread, a.alignment),
              std::tuple(b.slot, b.state, b.generation, b.address, b.bytes, b.tag, b.ledger, b.site, b.thread, b.alignment));
  }
  ASSERT_EQ(dump.first_failures.size(), 1U);
  EXPECT_EQ(dump.first_failures[0].kind, ErrorKind::over_budget);
  EXPECT_EQ(dump.first_failures[0].count, 2U);
  ASSERT_EQ(dump.in_flight.size(), 1U);
  EXPECT_EQ(dump.in_flight[0].bytes, 512U);
  EXPECT_EQ(dump.lanes.size(), 2U);
  EXPECT_EQ(dump.lanes[1].thread, 100U);
}

TEST(PostMortemReader, events_come_back_word_by_word) {
  FlightBuilder file;
  // A whole allocation as the ledger writes it, one with bits that have no column, every journal kind, one from the future.
  file.write(0, Ring::main,
             {(1ULL << 56) | flight::kFlagPeak, 100, 0x7FFF'0000'1000, (12ULL << 48) | 4'096, (77ULL << 44) | 123'456,
              (3ULL << 52) | (9ULL << 16) | 5, 6, (250ULL << 32) | 42});
  file.write(0, Ring::main, {2ULL << 56, 110, 0x1000, 1ULL << 62 | 5, 7, 1ULL << 60, 1ULL << 40, 9});
  for (std::uint64_t i = 0; i < 3; ++i) {
    file.write(0, Ring::journal,
               flight::record(i == 2 ? static_cast<EventKind>(200) : EventKind::hook_end, 120 + i, 0xFFFF'0000'0000'0000 + i));
  }
  const auto view = file.view();
  const auto dump = read_post_mortem(post_mortem_text(view), "dump").value();
  flight::EventReader reader{view};
  std::vector<flight::Event> events;
  std::vector<flight::Gap> gaps;
  reader.poll(events, gaps);
  flight::sort_timeline(events);
  ASSERT_EQ(dump.events.size(), 5U);
  ASSERT_EQ(dump.events.size(), events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(dump.events[i].words, events[i].words) << i;
    EXPECT_EQ(dump.events[i].kind, events[i].kind);
    EXPECT_EQ(dump.events[i].ring, events[i].ring);
    EXPECT_EQ(dump.events[i].lane, events[i].lane);
    EXPECT_EQ(dump.events[i].number, events[i].number);
    EXPECT_EQ(dump.events[i].ticks, events[i].ticks);
  }
}

TEST(PostMortemReader, cut_at_every_byte_it_loads_what_is_whole_and_says_truncated) {
  const auto text = story_text();
  const auto whole = read_post_mortem(text, "dump").value();
  std::size_t most_ledgers = 0;
  std::size_t most_live = 0;
  std::size_t most_events = 0;
  // The line feed at the end is no part of the JSON.
  for (std::size_t length = 1; length + 1 < text.size(); ++length) {
    const auto cut = read_post_mortem(std::string_view{text}.substr(0, length), "dump");
    ASSERT_TRUE(cut) << length << ": " << cut.error().message;
    ASSERT_TRUE(cut->truncated) << length;
    ASSERT_FALSE(cut->complete && length < text.find("\"end\"")) << length;
    // What is there is as it is in the whole one, never a number cut short.
    ASSERT_TRUE(cut->process.pid == 0 || cut->process.pid == whole.process.pid) << length;
    ASSERT_TRUE(cut->process.start_realtime_ns == 0 || cut->process.start_realtime_ns == whole.process.start_realtime_ns)
        << length;
    ASSERT_TRUE(cut->ticks_per_second == 0 || cut->ticks_per_second == whole.ticks_per_second) << length;
    ASSERT_TRUE(cut->live_bytes == 0 || cut->live_bytes == whole.live_bytes) << length;
    ASSERT_LE(cut->ledgers.size(), whole.ledgers.size());
    for (std::size_t i = 0; i < cut->ledgers.size(); ++i) {
      ASSERT_EQ(cut->ledgers[i].claimed, whole.ledgers[i].claimed) << length;
      ASSERT_EQ(cut->ledgers[i].tags.size(), whole.ledgers[i].tags.size()) << length;
    }
    for (std::size_t i = 0; i < cut->live.size(); ++i) ASSERT_EQ(cut->live[i].bytes, whole.live[i].bytes) << length;
    for (std::size_t i = 0; i < cut->events.size(); ++i) ASSERT_EQ(cut->events[i].words, whole.events[i].words) << length;
    // And once whole, it stays.
    ASSERT_GE(cut->ledgers.size(), most_ledgers) << length;
    ASSERT_GE(cut->live.size(), most_live) << length;
    ASSERT_GE(cut->events.size(), most_events) << length;
    most_ledgers = cut->ledgers.size();
    most_live = cut->live.size();
    most_events = cut->events.size();
  }
  EXPECT_EQ(most_ledgers, whole.ledgers.size());
  EXPECT_EQ(most_live, whole.live.size());
  EXPECT_EQ(most_events, whole.events.size());
}

TEST(PostMortemReader, a_number_that_was_cut_is_not_there) {
  const std::string text = R"({"schema":{"name":"headroom-post-mortem","version":1},"process":{"uid":7,"pid":123)";
  EXPECT_EQ(read_post_mortem(text, "dump")->process.pid, 0U);
  EXPECT_EQ(read_post_mortem(text, "dump")->process.uid, 7U);
  EXPECT_EQ(read_post_mortem(text + ',', "dump")->process.pid, 123U);
  EXPECT_EQ(read_post_mortem(text + '}', "dump")->process.pid, 123U);
}

std::string error_of(std::string_view text) {
  const auto dump = read_post_mortem(text, "x.json");
  if (dump) return "no error";
  EXPECT_EQ(dump.error().layer, Layer::request);
  return dump.error().message;
}

std::string changed(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(PostMortemReader, what_is_no_dump_is_an_error_that_says_what_was_found) {
  EXPECT_EQ(error_of(""), "x.json: empty, expected a post-mortem");
  EXPECT_EQ(error_of("Thread,Time,Action"),
            "x.json: byte 0: no post-mortem: found 'Thread,Time,Action', expected "
            "'{\"schema\":{\"name\":\"headroom-post-mortem\"'");
  EXPECT_TRUE(error_of(R"({"schema":{"name":"something else"},"x":"headroom-post-mortem"})")
                  .ends_with("x.json: found the schema 'something else', expected 'headroom-post-mortem'"));
  EXPECT_FALSE(looks_like_post_mortem("{\"a\":1}"));
  EXPECT_TRUE(looks_like_post_mortem(story_text().substr(0, 100)));
}

TEST(PostMortemReader, a_later_version_is_refused_politely) {
  const auto later = read_post_mortem(changed(story_text(), "\"version\":1", "\"version\":2"), "x.json");
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(later.error().message, "x.json: a post-mortem of version 2, this program reads up to 1");
}

TEST(PostMortemReader, unknown_members_and_words_are_passed_over) {
  auto text = changed(story_text(), R"("pid":0)", R"("pid":0,"colour":{"deep":[1,2,{}]})");
  text = changed(text, R"("level":"medium")", R"("level":"apocalyptic")");
  const auto dump = read_post_mortem(text, "x.json");
  ASSERT_TRUE(dump) << dump.error().message;
  EXPECT_EQ(dump->ledgers.size(), 2U);
  EXPECT_EQ(dump->ledgers[0].pressure, PressureLevel::none);
}

TEST(PostMortemReader, damage_in_the_middle_names_its_place) {
  const auto text = story_text();
  EXPECT_EQ(error_of(changed(text, "\"claimed_bytes\":4000", "\"claimed_bytes\":\"many\"")),
            "x.json: ledgers[0].claimed_bytes: found \"many\", expected a whole number");
  EXPECT_EQ(error_of(changed(text, "\"claimed_bytes\":4000", "\"claimed_bytes\":-1")),
            "x.json: ledgers[0].claimed_bytes: found -1, expected a whole number");
  EXPECT_EQ(error_of(changed(text, "\"claimed_bytes\":4000", "\"claimed_bytes\":4000.5")),
            "x.json: ledgers[0].claimed_bytes: found 4000.5, expected a whole number");
  EXPECT_EQ(error_of(changed(text, "\"program\":\"trainer\"", "\"program\":[1]")),
            "x.json: process.program: found [1], expected a text");
  EXPECT_EQ(error_of(changed(text, "\"live\",256,", "\"live\",255,")),
            "x.json: live, row 3, column 7: found 255, expected a power of two");
  EXPECT_EQ(error_of(changed(text, "\"allocate\"", "\"alocate\"")),
            "x.json: events, row 7, column 4: found 'alocate', expected a word of its column");
  EXPECT_TRUE(error_of(changed(text, "\"claimed_bytes\":4000", "\"claimed_bytes\":,")).starts_with("x.json: byte "));
  EXPECT_TRUE(error_of(text + "{}").starts_with("x.json: byte "));
}

TEST(PostMortemReader, deep_and_endless_texts_are_refused) {
  const std::string begin = R"({"schema":{"name":"headroom-post-mortem","version":1},"x":)";
  EXPECT_EQ(error_of(begin + std::string(100'000, '[')), "x.json: found values nested deeper than 12");
  EXPECT_EQ(error_of(begin + '"' + std::string(70'000, 'y') + "\"}"),
            "x.json: found a text of 70000 bytes, expected at most 65536");
  EXPECT_EQ(error_of(begin + "1,\"live\":{\"rows\":[[[1]]]}}"),
            "x.json: found an array in a row of a table, expected numbers and words");
  EXPECT_EQ(error_of(begin + "1,\"live\":{\"rows\":[7]}}"), "x.json: found a value between the rows of a table, expected rows");
  EXPECT_EQ(error_of(begin + "1,\"events\":{\"rows\":[[1,2]]}}"), "x.json: events, row 1, found 2 columns, expected 17");
  EXPECT_EQ(error_of(begin + "1,\"events\":{\"rows\":[{\"a\":1}]}}"),
            "x.json: found an object in a table, expected rows of numbers and words");
}

TEST(PostMortemReader, a_dump_in_another_order_and_layout_is_the_same_dump) {
  const auto text = story_text();
  const auto plain = nlohmann::json::parse(text).dump();  // keys sorted, no blanks
  const auto dump = read_post_mortem(plain, "x.json");
  ASSERT_TRUE(dump) << dump.error().message;
  EXPECT_EQ(dump->ledgers.size(), 2U);
  auto ordered = ordered_json::parse(text);
  const auto pretty = read_post_mortem(ordered.dump(8), "x.json");
  ASSERT_TRUE(pretty) << pretty.error().message;
  EXPECT_EQ(pretty->ledgers.size(), 2U);
  EXPECT_EQ(pretty->events.size(), read_post_mortem(text, "x.json")->events.size());
}

TEST(PostMortemReader, loads_a_file_and_names_one_that_is_not_there) {
  const TemporaryFolder folder;
  const auto path = (folder.path() / "a.json").string();
  std::ofstream{path} << story_text();
  EXPECT_EQ(load_post_mortem(path)->ledgers.size(), 2U);
  const auto missing = load_post_mortem(path + ".not");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::io);
  EXPECT_EQ(missing.error().message, path + ".not: No such file or directory");
}

}  // namespace
}  // namespace headroom::test
