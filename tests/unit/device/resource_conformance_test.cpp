// What every DeviceResource must do, run over every resource of resource_factories.hpp.
#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "resource_factories.hpp"

namespace headroom {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::uint64_t address(Block const& block) { return reinterpret_cast<std::uint64_t>(block.pointer); }

class ResourceConformance : public ::testing::TestWithParam<testing::ResourceFactory> {
protected:
  void SetUp() override {
    auto made = GetParam().make();
    if (!made) GTEST_SKIP() << made.error().to_string();
    made_ = *std::move(made);
  }
  [[nodiscard]] DeviceResource& resource() const { return *made_.resource; }
  [[nodiscard]] testing::ResourceTraits const& traits() const { return GetParam().traits; }
  [[nodiscard]] StreamId stream() const { return made_.create_stream ? made_.create_stream().value() : StreamId{}; }
  void reap_all() const { ASSERT_TRUE(resource().reap_pending(ReapMode::synchronize)); }
  void expect_misuse(Block const& block, ErrorKind kind) const {
    auto const before = resource().bytes_outstanding();
    auto const result = resource().deallocate(block);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, kind) << result.error().message;
    EXPECT_EQ(resource().bytes_outstanding(), before);
  }

  testing::MadeResource made_;
};

TEST_P(ResourceConformance, block_carries_what_was_asked_for) {
  auto const on = stream();
  auto const block = resource().allocate({.bytes = 1000, .alignment = 4096, .stream = on, .tag = 7});
  ASSERT_TRUE(block) << block.error().message;
  EXPECT_NE(block->pointer, nullptr);
  EXPECT_EQ(block->bytes, 1000);
  EXPECT_EQ(block->alignment, 4096);
  EXPECT_EQ(block->stream, on);
  EXPECT_EQ(block->tag, 7);
  EXPECT_TRUE(resource().deallocate(*block));
}

TEST_P(ResourceConformance, counts_requested_bytes_until_they_are_back) {
  if (!traits().keeps_books) GTEST_SKIP();
  EXPECT_EQ(resource().bytes_outstanding(), 0);
  auto const first = resource().allocate({.bytes = 1}).value();
  auto const second = resource().allocate({.bytes = 999}).value();
  EXPECT_EQ(resource().bytes_outstanding(), 1000);
  EXPECT_TRUE(resource().deallocate(first));
  EXPECT_EQ(resource().bytes_outstanding(), traits().frees_are_pending ? 1000 : 999);
  EXPECT_TRUE(resource().deallocate(second));
  reap_all();
  EXPECT_EQ(resource().bytes_outstanding(), 0);
}

TEST_P(ResourceConformance, a_trim_takes_nothing_from_anyone_and_a_second_one_finds_nothing) {
  auto const block = resource().allocate({.bytes = 1000}).value();
  EXPECT_TRUE(resource().deallocate(resource().allocate({.bytes = 5000}).value()));
  reap_all();
  auto const outstanding = resource().bytes_outstanding();
  ASSERT_TRUE(resource().trim(0));
  EXPECT_EQ(resource().trim(0).value(), 0U);
  EXPECT_EQ(resource().bytes_outstanding(), outstanding);
  EXPECT_TRUE(resource().deallocate(block));
}

TEST_P(ResourceConformance, a_block_takes_no_more_of_the_device_than_its_footprint) {
  if (!traits().knows_memory) GTEST_SKIP();
  for (std::uint64_t const bytes : {std::uint64_t{1}, std::uint64_t{256}, std::uint64_t{1000}, kMiB + 1}) {
    EXPECT_GE(resource().footprint(bytes), bytes);
    auto const before = *resource().memory_info().free;
    auto const block = resource().allocate({.bytes = bytes}).value();
    auto const after = *resource().memory_info().free;
    EXPECT_LE(before > after ? before - after : 0, resource().footprint(bytes));
    EXPECT_TRUE(resource().deallocate(block));
    reap_all();
  }
}

TEST_P(ResourceConformance, zero_bytes_succeed_as_null_and_can_be_freed_over_and_over) {
  for (int round = 0; round < 1000; ++round) {
    auto const block = resource().allocate({.bytes = 0});
    ASSERT_TRUE(block);
    EXPECT_EQ(block->pointer, nullptr);
    EXPECT_EQ(block->bytes, 0);
    EXPECT_TRUE(resource().deallocate(*block));
    EXPECT_TRUE(resource().deallocate(*block));
    if (traits().writes) {
      EXPECT_TRUE(resource().fill_zero(*block, 0, 0, {}));
      EXPECT_TRUE(resource().copy_in(*block, 0, {}, {}));
    }
  }
  EXPECT_TRUE(resource().deallocate(Block{}));
  EXPECT_EQ(resource().bytes_outstanding(), 0);
}

