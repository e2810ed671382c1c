// What a post-mortem says of a flight file that was made by hand.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "compact_flight.hpp"
#include "flight_builder.hpp"
#include "post_mortems.hpp"

namespace headroom::test {
namespace {

using flight::EntryKind;
using flight::EventKind;
using flight::FlightBuilder;
using flight::Ring;
using flight::SlotState;
using nlohmann::json;

json dump_of(FlightBuilder const& file, Writing const& how = {}) { return json::parse(post_mortem_text(file.view(), how)); }

/// Strings of digits and numbers alike.
std::uint64_t number(json const& value) {
  return value.is_string() ? std::stoull(value.get<std::string>(), nullptr, 0) : value.get<std::uint64_t>();
}

TEST(PostMortem, keys_come_in_one_order) {
  FlightBuilder file;
  flight::fill_with_a_story(file);
  const auto text = post_mortem_text(file.view());
  const auto ordered = nlohmann::ordered_json::parse(text);
  std::vector<std::string> keys;
  for (auto const& [key, value] : ordered.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"schema", "reason", "contents", "written", "process", "clock", "devices", "ledgers",
                                            "hooks", "in_flight", "first_failures", "sites", "names", "live", "events", "lanes",
                                            "end"}));
  EXPECT_EQ(ordered["end"]["status"], "complete");
  EXPECT_EQ(ordered["contents"]["events"], "included");
}

