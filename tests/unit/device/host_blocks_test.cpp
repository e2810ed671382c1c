#include "device/host_blocks.hpp"

#include <random>
#include <unordered_map>

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(HostBlocks, knows_what_was_inserted_and_not_erased) {
  HostBlocks blocks;
  EXPECT_EQ(blocks.find(1), nullptr);
  blocks.insert({.granule = 1, .bytes = 10, .generation = 100});
  ASSERT_NE(blocks.find(1), nullptr);
  EXPECT_EQ(blocks.find(1)->bytes, 10);
  EXPECT_EQ(blocks.find(1)->generation, 100);
  blocks.erase(blocks.find(1));
  EXPECT_EQ(blocks.find(1), nullptr);
  EXPECT_EQ(blocks.size(), 0);
}

TEST(HostBlocks, does_the_same_as_a_standard_map_over_a_random_life) {
  std::mt19937_64 random(1);
  HostBlocks blocks;
  std::unordered_map<std::uint64_t, std::uint64_t> expected;
  for (int round = 0; round < 200000; ++round) {
    auto const granule = random() % 6000 * 8;  // dense: long runs of neighbours, and two growths
    auto const* const found = blocks.find(granule);
    auto const known = expected.find(granule);
    ASSERT_EQ(found != nullptr, known != expected.end());
    if (found == nullptr) {
      blocks.reserve_one();
      blocks.insert({.granule = granule, .bytes = random(), .generation = 1});
      expected[granule] = blocks.find(granule)->bytes;
    } else {
      ASSERT_EQ(found->bytes, known->second);
      blocks.erase(found);
      expected.erase(known);
    }
    ASSERT_EQ(blocks.size(), expected.size());
  }
  for (auto const& [granule, bytes] : expected) {
    ASSERT_NE(blocks.find(granule), nullptr);
    EXPECT_EQ(blocks.find(granule)->bytes, bytes);
  }
}

}  // namespace
}  // namespace headroom
