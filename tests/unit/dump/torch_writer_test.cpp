// A timeline as a memory snapshot of PyTorch: what is handed to the writer by hand comes out of the pickle as worked out by hand.
#include <cerrno>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "played_torch.hpp"

namespace headroom::test::torch {
namespace {

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
}  // namespace headroom::test::torch
