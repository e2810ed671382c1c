#include "device/first_fit.hpp"

#include <map>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace headroom {
namespace {

using Range = FirstFit::Range;

TEST(FirstFit, hands_out_the_lowest_place) {
  FirstFit ranges({100, 1000});
  EXPECT_EQ(ranges.take(10, 1), 100);
  EXPECT_EQ(ranges.take(10, 1), 110);
  ranges.give({100, 10});
  EXPECT_EQ(ranges.take(11, 1), 120) << "the gap of 10 is too small";
  EXPECT_EQ(ranges.take(10, 1), 100);
}

TEST(FirstFit, takes_everything_and_no_more) {
  FirstFit ranges({0, 64});
  EXPECT_EQ(ranges.take(65, 1), std::nullopt);
  EXPECT_EQ(ranges.take(64, 1), 0);
  EXPECT_EQ(ranges.total(), 0);
  EXPECT_EQ(ranges.largest(), 0);
  EXPECT_EQ(ranges.lowest(), std::nullopt);
  EXPECT_EQ(ranges.take(1, 1), std::nullopt);
}

TEST(FirstFit, merges_with_both_neighbours) {
  FirstFit ranges;
  ranges.give({0, 10});
  ranges.give({20, 10});
  EXPECT_EQ(ranges.ranges(), 2);
  EXPECT_EQ(ranges.largest(), 10);
  ranges.give({10, 10});
  EXPECT_EQ(ranges.ranges(), 1);
  EXPECT_EQ(ranges.lowest(), (Range{0, 30}));
}

TEST(FirstFit, alignment_leaves_the_skipped_front_free) {
  FirstFit ranges({3, 100});
  EXPECT_EQ(ranges.take(8, 16), 16);
  EXPECT_EQ(ranges.ranges(), 2);
  EXPECT_EQ(ranges.take(13, 1), 3) << "exactly what was skipped";
  EXPECT_EQ(ranges.total(), 100 - 21);
}

TEST(FirstFit, passes_a_range_that_is_long_enough_but_badly_placed) {
  FirstFit ranges;
  ranges.give({1, 70});    // aligned place 64 leaves 7
  ranges.give({128, 64});  // fits
  EXPECT_EQ(ranges.take(32, 64), 128);
  EXPECT_EQ(ranges.take(7, 64), 64);
}

// The same in the simplest way that can be right.
class NaiveFirstFit {
public:
  std::optional<std::uint64_t> take(std::uint64_t length, std::uint64_t alignment) {
    for (auto const& [start, size] : ranges_) {
      auto const place = (start + alignment - 1) / alignment * alignment;
      if (place + length > start + size) continue;
      auto const end = start + size;
      auto const front = start;
      ranges_.erase(start);
      if (place > front) ranges_[front] = place - front;
      if (end > place + length) ranges_[place + length] = end - place - length;
      return place;
    }
    return std::nullopt;
  }
  void give(Range range) {
    auto const after = ranges_.lower_bound(range.start);
    if (after != ranges_.begin()) {
      if (auto const before = std::prev(after); before->first + before->second == range.start) {
        range = {before->first, before->second + range.length};
        ranges_.erase(before);
      }
    }
    if (after != ranges_.end() && range.start + range.length == after->first) {
      range.length += after->second;
      ranges_.erase(after);
    }
    ranges_[range.start] = range.length;
  }
  [[nodiscard]] std::map<std::uint64_t, std::uint64_t> const& ranges() const { return ranges_; }

private:
  std::map<std::uint64_t, std::uint64_t> ranges_;
};

class FirstFitAgainstNaive : public ::testing::TestWithParam<unsigned> {};

// Phases of growing and shrinking, so that nodes split, empty and vanish, and the tree gains and loses levels.
TEST_P(FirstFitAgainstNaive, does_the_same_over_a_random_life) {
  std::mt19937_64 random(GetParam());
  std::uint64_t const space = 1 << 19;
  FirstFit tested({0, space});
  NaiveFirstFit naive;
  naive.give({0, space});
  std::vector<Range> taken;
  std::uint64_t in_use = 0;
  std::size_t most_ranges = 0;
  for (int round = 0; round < 120000; ++round) {
    bool const growing = round / 20000 % 2 == 0;
    if (taken.empty() || random() % 8 < (growing ? 7U : 1U)) {
      auto const length = random() % (random() % 16 == 0 ? 500 : 12) + 1;
      auto const alignment = std::uint64_t{1} << (random() % 4 == 0 ? random() % 8 : 0);
      auto const place = tested.take(length, alignment);
      ASSERT_EQ(place, naive.take(length, alignment)) << "round " << round;
      if (place) {
        taken.push_back({*place, length});
        in_use += length;
      }
    } else {
      auto const victim = random() % taken.size();
      tested.give(taken[victim]);
      naive.give(taken[victim]);
      in_use -= taken[victim].length;
      taken[victim] = taken.back();
      taken.pop_back();
    }
    ASSERT_EQ(tested.ranges(), naive.ranges().size());
    ASSERT_EQ(tested.total(), space - in_use);
    if (round % 64 == 0) {
      std::uint64_t largest = 0;
      for (auto const& [start, length] : naive.ranges()) largest = std::max(largest, length);
      ASSERT_EQ(tested.largest(), largest);
      ASSERT_EQ(tested.lowest().has_value(), !naive.ranges().empty());
      if (!naive.ranges().empty()) {
        ASSERT_EQ(tested.lowest()->start, naive.ranges().begin()->first);
      }
    }
    most_ranges = std::max(most_ranges, tested.ranges());
  }
  EXPECT_GT(most_ranges, 2000U) << "three levels must have been there";
  for (auto const& range : taken) tested.give(range);
  EXPECT_EQ(tested.ranges(), 1);
  EXPECT_EQ(tested.lowest(), (Range{0, space}));
}

INSTANTIATE_TEST_SUITE_P(seeds, FirstFitAgainstNaive, ::testing::Range(0U, 4U));

TEST(FirstFit, survives_being_emptied_from_either_end) {
  for (bool const from_below : {true, false}) {
    FirstFit ranges;
    constexpr std::uint64_t kCount = 5000;
    for (std::uint64_t at = 0; at < kCount; ++at) ranges.give({2 * (from_below ? kCount - at : at), 1});
    EXPECT_EQ(ranges.ranges(), kCount);
    std::uint64_t taken = 0;
    for (std::uint64_t last = 0; auto const place = ranges.take(1, 1); ++taken) {
      EXPECT_TRUE(taken == 0 || *place == last + 2);
      last = *place;
    }
    EXPECT_EQ(taken, kCount);
    ranges.give({7, 1});
    EXPECT_EQ(ranges.take(1, 1), 7);
  }
}

}  // namespace
}  // namespace headroom
