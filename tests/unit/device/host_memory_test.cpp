// Without host memory: what a host device took back is reported and kept, what it could not take back stays pending.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <headroom/device_account.hpp>

#include "device_budgets.hpp"
#include "host_memory.hpp"

namespace headroom {
namespace {

using test::expect_empty;
using test::host_of;
using test::HostMemoryEnds;

constexpr std::uint64_t kGranule = 256;
constexpr std::size_t kBlocks = 400;  // every second one is freed: holes that do not touch, so that each needs a place of its own

template <class Resource>
std::vector<Block> allocate_blocks(Resource& resource) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < kBlocks; ++i) blocks.push_back(resource.allocate({.bytes = kGranule}).value());
  return blocks;
}

template <class Resource>
void free_every_second(Resource& resource, std::vector<Block> const& blocks, std::size_t first) {
  for (std::size_t i = first; i < blocks.size(); i += 2) ASSERT_TRUE(resource.deallocate(blocks[i]));
}

TEST(WithoutHostMemory, a_reap_reports_what_it_took_and_leaves_the_rest_pending) {
  const auto host = host_of({.total_bytes = 1 << 20, .stream_ordered = true});
  const auto budget = GlobalDeviceBudget::create(host_device_over(host).value(), MemoryBudget::with_limit(1 << 20)).value();
  const auto blocks = allocate_blocks(*budget);
  free_every_second(*budget, blocks, 0);
  Result<std::uint64_t> reaped;
  {
    const HostMemoryEnds ends;
    reaped = host->reap_pending(ReapMode::synchronize);
  }
  ASSERT_FALSE(reaped) << "200 holes need more places than there were";
  EXPECT_EQ(reaped.error().kind, ErrorKind::io);
  const auto usage = host->usage();
  EXPECT_GT(usage.pending, 0U);
  EXPECT_LT(usage.pending, kBlocks / 2 * kGranule) << "some came back";
  EXPECT_EQ(usage.rounding, 0U) << "none was lost";
  EXPECT_EQ(budget->account().pending_free_bytes(), usage.pending);
  EXPECT_EQ(budget->account().allocated_bytes(), host->bytes_outstanding());
  EXPECT_EQ(host->reap_pending(ReapMode::synchronize), usage.pending);
  EXPECT_EQ(budget->account().claimed_bytes(), kBlocks / 2 * kGranule);
  free_every_second(*budget, blocks, 1);
  ASSERT_TRUE(host->reap_pending(ReapMode::synchronize));
  expect_empty(budget->account());
}

TEST(WithoutHostMemory, trimming_a_cache_loses_nothing) {
  const auto host = host_of({.total_bytes = 1 << 20, .release_threshold_bytes = 1 << 20});
  const auto blocks = allocate_blocks(*host);
  free_every_second(*host, blocks, 0);
  constexpr std::uint64_t kCached = kBlocks / 2 * kGranule;
  ASSERT_EQ(host->usage().cached, kCached);
  const auto before = host->usage();
  Result<std::uint64_t> trimmed;
  {
    const HostMemoryEnds ends;
    trimmed = host->trim(0);
  }
  ASSERT_TRUE(trimmed);
  EXPECT_LT(*trimmed, kCached) << "200 holes need more places than there were";
  auto after = host->usage();
  EXPECT_EQ(after.cached, kCached - *trimmed);
  EXPECT_EQ(after.free_on_device, before.free_on_device + *trimmed);
  EXPECT_EQ(host->memory_info().free, after.free_on_device);
  EXPECT_EQ(after.rounding, 0U);
  EXPECT_EQ(host->trim(0), kCached - *trimmed);
  EXPECT_EQ(host->usage().cached, 0U);
}

/// A stack that needs host memory and has none.
class OutOfHostMemory final : public ResourceDecorator {
public:
  static constexpr std::string_view kName = "out-of-host-memory";
  using ResourceDecorator::ResourceDecorator;
  bool has_memory = false;
  Result<Block> allocate(AllocRequest const& request) override {
    if (!has_memory) throw std::bad_alloc{};
    return ResourceDecorator::allocate(request);
  }
  Result<void> deallocate(Block const& block) override {
    if (!has_memory) throw std::bad_alloc{};
    return ResourceDecorator::deallocate(block);
  }
};

TEST(WithoutHostMemory, a_device_budget_keeps_its_books_and_throws_nothing) {
  const auto host = host_of();
  const auto poor = decorate<OutOfHostMemory>(host).value();
  const auto budget = GlobalDeviceBudget::create(host_device_over(host).value(), MemoryBudget::with_limit(1000), poor).value();
  const auto without_memory = [&](auto&& call) -> std::optional<Error> {
    const HostMemoryEnds ends;
    auto result = call();
    return result ? std::nullopt : std::optional<Error>{std::move(result.error())};
  };
  poor->has_memory = true;
  auto block = budget->allocate({.bytes = 600}).value();
  poor->has_memory = false;
  auto error = without_memory([&] { return budget->allocate({.bytes = 100}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind, ErrorKind::driver);
  EXPECT_EQ(budget->account().claimed_bytes(), 600U);
  error = without_memory([&] { return budget->deallocate(block); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind, ErrorKind::driver);
  EXPECT_EQ(budget->account().claimed_bytes(), 600U);
  EXPECT_EQ(budget->account().pending_free_bytes(), 0U);
  error = without_memory([&] { return budget->allocate({.bytes = 401}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind, ErrorKind::over_budget);
  EXPECT_EQ(error->layer, Layer::device_account);
  EXPECT_EQ(error->current, 600U);
  EXPECT_EQ(error->limit, 1000U);
  poor->has_memory = true;
  ASSERT_TRUE(budget->deallocate(block));
  expect_empty(budget->account());
}

}  // namespace
}  // namespace headroom
