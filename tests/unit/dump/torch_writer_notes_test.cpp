// A timeline as a memory snapshot of PyTorch: shortages, hooks and spans, and what is not known, as worked out by hand.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "played_torch.hpp"

namespace headroom::test::torch {
namespace {

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

// As history_source.cpp tells them: the value says which end, word 3 of which device.
TEST(TorchWriter, annotations_of_a_snapshot_keep_their_device_and_are_one_span) {
  Played played{follow::SourceKind::history};
  auto const mark = [&](std::uint64_t us, std::uint64_t device, bool begins, std::string_view name) {
    flight::Event event;
    event.kind = EventKind::mark;
    event.words[2] = begins ? 1 : 0;
    event.words[3] = device + 1;
    dump::TimelineNote note;
    note.kind = EventKind::mark;
    note.time_ns = us * 1000;
    note.name = name;
    note.event = &event;
    played.writer.note(note);
  };
  auto const zero = played.ledger("device 0", 0);
  played.allocate(1, block(zero, 0x1000, 1));
  mark(1, 3, false, "ends and never began");
  mark(2, 3, true, std::string{"step"});  // of a device whose records come later
  mark(3, 0, true, "step");
  mark(4, 3, true, "step");
  mark(5, 3, false, "step");
  mark(6, 2, true, "of a device that was not asked for");
  mark(7, 0, false, "step");
  auto const three = played.ledger("device 3", 3);
  played.allocate(2, block(three, 0x1000, 1));
  mark(9, 3, false, "step");
  auto const snapshot = played.end(10);
  std::vector<std::string> spans;
  for (auto const& span : snapshot["external_annotations"])
    spans.push_back(span["stage"].get<std::string>() + ' ' + span["name"].get<std::string>() + " on " +
                    std::to_string(span["device"].get<int>()) + " at " +
                    std::to_string(span["time_us"].get<std::uint64_t>() - 5));
  EXPECT_EQ(spans, (Actions{"START step on 3 at 2", "START step on 0 at 3", "START step on 3 at 4", "END step on 3 at 5",
                            "END step on 0 at 7", "END step on 3 at 9"}));
  EXPECT_EQ(snapshot["headroom"]["annotations_left_out"], 0);
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

}  // namespace
}  // namespace headroom::test::torch
