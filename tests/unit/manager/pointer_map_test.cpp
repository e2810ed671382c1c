// The map from pointer to block by itself: searches, doubles, recent frees, its memory.
#include "manager/pointer_map.hpp"

#include <bit>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "host_memory.hpp"
#include "managers.hpp"

namespace headroom::test {
namespace {

using manager::Freeing;
using manager::MapEntry;
using manager::PointerMap;
using Inserted = PointerMap::Inserted;
using Taken = PointerMap::Taken;
using PutBack = PointerMap::PutBack;

void* at(std::uint64_t address) { return std::bit_cast<void*>(address); }

MapEntry entry_at(std::uint64_t address, std::uint64_t bytes) {
  MapEntry entry;
  entry.allocation.pointer = at(address);
  entry.allocation.bytes = bytes;
  return entry;
}

class PointerMapTest : public ::testing::Test {
protected:
  Inserted insert(std::uint64_t address, std::uint64_t bytes) {
    last = entry_at(address, bytes);
    return map->insert(last, other);
  }
  Taken take(std::uint64_t address, Freeing by = {}) { return map->take({.pointer = at(address)}, by, last); }
  Taken take_sized(std::uint64_t address, std::uint64_t bytes) {
    return map->take({.pointer = at(address), .bytes = bytes}, {}, last);
  }

