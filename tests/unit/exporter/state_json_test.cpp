// The state as JSON: every figure worked out by hand, and names that are anything but names.
#include "state_json.hpp"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "flight_builder.hpp"
#include "state_parts.hpp"

namespace headroom::exporter {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

/// Process 42 with the manager "pool": 600 of 1000 bytes allocated, 700 claimed, 650 at the peak, on device 1 of 8000 bytes.
class State : public testing::Test {
protected:
  State() {
    look_.process.pid = 42;
    look_.process.run = 0x0123456789abcdefULL;
    look_.process.program = "train";
    look_.process.start_realtime_ns = 10'000 * kMs;
    look_.process.events_recorded = 12;
    look_.liveness = flight::Liveness::living;
    look_.clock = flight::ClockMap{1'000'000'000, {{.ticks = 0, .monotonic_ns = 0, .realtime_ns = 0}}};  // a tick is a nanosecond
    look_.monotonic_ns = 90'000 * kMs;
    look_.realtime_ns = 70'500 * kMs;
    flight::LedgerSnapshot pool;
    pool.cell = 3;
    pool.generation = 2;
    pool.directory_id = 7;
    pool.state = flight::LedgerState::open;
    pool.name = "pool";
    pool.device_name = "Test GPU";
    pool.device_uuid = "GPU-1";
    pool.device_ordinal = 1;
    pool.allocated = 600;
    pool.claimed = 700;
    pool.peak = 650;
    pool.limit = 1000;
    pool.unspent = 100;
    pool.live_allocations = 4;
    pool.device_total = 8000;
    pool.device_free = 5000;
    pool.device_outside = 2400;
    pool.pressure = PressureLevel::low;
    pool.refusals[0][0] = 3;
    look_.ledgers.push_back(pool);
  }

  flight::LedgerSnapshot& pool() { return look_.ledgers.front(); }
  [[nodiscard]] Json json(bool with_details = true, std::span<GpuDevice const> gpus = {}) const {
    return process_json(look_, with_details, gpus);
  }
  [[nodiscard]] Json manager() const { return json()["managers"][0]; }

  Look look_;
};

TEST_F(State, of_a_process_has_the_words_and_sums_of_ps) {
  auto other = pool();
  other.cell = 4;
  other.name = "other";
  other.allocated = other.claimed = other.peak = 50;
  other.limit = 100;
  other.pressure = PressureLevel::high;
  other.refusals = {};
  look_.ledgers.push_back(other);
  const auto process = json(false);
  EXPECT_EQ(process["id"], "42-" + flight::short_run(0x0123456789abcdefULL));
  EXPECT_EQ(process["pid"], 42);
  EXPECT_EQ(process["program"], "train");
  EXPECT_EQ(process["state"], "living");
  EXPECT_EQ(process["age_seconds"], 60.5);
  EXPECT_EQ(process["budget_bytes"], 1100);
  EXPECT_EQ(process["allocated_bytes"], 650);
  EXPECT_EQ(process["claimed_bytes"], 750);
  EXPECT_EQ(process["peak_bytes"], 700);
  EXPECT_EQ(process["live_allocations"], 8);
  EXPECT_EQ(process["pressure"], "high");
  EXPECT_EQ(process["failures"], 3);
  EXPECT_EQ(process["manager_count"], 2);
  EXPECT_EQ(process["host"], nullptr);
  for (const char* detail : {"managers", "devices", "hooks", "threads", "last_failures", "losses"}) {
    EXPECT_FALSE(process.contains(detail)) << detail;
    EXPECT_TRUE(json(true).contains(detail)) << detail;
  }
  look_.ledgers.back().limit.reset();
  EXPECT_EQ(json(false)["budget_bytes"], nullptr);
  look_.ledgers.clear();
  EXPECT_EQ(json(false)["budget_bytes"], nullptr);
}

TEST_F(State, says_how_a_process_ended) {
  look_.liveness = flight::Liveness::dead;
  EXPECT_EQ(json(false)["state"], "killed");
  look_.process.state = flight::ProcessState::closed;
  EXPECT_EQ(json(false)["state"], "exited");
  look_.process.state = flight::ProcessState::live;
  look_.liveness = flight::Liveness::unknown;
  EXPECT_EQ(json(false)["state"], "unknown");
  look_.process.start_realtime_ns = look_.realtime_ns + 1;  // the clock was set back
  EXPECT_EQ(json(false)["age_seconds"], 0.0);
}

TEST_F(State, of_a_manager_has_its_books) {
  const auto found = manager();
  EXPECT_EQ(found["id"], "3.2");
  EXPECT_EQ(found["name"], "pool");
  EXPECT_EQ(found["device"], 0);
  EXPECT_EQ(found["budget_bytes"], 1000);
  EXPECT_EQ(found["allocated_bytes"], 600);
  EXPECT_EQ(found["claimed_bytes"], 700);
  EXPECT_EQ(found["peak_bytes"], 650);
  EXPECT_EQ(found["remaining_bytes"], 300);
  EXPECT_EQ(found["over_budget_bytes"], 0);
  EXPECT_EQ(found["reserved_unspent_bytes"], 100);
  EXPECT_EQ(found["pressure"], "low");
  EXPECT_EQ(found["failures"], 3);
  EXPECT_EQ(found["history"], nullptr);
  pool().claimed = 1200;
  EXPECT_EQ(manager()["over_budget_bytes"], 200);
  EXPECT_EQ(manager()["remaining_bytes"], 0);
  pool().limit.reset();
  EXPECT_EQ(manager()["budget_bytes"], nullptr);
  EXPECT_EQ(manager()["remaining_bytes"], nullptr);
  EXPECT_EQ(manager()["over_budget_bytes"], 0);
}

TEST_F(State, figures_that_a_double_cannot_hold_are_strings) {
  constexpr std::uint64_t kExact = std::uint64_t{1} << 53U;
  EXPECT_EQ(figure(kExact), kExact);
  EXPECT_EQ(figure(kExact + 1), "9007199254740993");
  EXPECT_EQ(figure(~std::uint64_t{0}), "18446744073709551615");
  EXPECT_EQ(figure(std::optional<std::uint64_t>{}), nullptr);
}

TEST_F(State, the_most_important_tags_are_listed_and_the_rest_is_summed) {
  for (std::uint32_t id = 0; id < 40; ++id) {
    pool().tags.push_back({.id = id, .name = "t" + std::to_string(id), .bytes = 100 - id, .at_peak_bytes = id, .allocations = 1});
  }
  pool().tags.push_back({.id = 99, .name = "", .bytes = 0, .at_peak_bytes = 0, .allocations = 0});
  const auto tags = manager()["tags"];
  // The first sixteen by bytes, and 39 … 24 by what they held at the peak.
  ASSERT_EQ(tags["list"].size(), 32U);
  EXPECT_EQ(tags["list"][0]["name"], "t0");
  EXPECT_EQ(tags["list"][15]["name"], "t15");
  EXPECT_EQ(tags["list"][16]["name"], "t24");
  EXPECT_EQ(tags["list"][31]["name"], "t39");
  EXPECT_EQ(tags["left_out"], 8);  // 16 … 23; the one with nothing is none
  EXPECT_EQ(tags["left_out_bytes"], 84 + 83 + 82 + 81 + 80 + 79 + 78 + 77);
  EXPECT_EQ(tags["left_out_at_peak_bytes"], 16 + 17 + 18 + 19 + 20 + 21 + 22 + 23);
}

TEST_F(State, a_history_has_a_place_for_every_second_and_null_where_nothing_was_read) {
  look_.histories[{3, 2}] = {{.number = 80, .low = 1, .high = 5, .limit = 1000, .failures = 0},
                             {.number = 83, .low = 2, .high = 2, .limit = {}, .failures = 4}};
  const auto history = manager()["history"];
  EXPECT_EQ(history["first_second"], 80);
  EXPECT_EQ(history["low_bytes"], Json::array({1, nullptr, nullptr, 2}));
  EXPECT_EQ(history["high_bytes"], Json::array({5, nullptr, nullptr, 2}));
  EXPECT_EQ(history["budget_bytes"], Json::array({1000, nullptr, nullptr, nullptr}));
  EXPECT_EQ(history["failures"], Json::array({0, nullptr, nullptr, 4}));
}

TEST_F(State, a_device_is_told_once_by_whoever_knows_it_best) {
  auto account = pool();
  account.cell = 9;
  account.is_device_account = true;
  account.limit = 4000;
  account.claimed = 900;
  account.pending_free_bytes = 11;
  account.device_free = 4900;
  account.device_outside.reset();
  look_.ledgers.push_back(account);
  auto process = json();
  ASSERT_EQ(process["devices"].size(), 1U);
  auto device = process["devices"][0];
  EXPECT_EQ(device["name"], "Test GPU");
  EXPECT_EQ(device["ordinal"], 1);
  EXPECT_EQ(device["total_bytes"], 8000);
  EXPECT_EQ(device["free_bytes"], 4900);  // as the account last saw it
  EXPECT_EQ(device["outside_bytes"], 2400);
  EXPECT_EQ(device["usable_bytes"], nullptr);
  EXPECT_EQ(device["budget_bytes"], 4000);
  EXPECT_EQ(device["claimed_bytes"], 900);
  EXPECT_EQ(device["pending_free_bytes"], 11);
  EXPECT_EQ(device["seen_by"], "program");
  EXPECT_EQ(process["managers"].size(), 1U);
  EXPECT_EQ(process["manager_count"], 1);

  GpuDevice gpu;
  gpu.uuid = "GPU-1";
  gpu.memory = {.physical_total = 8192, .driver_reserved = 192, .usable = 8000, .free = 4500};
  device = json(true, {&gpu, 1})["devices"][0];
  EXPECT_EQ(device["total_bytes"], 8192);
  EXPECT_EQ(device["driver_reserved_bytes"], 192);
  EXPECT_EQ(device["usable_bytes"], 8000);
  EXPECT_EQ(device["free_bytes"], 4500);
  EXPECT_EQ(device["seen_by"], "driver");
}

TEST_F(State, a_manager_without_a_device_has_none) {
  pool().device_name.clear();
  pool().device_uuid.clear();
  pool().device_ordinal = -1;
  EXPECT_EQ(json()["devices"].size(), 0U);
  EXPECT_EQ(manager()["device"], nullptr);
}

TEST_F(State, hooks_have_their_managers_and_the_run_that_goes_on) {
  flight::HookSnapshot hook;
  hook.ledger_id = 7;
  hook.name = "evict";
  hook.priority = -2;
  hook.runs = 5;
  hook.freed_bytes = 400;
  hook.duration_ns = 1'500 * kMs;
  hook.running_since_ticks = 87'000 * kMs;
  hook.running_thread = 55;
  hook.limit_ns = 1'000 * kMs;
  look_.hooks.push_back(hook);
  hook.ledger_id = 0;
  hook.running_since_ticks.reset();
  hook.limit_ns = 0;
  look_.hooks.push_back(hook);
  const auto process = json();
  const auto found = process["hooks"];
  EXPECT_EQ(found[0]["manager"], "pool");
  EXPECT_EQ(found[0]["priority"], -2);
  EXPECT_EQ(found[0]["runs"], 5);
  EXPECT_EQ(found[0]["freed_bytes"], 400);
  EXPECT_EQ(found[0]["seconds"], 1.5);
  EXPECT_EQ(found[0]["running_seconds"], 3.0);
  EXPECT_EQ(found[0]["limit_seconds"], 1.0);
  EXPECT_EQ(found[1]["manager"], nullptr);
  EXPECT_EQ(found[1]["running_seconds"], nullptr);
  EXPECT_EQ(found[1]["limit_seconds"], nullptr);
  ASSERT_EQ(process["threads"]["busy"].size(), 1U);
  EXPECT_EQ(process["threads"]["busy"][0]["thread"], 55);
  EXPECT_EQ(process["threads"]["busy"][0]["doing"], "running hook 'evict' (limit 1.0 s)");
}

TEST_F(State, threads_are_those_in_the_middle_of_something) {
  look_.lanes = {{.lane = 0, .owned = true, .thread = 50, .thread_name = "loader", .main_head = 0, .journal_head = 0},
                 {.lane = 1, .owned = true, .thread = 51, .thread_name = "", .main_head = 0, .journal_head = 0},
                 {.lane = 2, .owned = false, .thread = 49, .thread_name = "gone", .main_head = 0, .journal_head = 0}};
  look_.in_flight = {{.lane = 0,
                      .thread = 50,
                      .thread_name = "loader",
                      .operation = flight::InFlight::allocating,
                      .ledger = 3,
                      .bytes = 2048,
                      .since_ticks = 89'000 * kMs},
                     {.lane = 1,
                      .thread = 51,
                      .thread_name = "",
                      .operation = flight::InFlight::freeing,
                      .ledger = 8,
                      .bytes = 1,
                      .since_ticks = 90'001 * kMs}};
  follow::FailureStory story;
  story.thread = 52;
  story.requested = 4096;
  story.ledger_name = "pool";
  story.end = follow::FailureEnd::under_way;
  story.doing = flight::PolicyStep::waited;
  story.doing_since = 80'000 * kMs;
  look_.failures = {story};
  const auto threads = json()["threads"];
  EXPECT_EQ(threads["attached"], 2);
  ASSERT_EQ(threads["busy"].size(), 3U);
  EXPECT_EQ(
      threads["busy"][0],
      (Json{{"thread", 50}, {"name", "loader"}, {"doing", "asking Test GPU for 2 KiB"}, {"seconds", 1.0}, {"manager", "pool"}}));
  EXPECT_EQ(threads["busy"][1],
            (Json{{"thread", 51}, {"name", nullptr}, {"doing", "freeing 1 B"}, {"seconds", 0.0}, {"manager", nullptr}}));
  EXPECT_EQ(
      threads["busy"][2],
      (Json{{"thread", 52}, {"name", nullptr}, {"doing", "waiting for room for 4 KiB"}, {"seconds", 10.0}, {"manager", "pool"}}));
}

TEST_F(State, the_newest_failure_stands_first) {
  follow::FailureStory story;
  story.number = 1;
  story.ticks = story.end_ticks = 60'000 * kMs;
  story.requested = 512;
  story.kind = ErrorKind::over_budget;
  story.layer = Layer::manager;
  look_.failures.push_back(story);
  story.number = 2;
  story.ticks = story.end_ticks = 88'000 * kMs;
  story.kind.reset();
  story.layer.reset();
  look_.failures.push_back(story);
  const auto failures = json()["last_failures"];
  ASSERT_EQ(failures.size(), 2U);
  EXPECT_EQ(failures[0]["number"], 2);
  EXPECT_EQ(failures[0]["age_seconds"], 2.0);
  EXPECT_EQ(failures[0]["at_second"], 88.0);
  EXPECT_EQ(failures[0]["reason"], nullptr);
  EXPECT_EQ(failures[1]["reason"], "over_budget");
  EXPECT_EQ(failures[1]["layer"], "manager");
  EXPECT_EQ(failures[1]["end"], "failed");
  EXPECT_EQ(failures[1]["budget_bytes"], nullptr);
}

TEST_F(State, losses_are_those_of_this_reader) {
  look_.events_lost = 5;
  look_.losses.events_read = 7;
  look_.losses.events_lost = 500;  // most of it before anybody read
  look_.losses.events_refused = 2;
  const auto losses = json()["losses"];
  EXPECT_EQ(losses["events_recorded"], 12);
  EXPECT_EQ(losses["events_read"], 7);
  EXPECT_EQ(losses["events_lost"], 5);
  EXPECT_EQ(losses["events_refused"], 2);
}

TEST_F(State, is_strict_json_whatever_things_are_called) {
  look_.process.program = "a\"b\\c\n\x01\xff</script>";
  pool().name = std::string{"x\0y", 3};
  pool().device_name = "\xed\xa0\x80";  // a surrogate
  pool().tags.push_back({.id = 1, .name = "\xc3\x28", .bytes = 1, .at_peak_bytes = 0, .allocations = 1});
  const auto text = state_text("process", {json()}, 3);
  const auto read = nlohmann::json::parse(text);  // throws at anything that is not strict
  EXPECT_EQ(read["schema"], (nlohmann::json{{"name", "headroom-state"}, {"version", 1}}));
  EXPECT_EQ(read["exporter_errors"], 3);
  EXPECT_EQ(read["processes"][0]["program"], "a\"b\\c\n\x01\xEF\xBF\xBD</script>");
  EXPECT_EQ(read["processes"][0]["managers"][0]["name"], (std::string{"x\0y", 3}));
  EXPECT_EQ(read["processes"][0]["managers"][0]["tags"]["list"][0]["name"], "\xEF\xBF\xBD(");
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(StateOfAHostileFile, is_strict_json_too) {
  flight::FlightBuilder file;
  const auto all = ~std::uint64_t{0};
  file.header().lanes_used = 2;
  file.put_name(1, flight::EntryKind::device, 0, 0, "\xff\xfe");
  auto& cell = file.open_ledger(0, 2, "\"\\\n\x01\xff");
  cell.device_id = 1;
  for (auto* word : {&cell.claim, &cell.alloc, &cell.peak, &cell.unspent, &cell.failed_free_bytes, &cell.device_total,
                     &cell.device_free, &cell.pressure, &cell.sentinel_bytes}) {
    word->store(all);
  }
  file.put_name(3, flight::EntryKind::hook, 2, 0, "hook\xed\xa0\x80");
  file.hook(0).directory_id = 3;
  file.header().hooks_used = 1;
  for (auto* word : {&file.hook(0).runs, &file.hook(0).freed_bytes, &file.hook(0).duration_ns, &file.hook(0).limit_ns})
    *word = all;
  file.lane(0).header.in_flight = pack_in_flight(flight::InFlight::freeing, 0, 1);
  file.lane(0).header.in_flight_ticks = all;
  for (std::uint64_t kind = 1; kind < 40; ++kind) {
    file.write(0, flight::Ring::journal, flight::record(static_cast<flight::EventKind>(kind), all - kind, all));
  }
  file.header().start_realtime_ns = all;
  std::memset(file.header().program, 0xff, sizeof file.header().program);
  Followed followed{file.view()};
  for (int tick = 0; tick < 3; ++tick) ASSERT_TRUE(followed.tick());
  const auto text = state_text("machine", {process_json(followed.look({}), true, {})}, 0);
  const auto read = nlohmann::json::parse(text);
  EXPECT_EQ(read["processes"][0]["managers"].size(), 1U);
  EXPECT_EQ(text.find(":-"), std::string::npos);
}

TEST_F(State, of_nobody_is_an_empty_list) {
  const auto read = nlohmann::json::parse(state_text("process", {}, 0));
  EXPECT_EQ(read["processes"], nlohmann::json::array());
  EXPECT_EQ(read["serves"], "process");
}

TEST(StateRequest, wants_all_unless_somebody_is_named) {
  const auto all = StateRequest::from_query({});
  EXPECT_TRUE(all.wants("1-a", 1));
  EXPECT_TRUE(all.wants("1-a", 200));
  EXPECT_EQ(all.since_second, 0U);
  const auto two = StateRequest::from_query({{"detail", "1-a,,2-b"}, {"detail", "3-c"}, {"since", "77"}});
  for (const char* id : {"1-a", "2-b", "3-c"}) EXPECT_TRUE(two.wants(id, 200)) << id;
  EXPECT_FALSE(two.wants("4-d", 200));
  EXPECT_FALSE(two.wants("4-d", 1));
  EXPECT_FALSE(two.wants("", 1));
  EXPECT_EQ(two.since_second, 77U);
  const auto none = StateRequest::from_query({{"detail", ""}});
  EXPECT_FALSE(none.wants("1-a", 1));
}

TEST(StateRequest, wants_the_only_one_if_it_is_alone) {
  const auto request = StateRequest::from_query({{"detail", "auto"}});
  EXPECT_TRUE(request.wants("1-a", 1));
  EXPECT_FALSE(request.wants("1-a", 2));
}

TEST(StateRequest, takes_no_number_that_is_none) {
  for (const char* text : {"", "x", "7x", "-1", " 7", "18446744073709551616", "1.5"}) {
    EXPECT_EQ(StateRequest::from_query({{"since", text}}).since_second, 0U) << text;
  }
}

}  // namespace
}  // namespace headroom::exporter
