// Blocks that nobody knew until they were freed: they were live from the begin on, in every keyframe and chunk before that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checked.hpp"
#include "scripted_source.hpp"

namespace headroom::follow {
namespace {

constexpr std::uint32_t kOld = 5;
constexpr std::uint32_t kNew = 6;
constexpr std::uint64_t kBlocks = 3000;
constexpr std::uint64_t kOldBytes = 10;
constexpr std::uint64_t kBegin = 10'000;

std::uint64_t bytes_of(LedgerState const& state, std::string_view tag) {
  for (auto const& held : state.tags) {
    if (held.name == tag) return held.bytes;
  }
  return 0;
}

/// 3,000 old blocks without a slot; then, turn and turn about, a new block of 1 byte and the free of an old one. Polled every
/// `apart` operations.
Model model_of_late_blocks(std::uint64_t apart) {
  auto const script = std::make_shared<Script>();
  script->name(kOld, "old");
  script->name(kNew, "new");
  script->record = false;
  script->in_table = false;
  for (std::uint64_t i = 0; i < kBlocks; ++i) script->allocate(1 + i, 0x10'0000 + i * 64, kOldBytes, kOld);
  script->record = true;
  script->in_table = true;
  // Chunks of 4,096 operations, so that the past has two of them and six keyframes.
  auto model = model_of(script, {.memory_bytes = std::size_t{4} << 20U});
  for (std::uint64_t i = 0; i < 2 * kBlocks; ++i) {
    auto const block = i / 2;
    if (i % 2 == 0) {
      script->allocate(kBegin + i, 0x90'0000 + block * 64, 1, kNew);
    } else {
      auto freed = script->operation(flight::EventKind::free, kBegin + i, 0x10'0000 + block * 64, kOldBytes, kOld, 0);
      freed.words[0] |= flight::kFlagUntracked;
      script->put(freed);
    }
    if (i % apart == apart - 1) {
      EXPECT_TRUE(model.poll());
    }
  }
  EXPECT_TRUE(model.catch_up());
  return model;
}

TEST(FollowLateBlocks, every_instant_has_them) {
  for (std::uint64_t const apart : {1U, 700U, 4096U, 100'000U}) {
    SCOPED_TRACE("polled every " + std::to_string(apart) + " operations");
    auto const model = model_of_late_blocks(apart);
    EXPECT_EQ(model.losses().gaps, 0U);
    EXPECT_EQ(model.losses().unmatched_frees, 0U);
    EXPECT_EQ(model.losses().forgotten_operations, 0U);
    for (std::uint64_t i = 0; i < 2 * kBlocks; i += 53) {
      SCOPED_TRACE("after operation " + std::to_string(i));
      auto const made = i / 2 + 1;
      auto const freed = (i + 1) / 2;
      auto const state = model.state_at(0, kBegin + i);
      ASSERT_EQ(state.known, Known::exact);
      ASSERT_EQ(state.unattributed_bytes, 0U);
      ASSERT_EQ(bytes_of(state, "old"), (kBlocks - freed) * kOldBytes);
      ASSERT_EQ(bytes_of(state, "new"), made);
      ASSERT_EQ(state.live_allocations, kBlocks - freed + made);
      if (i % (53 * 20) == 0) {
        ASSERT_EQ(model.live_at(0, kBegin + i).size(), kBlocks - freed + made);
      }
    }
  }
}

TEST(FollowLateBlocks, a_series_has_them) {
  for (std::uint64_t const apart : {1U, 700U, 100'000U}) {
    auto const model = model_of_late_blocks(apart);
    for (std::size_t const columns : {1U, 3U, 50U}) {
      auto const series = model.series(0, "old", kBegin, kBegin + 2 * kBlocks, columns);
      for (std::size_t c = 0; c < columns; ++c) {
        SCOPED_TRACE(std::to_string(columns) + " columns, column " + std::to_string(c));
        // Column c has the operations from `first` on, up to the one before `end`.
        auto const first = (c * 2 * kBlocks + columns - 1) / columns;
        auto const end = ((c + 1) * 2 * kBlocks + columns - 1) / columns;
        ASSERT_EQ(series[c].high, (kBlocks - (first + 1) / 2) * kOldBytes);
        ASSERT_EQ(series[c].low, (kBlocks - end / 2) * kOldBytes);
        ASSERT_EQ(series[c].known, Known::exact);
      }
    }
  }
}

}  // namespace
}  // namespace headroom::follow