  std::unique_ptr<PointerMap> map = std::make_unique<PointerMap>();
  MapEntry last;
  MapEntry other;
};

TEST_F(PointerMapTest, finds_nothing_in_an_empty_map_and_holds_no_memory) {
  EXPECT_EQ(take(0x1000), Taken::absent);
  EXPECT_FALSE(map->find(at(0x1000)));
  EXPECT_FALSE(map->find_around(at(0x1000)));
  EXPECT_FALSE(map->find_recent(at(0x1000), 0));
  EXPECT_EQ(map->size(), 0U);
  EXPECT_EQ(map->heap_bytes(), 0U);
}

TEST_F(PointerMapTest, gives_back_what_was_put_in_once) {
  ASSERT_EQ(insert(0x1000, 77), Inserted::done);
  EXPECT_EQ(last.generation, 1U);
  EXPECT_EQ(map->size(), 1U);
  EXPECT_EQ(map->find(at(0x1000))->allocation.bytes, 77U);
  ASSERT_EQ(take(0x1000), Taken::taken);
  EXPECT_EQ(last.allocation.bytes, 77U);
  EXPECT_EQ(map->size(), 0U);
  EXPECT_EQ(take(0x1000), Taken::absent);
}

TEST_F(PointerMapTest, every_life_of_an_address_has_a_generation_of_its_own) {
  for (std::uint64_t life = 1; life <= 5; ++life) {
    ASSERT_EQ(insert(0x4000, 10), Inserted::done);
    EXPECT_EQ(last.generation, life);
    EXPECT_EQ(map->take({.pointer = at(0x4000), .generation = life + 1}, {}, last), Taken::stale);
    EXPECT_EQ(map->take({.pointer = at(0x4000), .generation = life}, {}, last), Taken::taken);
  }
}

TEST_F(PointerMapTest, another_size_is_left_alone_and_told) {
  ASSERT_EQ(insert(0x1000, 77), Inserted::done);
  EXPECT_EQ(take_sized(0x1000, 76), Taken::wrong_size);
  EXPECT_EQ(last.allocation.bytes, 77U);
  EXPECT_EQ(map->size(), 1U);
  EXPECT_EQ(take_sized(0x1000, 77), Taken::taken);
}

TEST_F(PointerMapTest, finds_the_block_around_an_address_and_nothing_beside_it) {
  ASSERT_EQ(insert(0x10000, 0x100), Inserted::done);
  ASSERT_EQ(insert(0x20000, 0x100), Inserted::done);
  EXPECT_EQ(map->find_around(at(0x10000))->allocation.pointer, at(0x10000));
  EXPECT_EQ(map->find_around(at(0x100ff))->allocation.pointer, at(0x10000));
  EXPECT_FALSE(map->find_around(at(0x10100)));
  EXPECT_FALSE(map->find_around(at(0xffff)));
  EXPECT_EQ(map->find_around(at(0x20001))->allocation.pointer, at(0x20000));
  ASSERT_EQ(insert(0x10080, 0x10), Inserted::done);  // overlapping: the nearer one counts
  EXPECT_EQ(map->find_around(at(0x10084))->allocation.pointer, at(0x10080));
  EXPECT_EQ(map->find_around(at(0x10090))->allocation.pointer, at(0x10000));
}

TEST_F(PointerMapTest, remembers_the_last_sixteen_frees_of_a_shard_and_who_made_them) {
  // 256 bytes apart and within 16 KiB: one shard.
  for (std::uint64_t i = 0; i < 17; ++i) ASSERT_EQ(insert(0x100000 + 256 * i, 10 + i), Inserted::done);
  for (std::uint32_t i = 0; i < 17; ++i) {
    ASSERT_EQ(take(0x100000 + std::uint64_t{256} * i, {.thread = 100 + i, .site = 7}), Taken::taken);
  }
  EXPECT_FALSE(map->find_recent(at(0x100000), 0));  // the oldest of seventeen
  const auto second = map->find_recent(at(0x100100), 0);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->by.thread, 101U);
  EXPECT_EQ(second->by.site, 7U);
  EXPECT_EQ(second->bytes, 11U);
  EXPECT_EQ(second->generation, 2U);
  EXPECT_TRUE(map->find_recent(at(0x100100), 2));
  EXPECT_FALSE(map->find_recent(at(0x100100), 3));
  EXPECT_GT(map->heap_bytes(), 0U);
  map->start_over();
  EXPECT_FALSE(map->find_recent(at(0x100100), 0));
  EXPECT_EQ(map->heap_bytes(), 0U);
  EXPECT_EQ(insert(0x100100, 1), Inserted::done);
  EXPECT_EQ(last.generation, 18U);  // generations go on
}

TEST_F(PointerMapTest, keeps_both_blocks_of_an_address_given_out_twice) {
  ASSERT_EQ(insert(0x1000, 50), Inserted::done);
  ASSERT_EQ(insert(0x1000, 60), Inserted::address_twice);
  EXPECT_EQ(other.allocation.bytes, 50U);
  EXPECT_EQ(map->size(), 2U);
  EXPECT_EQ(map->find(at(0x1000))->allocation.bytes, 60U);  // the newest
  EXPECT_EQ(take_sized(0x1000, 50), Taken::taken);          // the one that fits
  EXPECT_EQ(take(0x1000), Taken::taken);
  EXPECT_EQ(last.allocation.bytes, 60U);
  ASSERT_EQ(insert(0x1000, 1), Inserted::done);  // nothing of it is left
  ASSERT_EQ(insert(0x1000, 2), Inserted::address_twice);
  ASSERT_EQ(insert(0x1000, 3), Inserted::address_twice);
  for (std::uint64_t newest = 3; newest >= 1; --newest) {
    ASSERT_EQ(take(0x1000), Taken::taken);
    EXPECT_EQ(last.allocation.bytes, newest);
  }
  EXPECT_EQ(map->size(), 0U);
}

TEST_F(PointerMapTest, what_was_put_back_is_the_same_block) {
  ASSERT_EQ(insert(0x1000, 50), Inserted::done);
  ASSERT_EQ(take(0x1000), Taken::taken);
  MapEntry failed = last;
  ++failed.failed_frees;
  ASSERT_EQ(map->put_back(failed), PutBack::done);
  EXPECT_EQ(map->take({.pointer = at(0x1000), .bytes = 50, .generation = 1}, {}, last), Taken::taken);
  EXPECT_EQ(last.failed_frees, 1U);
}

TEST_F(PointerMapTest, putting_back_beside_a_newer_block_takes_the_newest_first) {
  ASSERT_EQ(insert(0x1000, 50), Inserted::done);
  ASSERT_EQ(take(0x1000), Taken::taken);
  MapEntry failed = last;
  ++failed.failed_frees;
  ASSERT_EQ(insert(0x1000, 50), Inserted::done);  // generation 2: a driver that lied
  ASSERT_EQ(map->put_back(failed), PutBack::done);
  EXPECT_EQ(map->size(), 2U);
  ASSERT_EQ(take(0x1000), Taken::taken);
  EXPECT_EQ(last.generation, 2U);
  ASSERT_EQ(take(0x1000), Taken::taken);
  EXPECT_EQ(last.generation, 1U);
}

TEST_F(PointerMapTest, without_memory_nothing_enters_and_nothing_is_lost) {
  {
    const NoHostMemory none;
    EXPECT_EQ(insert(0x100000, 10), Inserted::no_memory);
  }
  EXPECT_EQ(map->size(), 0U);
  // The smallest table has 8 places and grows at 6.
  for (std::uint64_t i = 0; i < 6; ++i) ASSERT_EQ(insert(0x100000 + 256 * i, i), Inserted::done);
  const NoHostMemory none;
  EXPECT_EQ(insert(0x100000 + 256 * 6, 6), Inserted::no_memory);
  EXPECT_EQ(map->size(), 6U);
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(map->find(at(0x100000 + 256 * i))->allocation.bytes, i);
}

TEST_F(PointerMapTest, a_failed_free_finds_its_place_again_though_others_took_it_and_memory_is_out) {
  for (std::uint64_t i = 0; i < 6; ++i) ASSERT_EQ(insert(0x100000 + 256 * i, i), Inserted::done);
  ASSERT_EQ(take(0x100000), Taken::taken);
  MapEntry failed = last;
  ++failed.failed_frees;
  ASSERT_EQ(insert(0x103f00, 99), Inserted::done);  // takes the place
  const NoHostMemory none;
  EXPECT_EQ(map->put_back(failed), PutBack::done);
  EXPECT_EQ(map->size(), 7U);  // beyond the six, before the last empty place
  EXPECT_FALSE(map->find(at(0x102000)));
  EXPECT_EQ(map->find(at(0x100000))->failed_frees, 1U);
  EXPECT_EQ(map->put_back(entry_at(0x103e00, 1)), PutBack::no_memory);
}

TEST_F(PointerMapTest, takes_at_most_200_bytes_for_each_block_and_gives_memory_back) {
  constexpr std::uint64_t kBlocks = 200'000;
  constexpr std::uint64_t kFewest = 20'000;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    ASSERT_EQ(insert((i + 1) * 4096, i + 1), Inserted::done);
    if (i >= kFewest && i % 997 == 0) {
      ASSERT_LE(map->heap_bytes(), 200 * (i + 1)) << i;
    }
  }
  const std::uint64_t most = map->heap_bytes();
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    ASSERT_EQ(take((i + 1) * 4096), Taken::taken);
    ASSERT_EQ(last.allocation.bytes, i + 1);
  }
  EXPECT_EQ(map->size(), 0U);
  // 64 tables of at most 64 places.
  EXPECT_LE(map->heap_bytes(), 64U * 64 * 96);
  EXPECT_LT(map->heap_bytes(), most / 10);
}