TEST_P(ResourceConformance, small_alignment_is_raised_and_large_is_honoured) {
  std::vector<Block> blocks;
  for (std::uint64_t alignment = 1; alignment <= 64 * kMiB; alignment *= 2) {
    auto const block = resource().allocate({.bytes = 3, .alignment = alignment});
    ASSERT_TRUE(block) << alignment << ": " << block.error().message;
    auto const given = std::max<std::uint64_t>(alignment, 256);
    EXPECT_EQ(block->alignment, given);
    EXPECT_EQ(address(*block) % given, 0);
    blocks.push_back(*block);
  }
  for (auto const& block : blocks) EXPECT_TRUE(resource().deallocate(block));
}

TEST_P(ResourceConformance, alignment_that_is_no_power_of_two_is_refused) {
  for (std::uint64_t const alignment : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{257}, UINT64_MAX}) {
    auto const block = resource().allocate({.bytes = 64, .alignment = alignment});
    ASSERT_FALSE(block) << alignment;
    EXPECT_EQ(block.error().kind, ErrorKind::invalid_argument);
    EXPECT_THAT(block.error().message, ::testing::HasSubstr(std::to_string(alignment)));
  }
  EXPECT_EQ(resource().bytes_outstanding(), 0);
}

TEST_P(ResourceConformance, sizes_near_the_end_of_64_bits_are_refused_as_overflow) {
  for (std::uint64_t const bytes : {std::uint64_t{1} << 44, UINT64_MAX - 255, UINT64_MAX}) {
    auto const block = resource().allocate({.bytes = bytes});
    ASSERT_FALSE(block) << bytes;
    EXPECT_EQ(block.error().kind, ErrorKind::overflow);
    EXPECT_EQ(block.error().requested, bytes);
  }
  EXPECT_EQ(resource().bytes_outstanding(), 0);
}

TEST_P(ResourceConformance, refusal_for_lack_of_memory_has_figures_and_changes_nothing) {
  if (!traits().knows_memory) GTEST_SKIP();
  auto const free_before = resource().memory_info().free;
  ASSERT_TRUE(free_before);
  auto const block = resource().allocate({.bytes = *free_before + 1});
  ASSERT_FALSE(block);
  EXPECT_EQ(block.error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(block.error().requested, *free_before + 1);
  if (traits().alone_on_device) {
    EXPECT_EQ(block.error().device_free, free_before);
    EXPECT_EQ(resource().memory_info().free, free_before);
  } else {
    ASSERT_TRUE(block.error().device_free);
    EXPECT_LE(*block.error().device_free, resource().memory_info().total);
  }
  EXPECT_EQ(resource().bytes_outstanding(), 0);
}

TEST_P(ResourceConformance, misuse_is_told_apart_and_changes_nothing) {
  if (!traits().detects_misuse) GTEST_SKIP();
  auto const kept = resource().allocate({.bytes = 4096}).value();
  auto const freed = resource().allocate({.bytes = 4096}).value();
  ASSERT_TRUE(resource().deallocate(freed));
  expect_misuse(freed, ErrorKind::double_free);
  expect_misuse(freed, ErrorKind::double_free);

  auto foreign = kept;
  int on_stack = 0;
  foreign.pointer = &on_stack;
  expect_misuse(foreign, ErrorKind::unknown_pointer);
  auto interior = kept;
  interior.pointer = reinterpret_cast<void*>(address(kept) + 256);
  expect_misuse(interior, ErrorKind::unknown_pointer);
  interior.pointer = reinterpret_cast<void*>(address(kept) + 1);
  expect_misuse(interior, ErrorKind::unknown_pointer);

  auto resized = kept;
  resized.bytes = 4095;
  expect_misuse(resized, ErrorKind::wrong_size);
  resized.bytes = 0;
  expect_misuse(resized, ErrorKind::wrong_size);

  reap_all();
  auto const reused = resource().allocate({.bytes = 4096}).value();
  if (traits().refills_gaps) {
    ASSERT_EQ(reused.pointer, freed.pointer) << "first fit refills the gap";
  }
  EXPECT_NE(reused.generation, freed.generation);
  expect_misuse(freed, reused.pointer == freed.pointer ? ErrorKind::use_after_free : ErrorKind::double_free);

  EXPECT_TRUE(resource().deallocate(kept)) << "still owned after all of that";
  EXPECT_TRUE(resource().deallocate(reused));
}

TEST_P(ResourceConformance, block_of_another_resource_is_unknown_and_stays_with_its_owner) {
  if (!traits().detects_misuse) GTEST_SKIP();
  auto const other = GetParam().make().value();
  auto const mine = resource().allocate({.bytes = 512}).value();
  auto const theirs = other.resource->allocate({.bytes = 512}).value();
  expect_misuse(theirs, ErrorKind::unknown_pointer);
  EXPECT_TRUE(other.resource->deallocate(theirs));
  EXPECT_TRUE(resource().deallocate(mine));
}

TEST_P(ResourceConformance, unknown_stream_is_refused_and_the_block_can_be_freed_on_another) {
  if (!traits().checks_streams) GTEST_SKIP();
  StreamId const unknown{12345};
  auto const refused = resource().allocate({.bytes = 64, .stream = unknown});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::stream_misuse);
  EXPECT_FALSE(resource().allocate({.bytes = 0, .stream = unknown}));
  auto block = resource().allocate({.bytes = 64}).value();
  block.stream = unknown;
  expect_misuse(block, ErrorKind::stream_misuse);
  EXPECT_EQ(resource().fill_zero(block, 0, 64, unknown).error().kind, ErrorKind::stream_misuse);
  block.stream = stream();
  EXPECT_TRUE(resource().deallocate(block));
}

