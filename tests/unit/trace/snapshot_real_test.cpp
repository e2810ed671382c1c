// Snapshots that PyTorch wrote, of 2023 and 2026, and its own statistics of the runs behind two of them.
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/replay.hpp>
#include <headroom/torch_snapshot.hpp>
#include <headroom/trace_check.hpp>

#include "histories.hpp"

namespace headroom::test {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

[[nodiscard]] std::string data(std::string_view name) { return std::string{HEADROOM_TEST_DATA} + '/' + std::string{name}; }

/// The number behind `figure` in `group` of a file of PyTorch's statistics.
[[nodiscard]] std::uint64_t recorded(std::string_view file, std::string_view group, std::string_view figure) {
  std::ifstream stream{data(file)};
  std::string const text{std::istreambuf_iterator<char>{stream}, {}};
  auto at = text.find('"' + std::string{group} + "\":");
  if (!figure.empty() && at != std::string::npos) at = text.find('"' + std::string{figure} + "\":", at);
  if (at == std::string::npos) throw std::runtime_error{"no such figure"};
  return std::stoull(text.substr(text.find(':', at + 1 + (figure.empty() ? group.size() : figure.size())) + 1));
}

struct Read {
  TraceSummary summary;
  TorchSnapshot state;
};
[[nodiscard]] Read read(std::string_view name) {
  auto reader = TraceReader::open(data(name));
  if (!reader) throw std::runtime_error{reader.error().message};
  EXPECT_EQ(reader->format(), TraceFormat::torch_snapshot);
  EXPECT_EQ(reader->compression(), TraceCompression::xz);
  auto const summary = summarize_trace(*reader);
  if (!summary) throw std::runtime_error{summary.error().message};
  return {.summary = *summary, .state = *reader->snapshot()};
}

TEST(RealSnapshot, a_whole_history_has_the_figures_that_pytorch_counted) {
  auto const [summary, state] = read("torch-2.11-whole.pickle.xz");
  constexpr auto kStatistics = "torch-2.11-whole.json";
  EXPECT_EQ(summary.peak_bytes, recorded(kStatistics, "requested_bytes", "peak"));
  EXPECT_EQ(summary.peak_bytes, 93'110'605U);
  EXPECT_EQ(summary.live_bytes, recorded(kStatistics, "requested_bytes", "current"));
  EXPECT_EQ(summary.allocations, recorded(kStatistics, "allocation", "allocated"));
  EXPECT_EQ(summary.frees, recorded(kStatistics, "allocation", "freed"));
  EXPECT_EQ(summary.live_allocations, recorded(kStatistics, "allocation", "current"));
  EXPECT_EQ(summary.trace_failures, recorded(kStatistics, "num_ooms", ""));
  EXPECT_EQ(summary.trace_failures, 1U);
  EXPECT_EQ(summary.from_before_allocations, 0U);
  EXPECT_EQ(summary.unmatched_frees + summary.duplicate_allocations + summary.size_mismatches, 0U);
  EXPECT_EQ(state.entries, 663U);
  EXPECT_EQ(state.free_requests, 204U);
  EXPECT_EQ(state.segment_allocations, recorded(kStatistics, "segment", "allocated"));
  EXPECT_EQ(state.segment_frees, recorded(kStatistics, "segment", "freed"));
  EXPECT_EQ(state.unknown_actions, 0U);
  EXPECT_THAT(state.annotations, SizeIs(26));
  EXPECT_EQ(state.annotations.front().name, "training");
  EXPECT_TRUE(state.annotations.front().begins);
  EXPECT_FALSE(state.annotations.back().begins);

  auto const figures = cache_figures(state);
  ASSERT_THAT(figures, SizeIs(1));
  EXPECT_EQ(figures[0].reserved_bytes, recorded(kStatistics, "reserved_bytes", "current"));
  EXPECT_EQ(figures[0].allocated_bytes, recorded(kStatistics, "allocated_bytes", "current"));
  EXPECT_EQ(figures[0].active_bytes, recorded(kStatistics, "active_bytes", "current"));
  EXPECT_EQ(figures[0].active_blocks, recorded(kStatistics, "active", "current"));
  EXPECT_EQ(figures[0].segments, recorded(kStatistics, "segment", "current"));
  // Both inactive blocks: what PyTorch calls split.
  EXPECT_EQ(figures[0].reserved_bytes - figures[0].active_bytes, recorded(kStatistics, "inactive_split_bytes", "current"));
  EXPECT_EQ(figures[0].largest_inactive_bytes, 533'504U);
  EXPECT_DOUBLE_EQ(figures[0].fragmentation.value(), 1.0 - 533'504.0 / 1'024'000.0);
}

TEST(RealSnapshot, a_history_that_was_switched_on_late_has_pytorchs_peak_all_the_same) {
  auto const [summary, state] = read("torch-2.11-middle.pickle.xz");
  constexpr auto kStatistics = "torch-2.11-middle.json";
  EXPECT_EQ(summary.from_before_allocations, 4U);
  EXPECT_EQ(summary.from_before_bytes, 80'503'117U);
  EXPECT_EQ(state.from_before_allocations, 4U);
  EXPECT_EQ(state.from_before_bytes, 80'503'117U);
  EXPECT_EQ(summary.peak_bytes, recorded(kStatistics, "requested_bytes", "peak"));
  EXPECT_EQ(summary.peak_bytes, 102'039'889U);
  EXPECT_EQ(summary.live_bytes, recorded(kStatistics, "requested_bytes", "current"));
  EXPECT_EQ(summary.live_allocations, recorded(kStatistics, "allocation", "current"));
  EXPECT_EQ(summary.allocations, 160U);
  EXPECT_EQ(summary.frees, 137U);
  EXPECT_EQ(summary.unmatched_frees, 0U);
}

TEST(RealSnapshot, of_2026_that_begins_in_the_middle) {
  auto const [summary, state] = read("torch-2026-begins-in-the-middle.pickle.xz");
  EXPECT_EQ(summary.allocations, 1'721U);
  EXPECT_EQ(summary.frees, 1'721U);
  EXPECT_EQ(state.free_requests, 1'721U);
  EXPECT_EQ(summary.from_before_allocations, 229U);
  EXPECT_EQ(summary.from_before_bytes, 1'373'919'236U);
  EXPECT_EQ(summary.peak_bytes, 13'923'997'700U);
  EXPECT_EQ(summary.live_bytes, 1'373'919'236U);
  EXPECT_EQ(summary.threads, 1U);
  EXPECT_EQ(state.rounded_blocks, 0U);
  EXPECT_EQ(state.unexplained_blocks, 0U);
  auto const figures = cache_figures(state);
  ASSERT_THAT(figures, SizeIs(1));
  EXPECT_EQ(figures[0].segments, 216U);
  EXPECT_EQ(figures[0].reserved_bytes, 14'180'941'824U);
  ASSERT_THAT(summary.devices, SizeIs(1));
  EXPECT_EQ(summary.devices[0].peak_bytes, 13'923'997'700U);
}

TEST(RealSnapshot, of_2023_without_a_history_is_what_its_blocks_hold) {
  auto const [summary, state] = read("torch-2023-at-oom.pickle.xz");
  EXPECT_EQ(state.entries, 1U);
  EXPECT_EQ(state.unknown_actions, 0U) << "an entry 'snapshot' is known";
  EXPECT_EQ(summary.events, 0U);
  EXPECT_EQ(summary.from_before_allocations, 460U);
  EXPECT_EQ(summary.live_bytes, 11'840'159'744U);
  auto const figures = cache_figures(state);
  ASSERT_THAT(figures, SizeIs(1));
  EXPECT_EQ(figures[0].segments, 176U);
  EXPECT_EQ(figures[0].reserved_bytes, 11'844'714'496U);
  EXPECT_EQ(figures[0].allocated_bytes, 11'840'159'744U);
  EXPECT_EQ(figures[0].active_blocks, 460U);
  EXPECT_EQ(figures[0].inactive_blocks, 3U);
  // The blocks of a segment tile it, although none says where it is.
  for (auto const& segment : state.segments) {
    auto next = segment.address;
    for (auto const& block : segment.blocks) {
      EXPECT_EQ(block.address, next);
      next += block.bytes;
    }
    EXPECT_EQ(next, segment.address + segment.bytes);
  }
}

TEST(RealSnapshot, sites_are_the_innermost_frames_and_have_their_stacks) {
  auto reader = TraceReader::open(data("torch-2026-begins-in-the-middle.pickle.xz")).value();
  EXPECT_THAT(reader.devices(), ElementsAre(0));
  EXPECT_THAT(reader.thread_ids(), ElementsAre(0));
  TraceEvent event;
  while (*reader.next(event) && event.from_before) {
  }
  EXPECT_EQ(event.line, 1U);
  EXPECT_EQ(event.pointer, 47'294'971'904U);
  EXPECT_EQ(event.bytes, 25'165'824U);
  EXPECT_EQ(event.time_us, 1'776'479'641'085'368U);
  EXPECT_EQ(reader.name_of(event.site), "file_8.py:54 fn_9");
  EXPECT_EQ(reader.stack_of(event.site), "file_10.py:1779 fn_12;file_10.py:1790 fn_11;file_8.py:54 fn_9");
}

TEST(RealSnapshot, can_be_checked_and_replayed) {
  auto reader = TraceReader::open(data("torch-2026-begins-in-the-middle.pickle.xz")).value();
  auto const check = check_trace(reader);
  ASSERT_TRUE(check);
  EXPECT_EQ(check->found(), 0U) << "what is from before is no finding";
  auto const history = TraceHistory::load(data("torch-2026-begins-in-the-middle.pickle.xz"));
  ASSERT_TRUE(history);
  EXPECT_EQ(history->events(), 3'442U + 229U);
  EXPECT_EQ(history->from_before_allocations(), 229U);
  EXPECT_EQ(history->default_tags(), ReplayTags::size) << "no profiler recorded categories";
}

}  // namespace
}  // namespace headroom::test