TEST_F(PointerMapTest, agrees_with_a_simple_map_over_many_random_steps) {
  std::multimap<std::uint64_t, std::uint64_t> model;  // address → bytes
  std::minstd_rand random{12345};
  for (int step = 0; step < 300'000; ++step) {
    // Few addresses, so that doubles are common; the share of inserts swings, so that tables grow and shrink.
    const bool grows = (step / 20'000) % 2 == 0;
    const std::uint64_t address = 4096 + 256 * (random() % 3000);
    const std::uint64_t bytes = 1 + random() % 4;
    if (random() % 100 < (grows ? 60U : 35U)) {
      const bool twice = model.contains(address);
      ASSERT_EQ(insert(address, bytes), twice ? Inserted::address_twice : Inserted::done);
      model.emplace(address, bytes);
      continue;
    }
    const auto [begin, end] = model.equal_range(address);
    const auto found = std::find_if(begin, end, [&](auto const& block) { return block.second == bytes; });
    const Taken expected = found != end ? Taken::taken : begin != end ? Taken::wrong_size : Taken::absent;
    ASSERT_EQ(take_sized(address, bytes), expected);
    if (found != end) model.erase(found);
    ASSERT_EQ(map->size(), model.size());
  }
  for (auto const& [address, bytes] : model) ASSERT_EQ(take_sized(address, bytes), Taken::taken);
  EXPECT_EQ(map->size(), 0U);
}

TEST_F(PointerMapTest, lists_every_entry) {
  std::map<std::uint64_t, std::uint64_t> expected;
  for (std::uint64_t i = 1; i <= 500; ++i) {
    ASSERT_EQ(insert(i * 8192, i), Inserted::done);
    expected[i * 8192] = i;
  }
  std::map<std::uint64_t, std::uint64_t> listed;
  for (auto const& entry : map->entries()) {
    listed[std::bit_cast<std::uint64_t>(entry.allocation.pointer)] = entry.allocation.bytes;
  }
  EXPECT_EQ(listed, expected);
}

}  // namespace
}  // namespace headroom::test