TEST_P(ResourceConformance, writes_are_checked_against_the_block) {
  if (!traits().writes) GTEST_SKIP();
  auto const block = resource().allocate({.bytes = 1000}).value();
  std::vector<std::byte> const source(600, std::byte{0x5a});
  EXPECT_TRUE(resource().fill_zero(block, 0, 1000, {}));
  EXPECT_TRUE(resource().fill_zero(block, 1000, 0, {}));
  EXPECT_TRUE(resource().copy_in(block, 400, source, {}));
  if (resource().host_accessible()) {
    auto const* const bytes = static_cast<unsigned char const*>(block.pointer);
    EXPECT_EQ(bytes[0], 0);
    EXPECT_EQ(bytes[399], 0);
    EXPECT_EQ(bytes[400], 0x5a);
    EXPECT_EQ(bytes[999], 0x5a);
    EXPECT_TRUE(resource().fill_zero(block, 999, 1, {}));
    EXPECT_EQ(bytes[998], 0x5a);
    EXPECT_EQ(bytes[999], 0);
  }
  for (auto const& result : {resource().fill_zero(block, 0, 1001, {}), resource().fill_zero(block, 1001, 0, {}),
                             resource().fill_zero(block, 1, UINT64_MAX, {}), resource().fill_zero(block, UINT64_MAX, 1, {}),
                             resource().copy_in(block, 401, source, {})}) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::invalid_argument);
  }
  ASSERT_TRUE(resource().deallocate(block));
  if (traits().detects_misuse) {
    EXPECT_EQ(resource().fill_zero(block, 0, 1, {}).error().kind, ErrorKind::use_after_free);
  }
}

TEST_P(ResourceConformance, freed_gap_is_refilled_exactly) {
  if (!traits().owns_ranges || !traits().refills_gaps) GTEST_SKIP();
  auto const low = resource().allocate({.bytes = kMiB}).value();
  auto const middle = resource().allocate({.bytes = kMiB}).value();
  auto const high = resource().allocate({.bytes = kMiB}).value();
  EXPECT_TRUE(resource().deallocate(middle));
  reap_all();
  auto const again = resource().allocate({.bytes = kMiB}).value();
  EXPECT_EQ(again.pointer, middle.pointer);
  for (auto const& block : {low, again, high}) EXPECT_TRUE(resource().deallocate(block));
}

TEST_P(ResourceConformance, blocks_may_be_freed_on_another_thread_and_stream) {
  auto block = resource().allocate({.bytes = 4096, .stream = stream()}).value();
  block.stream = stream();
  std::thread([&] { EXPECT_TRUE(resource().deallocate(block)); }).join();
  reap_all();
  EXPECT_EQ(resource().bytes_outstanding(), 0);
}

TEST_P(ResourceConformance, concurrent_blocks_never_overlap) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 4000;
  std::vector<std::vector<Block>> held(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < kThreads; ++index) {
    threads.emplace_back([&, index] {
      std::mt19937_64 random(index);
      auto& mine = held[index];
      auto const on = stream();
      for (int round = 0; round < kRounds; ++round) {
        if (mine.size() == 50 || (!mine.empty() && random() % 2 == 0)) {
          auto const victim = random() % mine.size();
          EXPECT_TRUE(resource().deallocate(mine[victim]));
          mine[victim] = mine.back();
          mine.pop_back();
          if (round % 16 == 0) {
            EXPECT_TRUE(resource().reap_pending(ReapMode::synchronize));
          }
        } else {
          auto const block =
              resource().allocate({.bytes = random() % 20000 + 1, .alignment = 256U << random() % 4, .stream = on});
          ASSERT_TRUE(block) << block.error().message;
          mine.push_back(*block);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<Block> all;
  for (auto const& mine : held) all.insert(all.end(), mine.begin(), mine.end());
  std::ranges::sort(all, {}, &Block::pointer);
  for (std::size_t at = 1; at < all.size(); ++at) {
    EXPECT_GE(address(all[at]), address(all[at - 1]) + (traits().owns_ranges ? all[at - 1].bytes : 1));
  }
  for (auto const& block : all) EXPECT_TRUE(resource().deallocate(block));
  reap_all();
  EXPECT_EQ(resource().bytes_outstanding(), 0);
}

INSTANTIATE_TEST_SUITE_P(every, ResourceConformance, ::testing::ValuesIn(testing::suite_resources()),
                         [](auto const& tested) { return tested.param.name; });

}  // namespace
}  // namespace headroom
