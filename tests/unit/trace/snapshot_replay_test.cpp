// Snapshots as histories to check, to fit and to replay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/fit.hpp>
#include <headroom/trace_check.hpp>

#include "made_snapshots.hpp"
#include "replays.hpp"

namespace headroom::test {
namespace {

using made::entry;
using made::snapshot;
using testing::ElementsAre;
using testing::SizeIs;

[[nodiscard]] pickled::Fields category(std::string_view name) { return {{"category", pickled::text(name)}}; }

class SnapshotReplay : public testing::Test {
protected:
  [[nodiscard]] TraceHistory load(std::string const& pickle) const {
    auto history = TraceHistory::load(folder_.write(pickle));
    if (!history) throw std::runtime_error{history.error().message};
    return std::move(*history);
  }
  TempFolder folder_;
};

// Live before: 40 at 0x40. Then 30 more, 40 less, 50 more.
[[nodiscard]] std::string middle() {
  return snapshot({}, {{entry("alloc", 0x10, 30, 100, category("weights")), entry("free_completed", 0x40, 40, 200),
                        entry("alloc", 0x20, 50, 300, category("activations"))}});
}

TEST_F(SnapshotReplay, what_is_from_before_is_requested_first) {
  auto const history = load(middle());
  EXPECT_EQ(history.format(), TraceFormat::torch_snapshot);
  EXPECT_EQ(history.device(), 0U);
  EXPECT_EQ(history.events(), 4U);
  EXPECT_EQ(history.from_before_allocations(), 1U);
  EXPECT_EQ(history.duration(), std::chrono::microseconds{200});
  auto const figures = replayed(history, manager_with(MemoryBudget::unlimited())).figures();
  EXPECT_EQ(figures.allocations, 3U);
  EXPECT_EQ(figures.frees, 1U);
  EXPECT_EQ(figures.unmatched_frees, 0U);
  EXPECT_EQ(figures.peak_bytes, 80U);
  EXPECT_EQ(figures.live_bytes, 80U);
  EXPECT_EQ(fit(history).smallest_budget_bytes, 80U);
}

TEST_F(SnapshotReplay, what_is_from_before_counts_under_a_budget) {
  auto const result = replayed(load(middle()), manager_with(MemoryBudget::with_limit(39)));
  EXPECT_EQ(result.figures().refused, 2U) << "40 from before, and 50";
  ASSERT_TRUE(result.first_refusal());
  EXPECT_EQ(result.first_refusal()->line, 0U);
  EXPECT_EQ(result.first_refusal()->bytes, 40U);
}

TEST_F(SnapshotReplay, tags_are_those_that_were_recorded) {
  auto const history = load(middle());
  EXPECT_EQ(history.default_tags(), ReplayTags::recorded);
  EXPECT_EQ(to_string(ReplayTags::recorded), "recorded");
  auto const holders = history.holders_at_end(ReplayTags::recorded);
  ASSERT_THAT(holders, SizeIs(2));
  EXPECT_EQ(holders[0].tag, "activations");
  EXPECT_EQ(holders[0].bytes, 50U);
  EXPECT_EQ(holders[1].tag, "weights");
  auto const at_peak = history.holders_at_peak(ReplayTags::recorded);
  ASSERT_THAT(at_peak, SizeIs(2)) << "80 = 30 + 50 at the end: the free of what was before comes first";
  auto const manager = manager_with(MemoryBudget::unlimited());
  ReplayOptions options;
  options.tags = ReplayTags::recorded;
  auto const result = replayed(history, manager, options);
  EXPECT_EQ(result.figures().live_bytes, 80U);
  EXPECT_EQ(load(snapshot({}, {{entry("alloc", 1, 1, 1)}})).default_tags(), ReplayTags::size);
  EXPECT_EQ(history_of("0,0,allocate,0xa,1,0\n").default_tags(), ReplayTags::size);
  EXPECT_EQ(history_of("0,0,allocate,0xa,1,0\n").device(), 0U);
}

TEST_F(SnapshotReplay, what_has_no_tag_is_untagged) {
  auto const history = load(snapshot({}, {{entry("alloc", 1, 7, 1), entry("alloc", 2, 3, 1, category("weights"))}}));
  auto const holders = history.holders_at_end(ReplayTags::recorded);
  ASSERT_THAT(holders, SizeIs(2));
  EXPECT_EQ(holders[0].tag, "");
  EXPECT_EQ(holders[0].bytes, 7U);
}

TEST_F(SnapshotReplay, of_several_devices_one_must_be_chosen) {
  auto const path = folder_.write(snapshot({}, {{entry("alloc", 0x10, 5, 1)}, {}, {entry("alloc", 0x10, 6, 1)}}));
  auto const all = TraceHistory::load(path);
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(all.error().message, path + ": a history of 2 devices (0, 2); expected one to be chosen: a replay is of one device");
  auto reader = TraceReader::open(path).value();
  ASSERT_TRUE(reader.only_device(2));
  auto const one = TraceHistory::load(reader);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->device(), 2U);
  EXPECT_EQ(outcome_under(*one, 100).peak_bytes, 6U);
}

TEST_F(SnapshotReplay, findings_are_told_by_device_and_entry) {
  auto const path =
      folder_.write(snapshot({}, {{},
                                  {entry("alloc", 0x10, 5, 1), entry("alloc", 0x10, 6, 1), entry("free_completed", 0x20, 8, 2),
                                   entry("free_completed", 0x20, 8, 3), entry("free_completed", 0x10, 4, 4)}}));
  auto reader = TraceReader::open(path).value();
  auto const check = check_trace(reader);
  ASSERT_TRUE(check);
  EXPECT_EQ(check->found(), 3U);
  std::vector<std::string> told;
  for (auto const& finding : check->findings) {
    told.push_back(record_place("x", finding.format, finding.device, finding.line) + ": " + to_string(finding));
  }
  EXPECT_THAT(
      told,
      ElementsAre("x: device 1, entry 2: allocation at 0x10 (6 bytes) while another is live there; expected its free before it",
                  "x: device 1, entry 4: free of 0x20 (8 bytes) where nothing is live; expected its allocation before it",
                  "x: device 1, entry 5: free of 0x10 (4 bytes); expected the 5 bytes allocated by entry 1"));
  EXPECT_EQ(record_place("x", TraceFormat::torch_snapshot, 1, 0), "x: device 1, before entry 1");
  EXPECT_EQ(record_place("x", TraceFormat::rmm_csv, 0, 7), "x:7");
  EXPECT_EQ(record_word(TraceFormat::torch_snapshot), "entry");
  EXPECT_EQ(record_word(TraceFormat::rmm_csv), "line");
}

TEST_F(SnapshotReplay, more_than_64_bits_live_is_an_error_with_the_entry) {
  auto const path = folder_.write(snapshot({}, {{entry("alloc", 0x10, ~std::uint64_t{0}, 1), entry("alloc", 0x20, 1, 1)}}));
  auto const summary = summarize_trace(path);
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().kind, ErrorKind::overflow);
  EXPECT_EQ(summary.error().message,
            path + ": device 0, entry 2: size 1 brings the live bytes above 2^64 - 1; expected sizes of real memory");
}

TEST_F(SnapshotReplay, a_csv_has_one_device) {
  auto reader = TraceReader::open(folder_.write(std::string{kHeader} + "0,0,allocate,0xa,1,0\n")).value();
  EXPECT_EQ(reader.format(), TraceFormat::rmm_csv);
  EXPECT_THAT(reader.devices(), ElementsAre(0));
  EXPECT_TRUE(reader.only_device(0));
  auto const wrong = reader.only_device(1);
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, testing::HasSubstr("device 1 has no records; expected one that has records: 0"));
  EXPECT_EQ(reader.snapshot(), nullptr);
  EXPECT_EQ(reader.stack_of(1), "");
}

}  // namespace
}  // namespace headroom::test