TEST(PostMortem, the_process_and_its_books_are_those_of_the_file) {
  FlightBuilder file;
  flight::fill_with_a_story(file);
  const auto dump = dump_of(file, {.liveness = flight::Liveness::dead, .reason = "found \"dead\""});
  EXPECT_EQ(dump["reason"]["text"], "found \"dead\"");
  EXPECT_EQ(dump["process"]["program"], "trainer");
  EXPECT_EQ(dump["process"]["command"], "python3 train.py --größe 9");
  EXPECT_EQ(dump["process"]["liveness"], "dead");
  EXPECT_EQ(dump["written"]["by"], "reader");
  EXPECT_EQ(dump["clock"]["syncs"].size(), 4U);
  EXPECT_EQ(dump["clock"]["syncs"][0], (json{1'000, 0, "1700000000000000000"}));
  EXPECT_EQ(dump["devices"], (json{{{"id", 1}, {"name", "NVIDIA H200"}, {"uuid", "GPU-0123"}, {"ordinal", 0}}}));

  ASSERT_EQ(dump["ledgers"].size(), 2U);
  auto const& ledger = dump["ledgers"][0];
  EXPECT_EQ(ledger["name"], "weights");
  EXPECT_EQ(dump["ledgers"][1]["name"], "caché");
  EXPECT_EQ(ledger["claimed_bytes"], 4'000);
  EXPECT_EQ(ledger["allocated_bytes"], 3'000);
  EXPECT_EQ(ledger["peak_bytes"], 3'500);
  EXPECT_EQ(ledger["budget"], (json{{"mode", "enforce"}, {"limit_bytes", 5'000}}));
  EXPECT_EQ(ledger["remaining_bytes"], 1'000);
  EXPECT_EQ(ledger["over_budget_bytes"], 0);
  EXPECT_EQ(ledger["live_allocations"], 8);  // 2 lanes of 7 − 3
  EXPECT_EQ(ledger["in_flight_bytes"], 512);
  EXPECT_EQ(ledger["pressure"]["level"], "medium");
  EXPECT_EQ(ledger["pressure"]["sequence"], 3);
  EXPECT_EQ(ledger["failures"], 4);
  EXPECT_EQ(ledger["refusals"], (json{{{"kind", "over_budget"}, {"layer", "manager"}, {"count", 4}}}));
  ASSERT_EQ(ledger["tags"].size(), 2U);
  EXPECT_EQ(ledger["tags"][0]["name"], "attention");
  EXPECT_EQ(ledger["tags"][0]["live_bytes"], 3'000);
  EXPECT_EQ(ledger["at_peak"]["peak_bytes"], 3'500);
  EXPECT_EQ(ledger["at_peak"]["holders"], (json{{{"tag", 5}, {"name", "attention"}, {"bytes", 3'000}}}));

  ASSERT_EQ(dump["in_flight"].size(), 1U);
  EXPECT_EQ(dump["in_flight"][0]["operation"], "allocating");
  EXPECT_EQ(dump["in_flight"][0]["bytes"], 512);
  EXPECT_EQ(dump["first_failures"][0]["count"], 2);
  EXPECT_EQ(dump["first_failures"][0]["tag_name"], "attention");
}

TEST(PostMortem, live_allocations_are_listed_largest_first_and_summed_up_by_site) {
  FlightBuilder file;
  file.put_name(3, EntryKind::site, 0, 42, "model.cpp:42");
  file.put_name(4, EntryKind::site, 0, 7, "cache.cpp:7");
  const std::uint64_t sizes[] = {500, 9'000, 100, 7'000};
  for (std::uint32_t i = 0; i < 4; ++i) {
    auto& slot = file.slot(i);
    slot.address = 0x1000 * (i + 1);
    slot.bytes = sizes[i];
    slot.site_thread = (std::uint64_t{i < 2 ? 3U : 4U} << 32) | 77;
    slot.state = flight::pack_slot(5, i == 2 ? SlotState::failed : SlotState::live, false);
  }
  file.slot(9).state = flight::pack_slot(1, SlotState::free, false);
  const auto dump = dump_of(file);
  EXPECT_EQ(dump["live"]["allocations"], 4);
  EXPECT_EQ(dump["live"]["bytes"], 16'600);
  std::vector<std::uint64_t> listed;
  for (auto const& row : dump["live"]["rows"]) listed.push_back(number(row[1]));
  EXPECT_EQ(listed, (std::vector<std::uint64_t>{9'000, 7'000, 500, 100}));
  EXPECT_EQ(dump["live"]["rows"][0][0], "0x2000");
  EXPECT_EQ(dump["live"]["rows"][3][6], "failed");
  ASSERT_EQ(dump["sites"].size(), 2U);
  EXPECT_EQ(dump["sites"][0],
            (json{{"id", 3}, {"name", "model.cpp:42"}, {"line", 42}, {"live_bytes", 9'500}, {"live_allocations", 2}}));
  EXPECT_EQ(dump["sites"][1]["live_bytes"], 7'100);

  const auto capped = dump_of(file, {.options = {.events = true, .most_live = 2}});
  EXPECT_EQ(capped["contents"]["most_live"], 2);
  EXPECT_EQ(capped["live"]["rows"].size(), 2U);
  EXPECT_EQ(capped["live"]["rows"][1][1], 7'000);
  EXPECT_EQ(capped["live"]["listed"], 2);
  EXPECT_EQ(capped["live"]["listed_bytes"], 16'000);
  EXPECT_EQ(capped["live"]["bytes"], 16'600);
  EXPECT_EQ(dump_of(file, {.options = {.events = true, .most_live = 0}})["live"]["rows"].size(), 0U);
}

TEST(PostMortem, a_slot_that_is_being_written_makes_it_partial) {
  FlightBuilder file;
  file.slot(0).state = flight::pack_slot(1, SlotState::live, true);
  const auto dump = dump_of(file);
  EXPECT_EQ(dump["end"]["status"], "partial");
  EXPECT_EQ(dump["end"]["live_being_written"], 1);
}

TEST(PostMortem, events_of_all_rings_are_one_timeline) {
  FlightBuilder file;
  for (std::uint64_t i = 0; i < 4; ++i) {
    file.write(0, Ring::main, flight::record(EventKind::allocate, 100 + 10 * i));
    file.write(1, Ring::main, flight::record(EventKind::free, 105 + 10 * i));
  }
  file.write(1, Ring::journal, flight::record(EventKind::mark, 112, 9));
  const auto dump = dump_of(file);
  std::vector<std::uint64_t> ticks;
  for (auto const& row : dump["events"]["rows"]) ticks.push_back(number(row[1]));
  EXPECT_EQ(ticks, (std::vector<std::uint64_t>{100, 105, 110, 112, 115, 120, 125, 130, 135}));
  EXPECT_EQ(dump["events"]["rows"][3][4], "mark");
  EXPECT_EQ(dump["events"]["rows"][3][11], "0x9");  // a mark's value
  EXPECT_EQ(dump["end"]["events_listed"], 9);
  EXPECT_EQ(dump["end"]["events_recorded"], 9);
}

TEST(PostMortem, every_lane_says_what_is_listed_and_what_is_gone) {
  FlightBuilder file;  // main rings of 8 in blocks of 2
  for (std::uint64_t i = 0; i < 20; ++i) file.write(3, Ring::main, flight::record(EventKind::allocate, 100 + i));
  file.lane(3).header.owner = 55;
  const auto dump = dump_of(file);
  ASSERT_EQ(dump["lanes"].size(), 1U);
  auto const& main = dump["lanes"][0]["main"];
  // 20 written, reserve at 20: records 12 to 19 may still be read.
  EXPECT_EQ(main, (json{{"recorded", 20}, {"first", 12}, {"last", 19}, {"listed", 8}, {"lost", 12}}));
  EXPECT_EQ(dump["lanes"][0]["journal"], (json{{"recorded", 0}, {"listed", 0}, {"lost", 0}}));
  EXPECT_EQ(dump["lanes"][0]["thread"], 54);
}

TEST(PostMortem, a_record_that_was_not_published_is_listed_of_the_dead_only) {
  FlightBuilder file;
  for (std::uint64_t i = 0; i < 3; ++i) file.write(0, Ring::main, flight::record(EventKind::allocate, 100 + i));
  file.ring_words(0, Ring::main).head = 2;
  const auto dead = dump_of(file, {.liveness = flight::Liveness::dead});
  ASSERT_EQ(dead["events"]["rows"].size(), 3U);
  EXPECT_EQ(dead["events"]["rows"][2][5], 0x100);
  EXPECT_EQ(dead["lanes"][0]["main"]["lost"], 0);
  EXPECT_EQ(dump_of(file)["events"]["rows"].size(), 2U);
}

TEST(PostMortem, without_events_it_says_so) {
  FlightBuilder file;
  flight::fill_with_a_story(file);
  const auto asked = dump_of(file, {.options = {.events = false}});
  EXPECT_EQ(asked["contents"]["events"], "left_out");
  EXPECT_FALSE(asked.contains("events"));
  EXPECT_FALSE(asked["lanes"][0]["main"].contains("lost"));
  EXPECT_EQ(asked["end"]["status"], "complete");

  const auto forced = dump_of(file, {.events_left_out = "No space left on device"});
  EXPECT_EQ(forced["contents"]["events_left_out_because"], "No space left on device");
  EXPECT_EQ(forced["end"]["status"], "partial");

  file.header().events_off = 1;
  EXPECT_EQ(dump_of(file)["contents"]["events"], "not_recorded");
}

TEST(PostMortem, hostile_texts_of_a_file_stay_strict_json) {
  FlightBuilder file;
  flight::fill_with_a_story(file);
  file.put_name(5, EntryKind::tag, 2, 1, "a\"b\\c\n\xFF\xFE\x01");
  file.header().program[0] = '\xC0';
  const auto dump = dump_of(file);
  EXPECT_EQ(dump["ledgers"][0]["tags"][0]["name"], "a\"b\\c\n\\xff\\xfe\x01");
  EXPECT_EQ(dump["process"]["program"], "\\xc0rainer");
}

TEST(PostMortem, a_sink_that_is_full_ends_it_and_says_why) {
  FlightBuilder file;
  flight::fill_with_a_story(file);
  EXPECT_EQ(post_mortem_text(file.view(), {}, 0), "");
  const auto view = file.view();
  auto const& mapped = flight::ViewAccess::mapped(view);
  dump::Workspace workspace{dump::WorkspaceSizes::of(mapped)};
  StringSink sink{2'000};
  dump::JsonStream stream{sink, workspace.buffer.first(1'024)};
  const dump::WriteRequest request{.mapped = mapped, .reason = "a test", .options = {}, .events_left_out = {}, .counts = {}};
  dump::Writer{request, workspace, stream}.write();
  EXPECT_EQ(stream.finish(), ENOSPC);
  EXPECT_EQ(sink.writes, 2U);  // and no third one
  EXPECT_LE(sink.text.size(), 1'024U);
}

/// A writer that goes on while its rings are listed: it laps them once.
class LappingSink final : public dump::ByteSink {
public:
  explicit LappingSink(FlightBuilder& file) noexcept : file_{file} {}
  [[nodiscard]] int write(std::span<char const> bytes) noexcept override {
    text.append(bytes.data(), bytes.size());
    if (has_lapped_ || text.find("\"events\"") == std::string::npos || text.find("other_kinds") == std::string::npos) return 0;
    has_lapped_ = true;
    for (std::uint64_t i = 0; i < 9; ++i) file_.write(0, Ring::main, flight::record(EventKind::allocate, 10'000 + i));
    return 0;
  }
  std::string text;

private:
  FlightBuilder& file_;
  bool has_lapped_ = false;
};

TEST(PostMortem, what_is_recorded_while_it_is_written_is_not_listed) {
  FlightBuilder file;
  for (std::uint64_t i = 0; i < 8; ++i) file.write(0, Ring::main, flight::record(EventKind::allocate, 5'000 + i));
  for (std::uint32_t lane = 1; lane < 6; ++lane) {  // older: they are listed first
    for (std::uint64_t i = 0; i < 8; ++i) file.write(lane, Ring::main, flight::record(EventKind::allocate, 100 + i));
  }
  const auto view = file.view();
  auto const& mapped = flight::ViewAccess::mapped(view);
  dump::Workspace workspace{dump::WorkspaceSizes::of(mapped)};
  LappingSink sink{file};
  dump::JsonStream stream{sink, workspace.buffer.first(1'024)};
  const dump::WriteRequest request{.mapped = mapped,
                                   .liveness = flight::Liveness::living,
                                   .reason = "a test",
                                   .options = {},
                                   .events_left_out = {},
                                   .counts = {}};
  dump::Writer{request, workspace, stream}.write();
  ASSERT_EQ(stream.finish(), 0);
  const auto dump = json::parse(sink.text);
  // The first record was read before; the other seven are gone, and the eighth of the new ones is none of those that were asked for.
  EXPECT_EQ(dump["lanes"][0]["main"], (json{{"recorded", 8}, {"first", 0}, {"last", 0}, {"listed", 1}, {"lost", 7}}));
  EXPECT_EQ(dump["end"]["events_listed"], 41);
}

TEST(PostMortem, marks_and_logs_have_their_names) {
  FlightBuilder file;
  file.put_name(3, EntryKind::mark, 0, 0, "epoch 7");
  file.put_name(4, EntryKind::log, 0, 2, "driver");
  file.put_name(5, EntryKind::site, 0, 7, "a.cpp:7");
  EXPECT_EQ(dump_of(file)["names"], (json{{{"id", 3}, {"kind", "mark"}, {"name", "epoch 7"}},
                                          {{"id", 4}, {"kind", "log"}, {"number", 2}, {"name", "driver"}}}));
  const auto read = read_post_mortem(post_mortem_text(file.view()), "dump").value();
  EXPECT_EQ(read.label(3), "epoch 7");
  EXPECT_EQ(read.label(4), "driver");
  ASSERT_EQ(read.other_names.size(), 2U);
  EXPECT_EQ(read.other_names[1].number, 2U);
}

TEST(PostMortem, a_devices_memory_is_as_the_failing_request_was_told) {
  FlightBuilder file;
  file.put_name(1, EntryKind::device, 0, 0, "GPU");
  const auto ledger = [&](std::uint32_t cell, std::uint64_t total, std::uint64_t free, flight::LedgerState state) {
    auto& words = file.open_ledger(cell, 2 + cell, "ledger");
    words.device_id = 1;
    words.device_total = total + 1;
    words.device_free = free + 1;
    words.state = static_cast<std::uint64_t>(state);
  };
  ledger(0, 1'000, 900, flight::LedgerState::closed);
  ledger(1, 1'000, 500, flight::LedgerState::open);
  ledger(2, 1'000, 300, flight::LedgerState::open);
  EXPECT_EQ(dump_of(file)["devices"][0]["free_bytes"], 500);  // an open one's, not the first one's
  Error error = make_error(ErrorKind::device_out_of_memory, Layer::driver, "");
  const dump::KnownFailure failure{.error = error, .ledger_cell = 2};
  EXPECT_EQ(dump_of(file, {.failure = &failure})["devices"][0]["free_bytes"], 300);
  error.device_free = 20;
  error.device_total = 1'000;
  error.device_outside = 7;
  const auto device = dump_of(file, {.failure = &failure})["devices"][0];
  EXPECT_EQ(device["free_bytes"], 20);
  EXPECT_EQ(device["total_bytes"], 1'000);
  EXPECT_EQ(device["outside_bytes"], 7);
  file.ledger(1).state = file.ledger(2).state = static_cast<std::uint64_t>(flight::LedgerState::closed);
  EXPECT_EQ(dump_of(file)["devices"][0]["free_bytes"], 900);
}

TEST(PostMortem, tags_beyond_those_that_fit_make_it_partial) {
  FlightBuilder file{{.main_records = 8,
                      .main_block = 2,
                      .journal_records = 8,
                      .journal_block = 2,
                      .live_slots = 16,
                      .directory_entries = 1'024}};
  file.open_ledger(0, 2, "manager");
  for (std::uint32_t i = 0; i < 512; ++i) file.put_name(3 + i, EntryKind::tag, 2, i % flight::kTagCells, "tag");
  EXPECT_EQ(dump_of(file)["end"]["status"], "complete");
  for (std::uint32_t i = 512; i < 515; ++i) file.put_name(3 + i, EntryKind::tag, 2, i % flight::kTagCells, "tag");
  const auto dump = dump_of(file);
  EXPECT_EQ(dump["end"]["status"], "partial");
  EXPECT_EQ(dump["end"]["tags_left_out"], 3);
  EXPECT_EQ(dump["ledgers"][0]["tags"].size(), 512U);
}

// A cell that goes from owner to owner all the time is left out rather than told as a mixture; whichever it is, it is counted.
TEST(PostMortem, a_ledger_that_changes_hands_is_whole_or_left_out) {
  FlightBuilder file;
  auto& cell = file.open_ledger(0, 2, "manager");
  std::atomic<bool> over{false};
  std::thread owner{[&] {
    while (!over.load()) cell.generation.fetch_add(1);
  }};
  for (int i = 0; i < 20; ++i) {
    const auto dump = dump_of(file);
    const auto left_out = number(dump["end"]["ledgers_left_out"]);
    EXPECT_EQ(dump["ledgers"].size() + left_out, 1U);
    EXPECT_EQ(dump["end"]["status"], left_out == 0 ? "complete" : "partial");
  }
  over.store(true);
  owner.join();
  EXPECT_EQ(dump_of(file)["end"]["ledgers_left_out"], 0);
}

TEST(PostMortem, the_newest_refusal_has_its_story) {
  FlightBuilder file{
      {.main_records = 8, .main_block = 2, .journal_records = 32, .journal_block = 8, .live_slots = 16, .directory_entries = 32}};
  file.put_name(2, EntryKind::ledger, 0, 0, "manager");
  file.put_name(6, EntryKind::tag, 2, 0, "activations");
  file.put_name(7, EntryKind::hook, 2, 0, "drop cache");
  constexpr std::uint64_t kThread = 41;
  const std::uint64_t refused = std::uint64_t{1 * 64 + 1} << 40;  // over_budget (0), manager (1)
  const auto put = [&](EventKind kind, std::uint64_t flags, std::array<std::uint64_t, 6> const& words, std::uint32_t lane = 0) {
    static std::uint64_t ticks = 0;
    file.write(lane, Ring::journal,
               {(std::uint64_t{static_cast<std::uint8_t>(kind)} << 56) | flags, 1'000 + ticks++, words[0], words[1], words[2],
                words[3], words[4], words[5]});
  };
  const auto refuse = [&](std::uint64_t bytes, std::uint64_t thread) {
    put(EventKind::refusal, 0, {bytes, (std::uint64_t{8} << 48) | bytes, 700, refused | 6, 0, thread});
    put(EventKind::refusal, flight::kFlagContinues, {800, flight::kLimitEnforcing | 1'000, 900, 0, 40, thread});
  };
  const std::uint64_t hook = std::uint64_t{7} << 28;
  refuse(111, kThread);  // an older story
  refuse(300, kThread);
  put(EventKind::hook_begin, 0, {100, 250, 200, hook, 300, kThread});
  refuse(50, kThread);       // what the hook asked for
  refuse(999, kThread + 1);  // another thread's, in the same lane and older than what ends the story: not the newest of all
  put(EventKind::hook_end, flight::kFlagHookOverran, {240, 5'000, 60, hook, 0, kThread});
  put(EventKind::hook_end, flight::kFlagContinues, {60, 250, 300, 100, 1'000, kThread});
  put(EventKind::hook_skip, 0, {40, 512, 200, hook, 1, kThread});
  put(EventKind::policy, 0, {std::uint64_t{1} | (1 << 8), 77, 60, refused | 6, 0, kThread});
  put(EventKind::policy, 0, {std::uint64_t{8} | (1 << 8), 90, 300, refused | 6, 0, kThread});
  put(EventKind::policy, 0, {std::uint64_t{8} | (1 << 8), 1, 1, refused | 6, 0, kThread});  // of a later story

  const auto story =
      dump::find_story(flight::ViewAccess::mapped(file.view()), {.thread = kThread, .request = {}, .quiet = false});
  ASSERT_TRUE(story);
  EXPECT_EQ(story->refusal[2], 300U);

  Error error = make_error(ErrorKind::over_budget, Layer::manager, "tried: 1 hook run");
  error.requested = 300;
  error.current = 800;
  error.limit = 1'000;
  error.holders[0] = {"activations", 555};
  const dump::KnownFailure known{.error = error, .ledger_cell = 0, .tag = 6, .site = 0, .thread = kThread};
  const auto failure = dump_of(file, {.failure = &known})["failure"];
  EXPECT_EQ(failure["requested_bytes"], 300);
  EXPECT_EQ(failure["kind"], "over_budget");
  EXPECT_EQ(failure["layer"], "manager");
  EXPECT_EQ(failure["tag_name"], "activations");
  EXPECT_EQ(failure["figures"]["claimed_bytes"], 800);
  EXPECT_EQ(failure["figures"]["limit_bytes"], 1'000);
  EXPECT_EQ(failure["holders"], (json{{{"name", "activations"}, {"bytes", 555}}}));
  EXPECT_EQ(failure["alignment"], 256);
  ASSERT_EQ(failure["hooks"].size(), 2U);
  EXPECT_EQ(failure["hooks"][0], (json{{"hook", 7},
                                       {"name", "drop cache"},
                                       {"shortfall_bytes", 100},
                                       {"estimate_bytes", 250},
                                       {"reported_bytes", 240},
                                       {"freed_bytes", 60},
                                       {"duration_ns", 5'000},
                                       {"overran", true},
                                       {"result", "freed"}}));
  EXPECT_EQ(failure["hooks"][1]["result"], "skipped_large");
  EXPECT_EQ(failure["hooks"][1]["overhead_bytes"], 512);
  ASSERT_EQ(failure["policy_steps"].size(), 2U);
  EXPECT_EQ(failure["policy_steps"][0],
            (json{{"step", "retried"}, {"policy", "retry_after_free"}, {"duration_ns", 77}, {"bytes", 60}, {"granted", false}}));
  EXPECT_EQ(failure["policy_steps"][1]["step"], "gave_up");
  EXPECT_EQ(failure["outcome"], "failed");

  // Without knowing: the newest refusal outside of hooks, which is the other thread's.
  const auto newest = dump_of(file)["failure"];
  EXPECT_EQ(newest["requested_bytes"], 999);
  EXPECT_EQ(newest["thread"], kThread + 1);
  EXPECT_EQ(newest["figures"]["claimed_bytes"], 800);
  EXPECT_EQ(newest["figures"]["required_bytes"], 1'799);
  EXPECT_EQ(newest["figures"]["limit_bytes"], 1'000);
  EXPECT_EQ(newest["outcome"], "unknown");
}

}  // namespace
}  // namespace headroom::test
