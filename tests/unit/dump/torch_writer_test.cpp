// A timeline as a memory snapshot of PyTorch: what is handed to the writer by hand comes out of the pickle as worked out by hand.
#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dump/torch_writer.hpp"
#include "post_mortems.hpp"
#include "unpickled.hpp"

namespace headroom::test {
namespace {

using namespace std::string_literals;
using dump::TimelineBlock;
using dump::TimelineLedger;
using dump::TimelineOperation;
using flight::EventKind;
using nlohmann::json;

constexpr std::uint64_t kStart = 1'700'000'000'000'000'000;  // ns since 1970
constexpr std::uint64_t kStartUs = kStart / 1000;
constexpr std::uint64_t kElsewhere = dump::TorchPlaces::kElsewhere;
constexpr std::uint32_t kWeights = 1, kActivations = 2;
constexpr std::uint32_t kLoad = 1;

class Names final : public dump::TimelineNames {
public:
  [[nodiscard]] std::string_view tag(std::uint32_t number) const noexcept override {
    return number == kWeights ? "weights" : number == kActivations ? "activations" : number == 3 ? hostile : std::string_view{};
  }
  [[nodiscard]] std::string_view site(std::uint32_t number) const noexcept override {
    return number == kLoad ? "model/load.cpp:7 load" : std::string_view{};
  }
  [[nodiscard]] std::string stack(std::uint32_t number) const override {
    return number == kLoad ? "main.cpp:3 main;model/load.cpp:7 load" : std::string{};
  }
  std::string hostile;
};

TimelineBlock block(std::uint32_t ledger, std::uint64_t address, std::uint64_t bytes, std::uint32_t tag = 0,
                    std::uint32_t site = 0, std::optional<std::uint64_t> stream = {}) {
  TimelineBlock made;
  made.ledger = ledger;
  made.address = address;
  made.bytes = bytes;
  made.tag = tag;
  made.site = site;
  made.stream = stream;
  return made;
}

/// Plays by hand; times are in µs.
class Played {
public:
  explicit Played(follow::SourceKind kind = follow::SourceKind::flight, std::size_t room = ~std::size_t{0})
      : sink{room}, writer{sink} {
    dump::TimelineProcess process;
    process.kind = kind;
    process.title = "a file";
    process.info.program = "train";
    process.info.pid = 42;
    process.names = &names;
    if (kind == follow::SourceKind::history) {
      process.start_clock_ns = 5'000;
    } else {
      process.start_realtime_ns = kStart;
    }
    writer.begin(process);
  }

  std::uint32_t ledger(std::string name, std::int64_t ordinal = 0, std::uint64_t allocated = 0, std::uint64_t unattributed = 0) {
    TimelineLedger made;
    made.id = static_cast<std::uint32_t>(books.size());
    made.name = std::move(name);
    made.device_ordinal = ordinal;
    made.device_name = "GPU";
    made.allocated = allocated;
    made.unattributed = unattributed;
    books.push_back(allocated);
    writer.ledger(made);
    return made.id;
  }
  void allocate(std::uint64_t us, TimelineBlock const& block, bool assumed = false) {
    if (!assumed) books[block.ledger] += block.bytes;
    operation(EventKind::allocate, us, block, assumed, true);
  }
  void free(std::uint64_t us, TimelineBlock const& block, bool assumed = false, bool known = true) {
    if (!assumed) books[block.ledger] -= block.bytes;
    operation(EventKind::free, us, block, assumed, known);
  }
  void gap(std::uint64_t us, std::uint32_t ledger, std::uint64_t allocated_after, std::uint64_t unattributed_after) {
    books[ledger] = allocated_after;
    writer.gap({.time_ns = us * 1000,
                .ledger = ledger,
                .missing = 1,
                .allocated_after = allocated_after,
                .unattributed_after = unattributed_after});
  }
  void note(EventKind kind, std::uint64_t us, std::optional<std::uint32_t> ledger, std::string_view name,
            std::uint64_t thread = 1) {
    flight::Event event;
    event.kind = kind;
    dump::TimelineNote made;
    made.kind = kind;
    made.time_ns = us * 1000;
    made.ledger = ledger;
    made.thread = thread;
    made.name = name;
    made.event = &event;
    writer.note(made);
  }
  void refuse(std::uint64_t us, std::uint32_t ledger, std::uint64_t bytes, ErrorKind kind, flight::Event const* tail = nullptr) {
    flight::Event event;
    event.kind = EventKind::refusal;
    event.words[2] = bytes;
    event.words[5] = std::uint64_t{(static_cast<std::uint32_t>(kind) + 1) * 64} << 40U;
    dump::TimelineNote made;
    made.kind = EventKind::refusal;
    made.time_ns = us * 1000;
    made.ledger = ledger;
    made.tag = kWeights;
    made.site = kLoad;
    made.event = &event;
    made.tail = tail;
    writer.note(made);
  }
  json end(std::uint64_t us) {
    dump::TimelineEnd end;
    end.time_ns = us * 1000;
    end.events_lost = 3;
    for (std::uint32_t id = 0; id < books.size(); ++id) end.ledgers.push_back({.id = id, .allocated = books[id]});
    writer.end(end);
    EXPECT_TRUE(writer.finish());
    return unpickled(sink.text);
  }

