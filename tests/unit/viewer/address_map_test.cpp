// The allocation map: what is drawn where, and what lies between.
#include "address_map.hpp"

#include <gmock/gmock.h>

#include "null_frames.hpp"
#include "scripted_source.hpp"

namespace headroom::viewer {

std::unique_ptr<Panel> make_map_panel();

namespace {

using follow::Script;
using testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

AddressMap map_of(std::shared_ptr<Script> const& script, std::uint64_t ticks) {
  auto model = follow::model_of(script);
  EXPECT_TRUE(model.catch_up());
  return address_map(model, 0, ticks);
}

TEST(AddressMap, with_known_regions_counts_the_gaps_at_their_ends_too) {
  auto const script = std::make_shared<Script>();
  script->regions = {{.begin = 0x10000, .bytes = 1'000}};
  script->allocate(100, 0x10000 + 600, 100);
  script->allocate(101, 0x10000 + 100, 100);
  auto const map = map_of(script, 101);
  EXPECT_TRUE(map.are_regions_known);
  ASSERT_EQ(map.blocks.size(), 2U);
  EXPECT_EQ(map.blocks[0].address, 0x10000U + 100) << "by address";
  EXPECT_EQ(map.fragmentation.free_bytes, 800U);
  EXPECT_EQ(map.fragmentation.largest_hole, 400U);
  EXPECT_DOUBLE_EQ(map.fragmentation.fragmentation.value(), 0.5);
}

TEST(AddressMap, without_regions_far_blocks_are_in_stretches_of_their_own) {
  auto const script = std::make_shared<Script>();
  script->allocate(100, 0x1000, 100);
  script->allocate(101, 0x1000 + 300, 100);
  script->allocate(102, 0x1000 + 40 * kGiB, 50);
  auto const map = map_of(script, 102);
  EXPECT_FALSE(map.are_regions_known);
  ASSERT_EQ(map.regions.size(), 2U);
  EXPECT_EQ(map.regions[0].bytes, 400U);
  EXPECT_EQ(map.regions[1].bytes, 50U);
  EXPECT_EQ(map.fragmentation.free_bytes, 200U);
  EXPECT_EQ(map.fragmentation.largest_hole, 200U);
}

TEST(AddressMap, is_as_of_the_instant) {
  auto const script = std::make_shared<Script>();
  script->allocate(100, 0x1000, 100);
  script->free(200, 0x1000, 100);
  script->allocate(300, 0x2000, 70);
  EXPECT_EQ(map_of(script, 150).bytes, 100U);
  EXPECT_EQ(map_of(script, 300).bytes, 70U);
  EXPECT_TRUE(map_of(script, 250).blocks.empty());
}

TEST(MapLayout, draws_blocks_to_scale_over_rows) {
  AddressMap map;
  map.regions = {{.begin = 0x10000, .bytes = 4'096}};
  map.blocks = {{.address = 0x10000, .bytes = 512}, {.address = 0x10000 + 768, .bytes = 512}};
  auto const layout = layout_of(map, 5, 256);
  ASSERT_EQ(layout.bytes_per_row, 1'024U) << "a power of two, in four rows";
  EXPECT_EQ(layout.rows, 4U);
  ASSERT_EQ(layout.cells.size(), 3U);
  EXPECT_FLOAT_EQ(layout.cells[0].begin, 0);
  EXPECT_FLOAT_EQ(layout.cells[0].end, 128);
  EXPECT_EQ(layout.cells[1].row, 0U);
  EXPECT_FLOAT_EQ(layout.cells[1].begin, 192);
  EXPECT_FLOAT_EQ(layout.cells[1].end, 256) << "the block goes on in the next row";
  EXPECT_EQ(layout.cells[2].row, 1U);
  EXPECT_FLOAT_EQ(layout.cells[2].end, 64);
  EXPECT_EQ(layout.cells[2].first, 1U);
  EXPECT_EQ(address_at(map, layout, 1, 128, 256), 0x10000U + 1'024 + 512);
  EXPECT_EQ(address_at(map, layout, 9, 0, 256), 0U);
}

TEST(MapLayout, merges_what_is_narrower_than_a_pixel) {
  AddressMap map;
  map.regions = {{.begin = 0x10000, .bytes = 1U << 20U}};
  for (std::uint64_t i = 0; i < 65'536; ++i) map.blocks.push_back({.address = 0x10000 + i * 16, .bytes = 8});
  auto const layout = layout_of(map, 3, 512);
  EXPECT_LE(layout.cells.size(), layout.rows * 512);
  std::size_t blocks = 0;
  for (auto const& cell : layout.cells) {
    blocks += cell.count;
    EXPECT_LE(cell.end, 512.01F);
  }
  EXPECT_EQ(blocks, 65'536U);
}

TEST(MapLayout, of_nothing_is_empty) {
  EXPECT_EQ(layout_of({}, 10, 100).rows, 0U);
  AddressMap map;
  map.regions = {{.begin = 1, .bytes = 0}};
  map.blocks = {{.address = 1, .bytes = 0}};
  EXPECT_EQ(layout_of(map, 10, 100).rows, 1U) << "a block of nothing has a place all the same";
}

TEST(MapPanel, shows_gaps_and_fragmentation_of_the_moment) {
  auto const script = std::make_shared<Script>();
  script->name(5, "weights");
  script->regions = {{.begin = 0x10000, .bytes = 1'000}};
  script->allocate(100, 0x10000 + 600, 100, 5);
  script->allocate(101, 0x10000 + 100, 100, 5);
  auto model = follow::model_of(script);
  ASSERT_TRUE(model.catch_up());
  NullFrames frames{900, 600};
  ViewState state;
  state.show(&model);
  auto const panel = make_map_panel();
  auto const text = frames.draw(state, *panel);
  EXPECT_THAT(text, HasSubstr("largest gap\t400 B"));
  EXPECT_THAT(text, HasSubstr("fragmentation\t50.0 %"));
  EXPECT_THAT(text, HasSubstr("0x10000"));
}

}  // namespace
}  // namespace headroom::viewer
