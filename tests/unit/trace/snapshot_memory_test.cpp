// That memory does not follow the length of a snapshot, and how much its names may take.
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace/address_counts.hpp"
#include "trace/snapshot_fields.hpp"
#include "trace/snapshot_names.hpp"
#include "trace/snapshot_reader.hpp"

#include "histories.hpp"
#include "made_snapshots.hpp"
#include "pickles.hpp"

namespace headroom::trace {
namespace {

using test::made::entry;
using test::made::frame;
using test::made::snapshot;
using test::pickled::Opcodes;

/// Pairs of an allocation and its free, each with a stack of its own made of frames that all share.
[[nodiscard]] std::string pairs(std::uint64_t count) {
  std::vector<Opcodes> trace;
  auto const first = test::pickled::list(
      {test::pickled::remembered(frame("a.py", 1, "inner"), 0), test::pickled::remembered(frame("b.py", 2, "outer"), 1)});
  auto const others = test::pickled::list({test::pickled::again(0), test::pickled::again(1)});
  for (std::uint64_t i = 0; i < count; ++i) {
    trace.push_back(entry("alloc", 4096 * (i % 100 + 1), 100, i, {{"frames", i == 0 ? first : others}}));
    trace.push_back(entry("free_completed", 4096 * (i % 100 + 1), 100, i, {{"frames", others}}));
  }
  return snapshot({}, {trace});
}

/// Likewise, each freed by two entries that share their list of frames, as PyTorch makes them since 2.0.
[[nodiscard]] std::string pairs_with_shared_lists(std::uint64_t count) {
  std::vector<Opcodes> trace;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto const place = static_cast<std::uint32_t>(2 + i);
    auto const frames = i == 0 ? test::pickled::list({test::pickled::remembered(frame("a.py", 1, "inner"), 0),
                                                      test::pickled::remembered(frame("b.py", 2, "outer"), 1)})
                               : test::pickled::list({test::pickled::again(0), test::pickled::again(1)});
    auto const address = 4096 * (i % 100 + 1);
    trace.push_back(entry("alloc", address, 100, i));
    trace.push_back(entry("free_requested", address, 100, i, {{"frames", test::pickled::remembered(frames, place)}}));
    trace.push_back(entry("free_completed", address, 100, i, {{"frames", test::pickled::again(place)}}));
  }
  return snapshot({}, {trace});
}

/// Most nodes of the pickle that are there at once while it is read.
[[nodiscard]] std::uint64_t most_nodes(std::string const& path, std::uint64_t records) {
  auto source = open_byte_source(path, path).value();
  SnapshotReader reader{path, source.compression};
  EXPECT_TRUE(reader.begin(std::move(source)));
  std::uint64_t most = 0;
  std::uint64_t read = 0;
  while (true) {
    auto const batch = reader.next_batch();
    if (!batch || batch->empty()) break;
    read += batch->size();
    most = std::max(most, reader.retained_nodes());
  }
  EXPECT_EQ(read, records);
  return most;
}

TEST(SnapshotMemory, does_not_grow_with_the_history) {
  test::TempFolder const folder;
  auto const of_few = most_nodes(folder.write(pairs(1'000)), 2'000);
  auto const of_many = most_nodes(folder.write(pairs(150'000)), 300'000);
  EXPECT_GT(of_few, 0U);
  EXPECT_EQ(of_many, of_few) << "nodes of two shared frames, and of one batch of entries";
}

TEST(SnapshotMemory, does_not_grow_with_the_lists_that_two_entries_share) {
  test::TempFolder const folder;
  auto const of_few = most_nodes(folder.write(pairs_with_shared_lists(2'000)), 4'000);
  auto const of_many = most_nodes(folder.write(pairs_with_shared_lists(100'000)), 200'000);
  EXPECT_GT(of_few, 0U);
  EXPECT_EQ(of_many, of_few) << "nodes of two shared frames, and of one batch of entries";
}

TEST(SnapshotNames, hold_as_many_as_they_may_and_count_the_others) {
  SnapshotNames names{3, SnapshotNames::kMostBytes};
  EXPECT_EQ(names.tag("a"), 1U);
  EXPECT_EQ(names.tag("b"), 2U);
  auto const frames = std::array{names.frame("x.py", 7, "f")};
  EXPECT_EQ(names.stack(frames), 3U);
  EXPECT_EQ(names.left_out(), 0U);
  EXPECT_EQ(names.tag("a"), 1U);
  EXPECT_EQ(names.stack(frames), 3U);
  EXPECT_EQ(names.tag("c"), 0U);
  EXPECT_EQ(names.tag("c"), 0U);
  EXPECT_EQ(names.left_out(), 2U) << "each time";
  EXPECT_EQ(names.name_of(1), "a");
  EXPECT_EQ(names.name_of(3), "x.py:7 f");
  EXPECT_EQ(names.name_of(4), "");
}

TEST(SnapshotNames, take_no_more_bytes_than_they_may) {
  SnapshotNames names{SnapshotNames::kMostNames, 10'000};
  std::uint64_t kept = 0;
  for (int i = 0; i < 1'000; ++i) kept += names.tag(std::string(100, 'x') + std::to_string(i)) != 0 ? 1U : 0U;
  EXPECT_GT(kept, 10U);
  EXPECT_LT(kept, 100U) << "100 bytes each, and what they cost beside them";
  EXPECT_EQ(kept + names.left_out(), 1'000U);
}

TEST(SnapshotNames, keep_the_end_of_what_is_too_long_and_are_valid_text) {
  SnapshotNames names;
  auto const path = "/a" + std::string(300, 'b') + "/file.py";
  auto const cut = std::string{names.name_of(names.stack(std::array{names.frame(path, 12, "run")}))};
  EXPECT_EQ(cut.size(), 256U);
  EXPECT_THAT(cut, testing::StartsWith("…bbb"));
  EXPECT_THAT(cut, testing::EndsWith("/file.py:12 run"));
  EXPECT_EQ(names.name_of(names.tag("a\xFF"
                                    "b")),
            "a\xEF\xBF\xBD"
            "b");
  // Two-byte characters: the cut would lie within one.
  std::string accents;
  for (int i = 0; i < 200; ++i) accents += "é";
  auto const whole = names.name_of(names.tag(accents + "xy"));
  EXPECT_EQ(whole, "…" + accents.substr(0, 250) + "xy") << "125 characters, and the last two";
}

TEST(SnapshotNames, of_texts_of_a_mebibyte_only_the_end_counts) {
  SnapshotNames names;
  auto const long_path = std::string(1U << 20U, 'b') + "/file.py";
  auto const kept = std::string{names.name_of(names.stack(std::array{names.frame(long_path, 12, "run")}))};
  EXPECT_EQ(kept, "…" + std::string(256 - 3 - 15, 'b') + "/file.py:12 run");
  auto const long_name = std::string(1U << 20U, 'c');
  EXPECT_EQ(names.name_of(names.stack(std::array{names.frame("a.py", 1, long_name)})), "…" + std::string(253, 'c'));
  EXPECT_EQ(names.name_of(names.tag(long_name)), "…" + std::string(253, 'c'));
}

TEST(SnapshotNames, know_frames_without_a_file_a_line_or_a_function) {
  SnapshotNames names;
  auto const name = [&](std::string_view file, std::uint64_t line, std::string_view function) {
    return names.name_of(names.stack(std::array{names.frame(file, line, function)}));
  };
  EXPECT_EQ(name("a.py", 0, "f"), "a.py f");
  EXPECT_EQ(name("", 0, "f"), "f");
  EXPECT_EQ(name("a.py", 3, ""), "a.py:3");
  EXPECT_EQ(name("", 3, "f"), "line 3 f");
  EXPECT_EQ(name("", 0, ""), "");
  EXPECT_EQ(names.stack(std::array<std::uint32_t, 0>{}), 0U);
}

TEST(AddressCounts, finds_what_was_added_among_many) {
  AddressCounts counts;
  EXPECT_EQ(counts.find(0), nullptr);
  for (std::uint64_t i = 0; i < 100'000; ++i) counts.add(i * 512) += static_cast<std::uint32_t>(i % 7);
  EXPECT_EQ(counts.size(), 100'000U);
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    ASSERT_NE(counts.find(i * 512), nullptr);
    ASSERT_EQ(*counts.find(i * 512), i % 7);
    ASSERT_EQ(counts.find(i * 512 + 1), nullptr);
  }
  counts.add(std::numeric_limits<std::uint64_t>::max()) = 3;
  EXPECT_EQ(*counts.find(std::numeric_limits<std::uint64_t>::max()), 3U);
}

TEST(AddressCounts, addresses_that_a_file_chooses_do_not_all_belong_in_one_place) {
  // A multiplication by an odd number alone can be undone: these are 0, 1, 2, … times 2^44 after it, equal in all lower bits.
  constexpr std::uint64_t kFactor = 0x9E37'79B9'7F4A'7C15U;
  std::uint64_t inverse = kFactor;
  for (int i = 0; i < 5; ++i) inverse *= 2 - kFactor * inverse;
  ASSERT_EQ(inverse * kFactor, 1U);
  AddressCounts counts;
  for (std::uint64_t i = 0; i < 20'000; ++i) ++counts.add(inverse * (i << 44U));
  EXPECT_EQ(counts.size(), 20'000U);
  EXPECT_LT(counts.longest_run(), 1'000U);
}

/// The root of a pickle whose lists are all kept.
[[nodiscard]] pickle::Value value_of(std::string const& content) {
  class KeepAll final : public pickle::Visitor {
    [[nodiscard]] bool takes_items_of(pickle::Path const&) override { return false; }
    [[nodiscard]] Result<void> item(pickle::Path const&, pickle::Value const&) override { return success(); }
  };
  auto const open = [&] { return test::PieceSource{content}; };
  auto first = open();
  auto const reuse = pickle::scan(first, "x").value();
  auto second = open();
  KeepAll visitor;
  pickle::Machine machine{second, "x", reuse, visitor};
  EXPECT_FALSE(machine.advance().value());
  return machine.root();
}

TEST(SnapshotFields, blocks_and_segments_are_bounded_together_however_often_they_are_referred_to) {
  // One block, four times in one segment.
  auto const one = test::pickled::remembered(test::made::block({.bytes = 1}), 0);
  auto const again = test::pickled::again(0);
  auto const segment = value_of(test::pickled::pickle(test::made::segment(0, 4096, 4, {one, again, again, again})));
  std::string const file = "x";
  SnapshotNames names;
  SnapshotFields fields{file, names, 12};
  EXPECT_EQ(fields.segment(segment, 1).value().blocks.size(), 4U);
  EXPECT_EQ(fields.segment(segment, 2).value().blocks.size(), 4U);
  auto const refused = fields.segment(segment, 3);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::parse);
  EXPECT_EQ(refused.error().message, "x: byte " + std::to_string(segment.find("blocks")->offset()) +
                                         ": segment 3: has 4 blocks, after 10 segments and blocks before it; expected at most 12 "
                                         "together");
  auto const empty = value_of(test::pickled::pickle(test::made::segment(0, 4096, 4, {})));
  EXPECT_TRUE(fields.segment(empty, 3).has_value());
  EXPECT_TRUE(fields.segment(empty, 4).has_value());
  EXPECT_FALSE(fields.segment(empty, 5).has_value()) << "a segment without blocks is one too";
}

}  // namespace
}  // namespace headroom::trace