  Names names;
  StringSink sink;
  dump::TorchWriter writer;
  std::vector<std::uint64_t> books;  // by ledger: what is allocated

private:
  void operation(EventKind kind, std::uint64_t us, TimelineBlock const& block, bool assumed, bool known) {
    TimelineOperation made;
    made.kind = kind;
    made.time_ns = us * 1000;
    made.block = block;
    made.allocated_after = books[block.ledger];
    made.assumed = assumed;
    made.known = known;
    writer.operation(made);
  }
};

std::vector<std::string> actions(json const& trace) {
  std::vector<std::string> found;
  for (auto const& entry : trace)
    found.push_back(entry["action"].get<std::string>() + (entry.contains("addr") && entry["addr"] != 0
                                                              ? ' ' + std::to_string(entry["addr"].get<std::uint64_t>())
                                                              : ""));
  return found;
}
using Actions = std::vector<std::string>;

/// What memory_viz shows as live: before the first entry, and after each.
std::vector<std::uint64_t> shown_live(json const& snapshot, std::size_t device) {
  std::map<std::uint64_t, std::uint64_t> live;
  std::uint64_t before = 0;
  std::vector<std::int64_t> changes;
  for (auto const& entry : snapshot["device_traces"][device]) {
    auto const size = entry["size"].get<std::uint64_t>();
    if (entry["action"] == "alloc") {
      EXPECT_TRUE(live.emplace(entry["addr"], size).second) << "two live blocks at one address";
      changes.push_back(static_cast<std::int64_t>(size));
    } else if (entry["action"] == "free_completed") {
      if (live.erase(entry["addr"]) == 0) before += size;
      changes.push_back(-static_cast<std::int64_t>(size));
    }
  }
  for (auto const& segment : snapshot["segments"]) {
    if (segment["device"] != device) continue;
    for (auto const& block : segment["blocks"]) {
      if (live.erase(block["address"]) == 0) before += block["requested_size"].get<std::uint64_t>();
    }
  }
  EXPECT_TRUE(live.empty()) << "a block that was allocated is neither freed nor in a segment";
  std::vector<std::uint64_t> sums{before};
  for (auto const change : changes) sums.push_back(sums.back() + static_cast<std::uint64_t>(change));
  return sums;
}
using Sums = std::vector<std::uint64_t>;

std::uint64_t requested(json const& snapshot) {
  std::uint64_t sum = 0;
  for (auto const& segment : snapshot["segments"]) sum += segment["requested_size"].get<std::uint64_t>();
  return sum;
}

TEST(TorchWriter, a_block_is_a_segment_of_its_own) {
  Played played;
  auto const manager = played.ledger("cache");
  played.allocate(1, block(manager, 0x1000, 100, kWeights, kLoad, 9));
  played.allocate(2, block(manager, 0x2000, (1U << 20U) + 1));
  played.free(3, block(manager, 0x1000, 100, kWeights, kLoad));
  auto const snapshot = played.end(4);

  ASSERT_EQ(snapshot["device_traces"].size(), 1U);
  auto const& trace = snapshot["device_traces"][0];
  EXPECT_EQ(actions(trace), (Actions{"segment_alloc 4096", "alloc 4096", "segment_alloc 8192", "alloc 8192",
                                     "free_requested 4096", "free_completed 4096", "segment_free 4096", "snapshot"}));
  auto const frames = json::parse(R"([{"name": "load", "filename": "model/load.cpp", "line": 7},
                                      {"name": "main", "filename": "main.cpp", "line": 3}])");
  EXPECT_EQ(trace[1], (json{{"action", "alloc"},
                            {"addr", 0x1000},
                            {"size", 100},
                            {"stream", 9},
                            {"time_us", kStartUs + 1},
                            {"user_metadata", "cache"},
                            {"frames", frames},
                            {"category", "weights"}}));
  EXPECT_EQ(trace[3]["category"], "untagged");
  EXPECT_EQ(trace[3]["frames"], json::array());
  EXPECT_EQ(trace[3]["stream"], 0);
  EXPECT_EQ(trace[5]["stream"], 9);
  EXPECT_EQ(trace[5]["category"], "weights");
  EXPECT_EQ(trace[5]["frames"], frames);
  EXPECT_FALSE(trace[0].contains("category"));
  EXPECT_EQ(trace.back()["category"], "unknown");
  EXPECT_EQ(trace.back()["time_us"], kStartUs + 4);

  ASSERT_EQ(snapshot["segments"].size(), 1U);
  auto const& segment = snapshot["segments"][0];
  for (auto const* const key : {"total_size", "allocated_size", "active_size", "requested_size"})
    EXPECT_EQ(segment[key], 1'048'577);
  EXPECT_EQ(segment["address"], 0x2000);
  EXPECT_EQ(segment["segment_type"], "large");
  EXPECT_EQ(segment["segment_pool_id"], (json{0, 0}));
  EXPECT_EQ(segment["is_expandable"], false);
  EXPECT_EQ(segment["device"], 0);
  EXPECT_EQ(segment["blocks"], (json::array({{{"address", 0x2000},
                                              {"size", 1'048'577},
                                              {"requested_size", 1'048'577},
                                              {"state", "active_allocated"},
                                              {"user_metadata", "cache"},
                                              {"frames", json::array()},
                                              {"category", "untagged"}}})));
  EXPECT_EQ(snapshot["allocator_settings"], json::object());
  EXPECT_EQ(snapshot["external_annotations"], json::array());
  EXPECT_EQ(snapshot["headroom"]["pid"], 42);
  EXPECT_EQ(snapshot["headroom"]["program"], "train");
  EXPECT_EQ(snapshot["headroom"]["events_lost"], 3);
  EXPECT_EQ(snapshot["headroom"]["devices"][0]["managers"], json{"cache"});
  EXPECT_EQ(played.writer.written(), 7U);
}

TEST(TorchWriter, a_segment_of_a_mebibyte_is_small) {
  Played played;
  auto const manager = played.ledger("m");
  played.allocate(1, block(manager, 0x1000, 1U << 20U));
  EXPECT_EQ(played.end(2)["segments"][0]["segment_type"], "small");
}

TEST(TorchWriter, a_history_keeps_its_own_clock) {
  Played played{follow::SourceKind::history};
  auto const manager = played.ledger("history");
  played.allocate(7, block(manager, 0x1000, 1));
  EXPECT_EQ(played.end(7)["device_traces"][0][1]["time_us"], 12);
}

TEST(TorchWriter, blocks_from_before_have_no_entry_of_their_allocation) {
  Played played;
  auto const manager = played.ledger("m", 0, 300);
  auto const stays = block(manager, 0x1000, 100, kWeights);
  auto const goes = block(manager, 0x2000, 200, kActivations);
  played.writer.before(stays);
  played.writer.before(goes);
  played.free(5, goes);
  auto const snapshot = played.end(6);
  EXPECT_EQ(actions(snapshot["device_traces"][0]),
            (Actions{"free_requested 8192", "free_completed 8192", "segment_free 8192", "snapshot"}));
  EXPECT_EQ(snapshot["device_traces"][0][0]["category"], "activations");
  ASSERT_EQ(snapshot["segments"].size(), 1U);
  EXPECT_EQ(snapshot["segments"][0]["blocks"][0]["category"], "weights");
  EXPECT_EQ(shown_live(snapshot, 0), (Sums{300, 100}));
}

TEST(TorchWriter, two_live_blocks_at_one_address_are_kept_apart) {
  Played played{follow::SourceKind::history};
  auto const manager = played.ledger("history", -1);
  auto const twice = block(manager, 0x1000, 100);
  played.allocate(1, twice);
  played.allocate(2, twice);                      // the log is late with the free of the first
  played.allocate(2, block(manager, 0x1032, 7));  // and with that of what reached to here
  played.free(3, twice);
  played.free(4, twice);
  auto const snapshot = played.end(5);
  EXPECT_EQ(shown_live(snapshot, 0), (Sums{0, 100, 200, 207, 107, 7}));
  auto const second = std::to_string(kElsewhere), third = std::to_string(kElsewhere + 512);
  EXPECT_EQ(actions(snapshot["device_traces"][0]),
            (Actions{"segment_alloc 4096", "alloc 4096", "segment_alloc " + second, "alloc " + second, "segment_alloc " + third,
                     "alloc " + third, "free_requested 4096", "free_completed 4096", "segment_free 4096",
                     "free_requested " + second, "free_completed " + second, "segment_free " + second, "snapshot"}));
  EXPECT_EQ(snapshot["headroom"]["moved_blocks"], 2);
}

TEST(TorchWriter, what_holds_nothing_is_left_out) {
  Played played;
  auto const manager = played.ledger("m");
  auto const nothing = block(manager, 0, 0);
  played.writer.before(nothing);
  played.allocate(1, nothing);
  played.free(2, nothing);
  auto const snapshot = played.end(3);
  EXPECT_EQ(snapshot["device_traces"], (json{json::array()}));
  EXPECT_EQ(snapshot["segments"], json::array());
}

TEST(TorchWriter, each_device_has_a_list_in_its_own_order) {
  for (auto const kind : {follow::SourceKind::flight, follow::SourceKind::dump}) {
    Played played{kind};
    auto const on_two = played.ledger("two", 2);
    auto const on_one = played.ledger("one", 1);
    auto const also_on_two = played.ledger("also two", 2);
    auto const unknown = played.ledger("unknown", -1);
    played.allocate(1, block(on_two, 0x1000, 1));
    played.allocate(2, block(on_one, 0x1000, 2));
    played.allocate(3, block(also_on_two, 0x3000, 4));
    played.free(4, block(on_one, 0x1000, 2));
    played.free(5, block(on_two, 0x1000, 1));
    played.allocate(6, block(unknown, 0x1000, 8));
    auto const snapshot = played.end(7);
    auto const& traces = snapshot["device_traces"];
    ASSERT_EQ(traces.size(), 4U);
    EXPECT_EQ(traces[0], json::array());
    EXPECT_EQ(shown_live(snapshot, 1), (Sums{0, 2, 0}));
    EXPECT_EQ(shown_live(snapshot, 2), (Sums{0, 1, 5, 4}));
    EXPECT_EQ(shown_live(snapshot, 3), (Sums{0, 8}));
    EXPECT_EQ(traces[2][3]["user_metadata"], "also two");
    EXPECT_EQ(traces[3][1]["user_metadata"], "unknown");
    ASSERT_EQ(snapshot["segments"].size(), 2U);
    EXPECT_EQ(snapshot["segments"][0]["device"], 2);
    EXPECT_EQ(snapshot["segments"][1]["device"], 3);
    EXPECT_EQ(snapshot["headroom"]["entries_left_out"], 0);
  }
}

TEST(TorchWriter, a_history_has_its_devices_one_after_the_other) {
  Played played{follow::SourceKind::history};
  auto const one = played.ledger("device 1", 1);
  played.allocate(1, block(one, 0x1000, 1));
  auto const three = played.ledger("device 3", 3);
  played.allocate(0, block(three, 0x1000, 2));
  auto const snapshot = played.end(5);
  ASSERT_EQ(snapshot["device_traces"].size(), 4U);
  EXPECT_EQ(snapshot["device_traces"][0], json::array());
  EXPECT_EQ(shown_live(snapshot, 1), (Sums{0, 1}));
  EXPECT_EQ(snapshot["device_traces"][2], json::array());
  EXPECT_EQ(shown_live(snapshot, 3), (Sums{0, 2}));
  EXPECT_EQ(snapshot["device_traces"][1].back()["time_us"], 6);
  EXPECT_EQ(snapshot["device_traces"][3][1]["time_us"], 5);  // each has its own order
  EXPECT_EQ(snapshot["device_traces"][3].back()["time_us"], 10);
}

TEST(TorchWriter, a_shortage_is_an_oom) {
  Played played;
  auto const manager = played.ledger("m");
  using Tail = flight::RefusalTail;
  flight::Event tail;
  tail.words[Tail::kClaimed] = 70;
  tail.words[Tail::kLimit] = 100 | flight::kLimitEnforcing;
  tail.words[Tail::kDeviceFree] = 501;
  played.refuse(1, manager, 40, ErrorKind::device_out_of_memory, &tail);
  tail.words[Tail::kDeviceFree] = 0;
  played.refuse(2, manager, 41, ErrorKind::over_budget, &tail);
  tail.words[Tail::kClaimed] = 170;
  played.refuse(3, manager, 42, ErrorKind::over_budget, &tail);
  tail.words[Tail::kLimit] = flight::kLimitNone;
  played.refuse(4, manager, 43, ErrorKind::device_out_of_memory, &tail);
  played.refuse(5, manager, ~std::uint64_t{0}, ErrorKind::over_budget);
  played.refuse(6, manager, 45, ErrorKind::invalid_argument);  // no lack of memory
  auto const trace = played.end(7)["device_traces"][0];
  EXPECT_EQ(actions(trace), (Actions{"oom", "oom", "oom", "oom", "oom", "snapshot"}));
  std::vector<std::uint64_t> free, sizes;
  for (std::size_t i = 0; i < 5; ++i) {
    free.push_back(trace[i]["device_free"]);
    sizes.push_back(trace[i]["size"]);
    EXPECT_FALSE(trace[i].contains("addr"));
  }
  EXPECT_EQ(free, (Sums{500, 30, 0, 0, 0}));
  EXPECT_EQ(sizes, (Sums{40, 41, 42, 43, ~std::uint64_t{0}}));
  EXPECT_EQ(trace[0]["category"], "weights");
  EXPECT_EQ(trace[0]["frames"][0]["name"], "load");
}

TEST(TorchWriter, runs_of_hooks_are_spans) {
  Played played;
  auto const one = played.ledger("one", 0);
  auto const two = played.ledger("two", 1);
  played.note(EventKind::hook_end, 1, one, "begun before the record");
  played.note(EventKind::hook_begin, 2, one, std::string{"evict"});
  played.note(EventKind::hook_begin, 3, two, std::string{"evict"});
  played.note(EventKind::hook_begin, 4, one, "spill", 8);
  played.note(EventKind::hook_end, 5, one, "evict");
  played.note(EventKind::mark, 6, std::nullopt, "epoch");
  played.note(EventKind::hook_end, 7, one, "spill", 8);
  auto const snapshot = played.end(9);
  std::vector<std::string> spans;
  for (auto const& span : snapshot["external_annotations"])
    spans.push_back(span["stage"].get<std::string>() + ' ' + span["name"].get<std::string>() + " on " +
                    std::to_string(span["device"].get<int>()) + " at " +
                    std::to_string(span["time_us"].get<std::uint64_t>() - kStartUs));
  EXPECT_EQ(spans, (Actions{"START evict on 0 at 2", "START evict on 1 at 3", "START spill on 0 at 4", "END evict on 0 at 5",
                            "START epoch on 0 at 6", "END epoch on 0 at 6", "END spill on 0 at 7", "END evict on 1 at 9"}));
}

TEST(TorchWriter, spans_are_bounded_and_stay_whole) {
  Played played;
  auto const one = played.ledger("one");
  played.note(EventKind::hook_begin, 1, one, "outer");
  for (std::size_t i = 0; i < dump::TorchWriter::kMostAnnotations; ++i) played.note(EventKind::mark, 2, one, "mark");
  played.note(EventKind::hook_end, 3, one, "outer");
  auto const snapshot = played.end(4);
  auto const& spans = snapshot["external_annotations"];
  ASSERT_EQ(spans.size(), dump::TorchWriter::kMostAnnotations);
  EXPECT_EQ(spans.back()["name"], "outer");
  EXPECT_EQ(spans.back()["stage"], "END");
  EXPECT_EQ(snapshot["headroom"]["annotations_left_out"], dump::TorchWriter::kMostAnnotations / 2 + 1);
}

// Of 500 bytes from before, 300 are in blocks that nobody saw.
TEST(TorchWriter, bytes_that_nobody_saw_are_one_block_from_before) {
  Played played;
  auto const manager = played.ledger("m", 0, 500, 300);
  played.writer.before(block(manager, 0x1000, 200));
  played.allocate(1, block(manager, 0x2000, 10));
  auto const snapshot = played.end(2);
  EXPECT_EQ(shown_live(snapshot, 0), (Sums{500, 510}));
  ASSERT_EQ(snapshot["segments"].size(), 3U);
  EXPECT_EQ(snapshot["segments"][2]["address"], kElsewhere);
  EXPECT_EQ(snapshot["segments"][2]["blocks"][0]["category"], "unattributed");
  EXPECT_EQ(snapshot["headroom"]["unattributed_bytes"], 300);
}

TEST(TorchWriter, a_free_of_a_block_that_nobody_saw_shows_the_block) {
  Played played;
  auto const manager = played.ledger("m", 0, 300, 300);
  played.free(1, block(manager, 0x5000, 120), false, false);
  played.free(2, block(manager, 0x6000, 180), false, false);
  auto const snapshot = played.end(3);
  EXPECT_EQ(actions(snapshot["device_traces"][0]),
            (Actions{"free_requested 20480", "free_completed 20480", "segment_free 20480", "free_requested 24576",
                     "free_completed 24576", "segment_free 24576", "snapshot"}));
  EXPECT_EQ(shown_live(snapshot, 0), (Sums{300, 180, 0}));
  EXPECT_EQ(snapshot["segments"], json::array());
}

// The books of a history know nothing of what was before.
TEST(TorchWriter, a_free_that_changes_no_sum_is_left_out) {
  Played played{follow::SourceKind::history};
  auto const manager = played.ledger("history");
  auto const unseen = block(manager, 0x5000, 120);
  played.books[manager] += 120;
  played.free(1, unseen, false, false);
  EXPECT_EQ(played.end(2)["device_traces"], (json{json::array()}));
}

TEST(TorchWriter, in_a_gap_what_was_known_goes_before_what_is_known_comes) {
  Played played;
  auto const manager = played.ledger("m");
  auto const goes = block(manager, 0x1000, 100);
  auto const stays = block(manager, 0x2000, 50);
  auto const comes = block(manager, 0x3000, 80);
  played.allocate(1, goes);
  played.allocate(2, stays);
  played.gap(9, manager, 190, 60);  // 80 in the new block, and 60 in blocks that have no slot
  played.free(9, goes, true);
  played.allocate(9, comes, true);
  played.free(10, stays);
  played.gap(20, manager, 140, 60);  // the same again: nothing to show
  played.gap(30, manager, 130, 50);
  played.gap(40, manager, 150, 70);
  auto const snapshot = played.end(41);
  EXPECT_EQ(shown_live(snapshot, 0), (Sums{0, 100, 150, 50, 130, 190, 140, 80, 130, 80, 150}));
  EXPECT_EQ(requested(snapshot), 150U);
  EXPECT_EQ(snapshot["headroom"]["unattributed_bytes"], 70);
  auto const& trace = snapshot["device_traces"][0];
  EXPECT_EQ(trace[trace.size() - 2]["category"], "unattributed");
  EXPECT_EQ(trace[trace.size() - 2]["time_us"], kStartUs + 41);
}

TEST(TorchWriter, a_device_accounts_bytes_are_its_managers) {
  Played played;
  TimelineLedger account;
  account.id = 0;
  account.name = "account";
  account.is_device_account = true;
  account.allocated = 1'000;
  account.unattributed = 1'000;
  account.device_ordinal = 0;
  account.device_name = "GPU";
  played.books.push_back(1'000);
  played.writer.ledger(account);
  auto const manager = played.ledger("m");
  played.allocate(1, block(manager, 0x1000, 10));
  auto const snapshot = played.end(2);
  EXPECT_EQ(requested(snapshot), 10U);
  EXPECT_EQ(snapshot["headroom"]["devices"][0]["managers"], json{"m"});
}

TEST(TorchWriter, texts_from_outside_stay_texts) {
  Played played;
  played.names.hostile = "new\nline \"quote\" nul\0 and \xFF"s;
  auto const manager = played.ledger("caf\xc3\xa9 \xE9");
  played.allocate(1, block(manager, 0x1000, 10, 3));
  auto const entry = played.end(2)["device_traces"][0][1];
  EXPECT_EQ(entry["category"], "new\nline \"quote\" nul\0 and \\xff"s);
  EXPECT_EQ(entry["user_metadata"], "caf\xc3\xa9 \\xe9");
}

TEST(TorchWriter, nothing_at_all_is_a_snapshot_too) {
  Played played;
  auto const snapshot = played.end(0);
  EXPECT_EQ(snapshot["device_traces"], (json{json::array()}));
  EXPECT_EQ(snapshot["segments"], json::array());
}

// The books are a model: whatever happens, what is shown as live is what they have.
TEST(TorchWriter, what_is_shown_as_live_is_what_the_books_have) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random{seed};
    auto const below = [&](std::uint64_t bound) { return std::uniform_int_distribution<std::uint64_t>{0, bound - 1}(random); };
    Played played;
    std::uint64_t const unseen = below(3) * 1000;
    played.ledger("a", 0, unseen, unseen);
    played.ledger("b", 0);
    std::vector<TimelineBlock> live;
    Sums expected{unseen};
    for (std::uint64_t us = 1; us <= 300; ++us) {
      if (below(3) != 0 || live.empty()) {
        auto const made = block(static_cast<std::uint32_t>(below(2)), 0x1000 + below(40) * 0x100, 1 + below(0x300),
                                static_cast<std::uint32_t>(below(3)));
        played.allocate(us, made);
        live.push_back(made);
      } else {
        auto const which = live.begin() + static_cast<std::ptrdiff_t>(below(live.size()));
        played.free(us, *which);
        live.erase(which);
      }
      expected.push_back(played.books[0] + played.books[1]);
    }
    auto const snapshot = played.end(301);
    EXPECT_EQ(shown_live(snapshot, 0), expected) << seed;
    EXPECT_EQ(requested(snapshot), expected.back()) << seed;
    std::uint64_t end = 0;
    for (auto const& segment : snapshot["segments"]) {
      EXPECT_GE(segment["address"], end) << "segments overlap";
      end = segment["address"].get<std::uint64_t>() + segment["total_size"].get<std::uint64_t>();
    }
  }
}

TEST(TorchWriter, a_failed_write_stops_the_play) {
  Played played{follow::SourceKind::flight, 200'000};
  auto const manager = played.ledger("m");
  EXPECT_FALSE(played.writer.stopped());
  for (std::uint64_t i = 0; i < 10'000; ++i) played.allocate(i, block(manager, i << 20U, 1));
  EXPECT_TRUE(played.writer.stopped());
  auto const finished = played.writer.finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().kind, ErrorKind::io);
  EXPECT_LE(played.sink.text.size(), 200'000U);
}

}  // namespace
}  // namespace headroom::test
