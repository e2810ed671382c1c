// What the host device does beyond the contract: its size, rounding, holes, cache, slowness.
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/host_resource.hpp>

#include "on_threads.hpp"
#include "within.hpp"

namespace headroom {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

std::shared_ptr<HostResource> make(HostOptions const& options) { return HostResource::create(options).value(); }

TEST(HostResource, options_out_of_range_are_named_with_their_value) {
  struct Case {
    HostOptions options;
    std::string expected;
  };
  for (auto const& [options, expected] : std::vector<Case>{
           {{.total_bytes = 0}, "total_bytes is 0"},
           {{.total_bytes = (std::uint64_t{1} << 44) + 1}, "total_bytes is 17592186044417"},
           {{.total_bytes = kMiB, .context_overhead_bytes = kMiB + 1}, "context_overhead_bytes is 1048577"},
           {{.granularity_bytes = 128}, "granularity_bytes is 128"},
           {{.granularity_bytes = 768}, "granularity_bytes is 768"},
           {{.granularity_bytes = 2 * kGiB}, "granularity_bytes is 2147483648"},
           {{.free_delay = -1ns}, "free_delay is -1"},
           {{.allocate_latency = -2ns}, "allocate_latency is -2"},
           {{.free_latency = -3ns}, "free_latency is -3"},
       }) {
    auto const made = HostResource::create(options);
    ASSERT_FALSE(made) << expected;
    EXPECT_EQ(made.error().kind, ErrorKind::invalid_argument);
    EXPECT_THAT(made.error().message, HasSubstr(expected));
  }
}

TEST(HostResource, sixteen_tebibytes_of_addresses_work_without_memory) {
  auto const host = make({.total_bytes = std::uint64_t{1} << 44, .touch_memory = false});
  auto const block = host->allocate({.bytes = kLargestRequest});
  ASSERT_TRUE(block) << block.error().message;
  EXPECT_EQ(host->memory_info().free, 0) << "rounded up to the last granule";
  EXPECT_TRUE(host->fill_zero(*block, 0, kLargestRequest, {}));
  EXPECT_FALSE(host->host_accessible());
}

TEST(HostResource, addresses_without_memory_are_the_same_distance_apart_in_every_run) {
  auto const first = make({.total_bytes = kGiB, .touch_memory = false});
  auto const second = make({.total_bytes = kGiB, .touch_memory = false});
  auto const distance = [](HostResource& host) {
    auto const low = host.allocate({.bytes = 1000}).value();
    auto const high = host.allocate({.bytes = 1, .alignment = kMiB}).value();
    return reinterpret_cast<std::uint64_t>(high.pointer) - reinterpret_cast<std::uint64_t>(low.pointer);
  };
  EXPECT_EQ(distance(*first), kMiB) << "a region starts at a huge page, the first block with it";
  EXPECT_EQ(distance(*second), kMiB);
}

TEST(HostResource, context_overhead_is_used_by_nobody_from_the_start) {  // case S01
  auto const host = make({.total_bytes = 10 * kGiB, .context_overhead_bytes = 400 * kMiB, .touch_memory = false});
  EXPECT_EQ(host->memory_info().total, 10 * kGiB);
  EXPECT_EQ(host->memory_info().free, 10 * kGiB - 400 * kMiB);
  auto const block = host->allocate({.bytes = 5 * kGiB}).value();
  auto const info = host->memory_info();
  EXPECT_EQ(*info.total - *info.free - block.bytes, 400 * kMiB) << "outside the ledger";
  EXPECT_TRUE(host->allocate({.bytes = 5 * kGiB - 400 * kMiB})) << "the rest, to the last byte";
  EXPECT_EQ(host->memory_info().free, 0);
}

TEST(HostResource, overhead_as_large_as_the_device_leaves_nothing) {
  auto const host = make({.total_bytes = kMiB, .context_overhead_bytes = kMiB});
  EXPECT_EQ(host->memory_info().free, 0);
  EXPECT_EQ(host->allocate({.bytes = 1}).error().kind, ErrorKind::device_out_of_memory);
  EXPECT_TRUE(host->allocate({.bytes = 0}));
}

TEST(HostResource, one_byte_costs_a_granule_of_the_device_and_one_byte_of_the_books) {
  for (std::uint64_t const granularity : {std::uint64_t{256}, std::uint64_t{512}, 2 * kMiB}) {
    auto const host = make({.total_bytes = kGiB, .granularity_bytes = granularity, .touch_memory = false});
    auto const block = host->allocate({.bytes = 1}).value();
    EXPECT_EQ(host->memory_info().free, kGiB - granularity);
    EXPECT_EQ(host->bytes_outstanding(), 1);
    EXPECT_EQ(host->usage().rounding, granularity - 1);
    EXPECT_TRUE(host->deallocate(block));
    EXPECT_EQ(host->memory_info().free, kGiB);
  }
}

TEST(HostResource, a_request_can_fail_though_enough_is_free_in_pieces) {  // cases S34, S35
  auto const host = make({.total_bytes = 8 * kGiB, .touch_memory = false});
  std::vector<Block> blocks;
  for (int at = 0; at < 8; ++at) blocks.push_back(host->allocate({.bytes = kGiB}).value());
  for (std::size_t at = 0; at < 8; at += 2) ASSERT_TRUE(host->deallocate(blocks[at]));
  EXPECT_EQ(host->largest_free_block(), kGiB);
  EXPECT_EQ(host->usage().holes, 4);
  EXPECT_DOUBLE_EQ(host->usage().fragmentation(), 0.75);

  auto const refused = host->allocate({.bytes = 2 * kGiB});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::device_out_of_memory);
  EXPECT_EQ(refused.error().layer, Layer::driver);
  EXPECT_EQ(refused.error().device_code, 2);
  EXPECT_EQ(refused.error().requested, 2 * kGiB);
  EXPECT_EQ(refused.error().device_free, 4 * kGiB);
  EXPECT_EQ(refused.error().message,
            "no free range of 2 GiB: largest hole 1 GiB of 4 GiB free in 4 holes, fragmentation 75 % (1 - largest / free)");

  ASSERT_TRUE(host->deallocate(blocks[1]));
  EXPECT_EQ(host->largest_free_block(), 3 * kGiB);
  EXPECT_TRUE(host->allocate({.bytes = 2 * kGiB}));
}

TEST(HostResource, cached_memory_counts_as_used_until_it_is_trimmed) {  // case S16
  auto const host = make({.total_bytes = kGiB, .release_threshold_bytes = kGiB, .touch_memory = false});
  auto const first = host->allocate({.bytes = 512 * kMiB}).value();
  ASSERT_TRUE(host->deallocate(first));
  EXPECT_EQ(host->bytes_outstanding(), 0);
  EXPECT_EQ(host->usage().cached, 512 * kMiB);
  EXPECT_EQ(host->memory_info().free, 512 * kMiB);

  auto const refused = host->allocate({.bytes = 768 * kMiB});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("512 MiB cached"));
  EXPECT_EQ(host->trim(0).value(), 512 * kMiB);
  EXPECT_EQ(host->memory_info().free, kGiB);
  EXPECT_TRUE(host->allocate({.bytes = 768 * kMiB}));
}

TEST(HostResource, cache_serves_requests_and_keeps_no_more_than_its_threshold) {
  auto const host = make({.total_bytes = 64 * kMiB, .release_threshold_bytes = 3 * kMiB, .touch_memory = false});
  std::vector<Block> blocks;
  for (int at = 0; at < 8; ++at) blocks.push_back(host->allocate({.bytes = kMiB}).value());
  for (std::size_t at = 0; at < 8; at += 2) ASSERT_TRUE(host->deallocate(blocks[at]));
  EXPECT_EQ(host->usage().cached, 3 * kMiB);
  EXPECT_EQ(host->memory_info().free, (64 - 4 - 3) * kMiB);
  EXPECT_EQ(host->allocate({.bytes = kMiB})->pointer, blocks[0].pointer) << "from the cache, lowest first";
  EXPECT_EQ(host->usage().cached, 2 * kMiB);
  EXPECT_EQ(host->trim(kMiB + kMiB / 2).value(), kMiB / 2);
  EXPECT_EQ(host->usage().cached, kMiB + kMiB / 2);
  EXPECT_EQ(host->trim(UINT64_MAX).value(), 0U);
}

// Under a lock, 20 threads of twice 50 ms each take 2 s at the least; without, 100 ms where the machine has time for them.
TEST(HostResource, latency_is_not_spent_under_a_lock) {
  auto const host = make({.total_bytes = kGiB, .touch_memory = false, .allocate_latency = 50ms, .free_latency = 50ms});
  test::expect_within(1000ms, [&] {
    auto const elapsed = test::time_of(
        [&] { test::on_threads(20, [&](int) { EXPECT_TRUE(host->deallocate(host->allocate({.bytes = kMiB}).value())); }); });
    EXPECT_GE(elapsed, 100ms) << "latency was not spent at all";
    return elapsed;
  });
}

TEST(HostResource, freed_address_can_be_handed_out_before_the_free_returns) {
  auto const host = make({.total_bytes = kMiB, .touch_memory = false, .free_latency = 1h});
  auto const block = host->allocate({.bytes = kMiB}).value();
  // The free holds its thread for an hour: leave it behind. It touches only what it shares ownership of.
  std::thread([host, block] { static_cast<void>(host->deallocate(block)); }).detach();
  while (host->bytes_outstanding() != 0) std::this_thread::yield();
  auto const again = host->allocate({.bytes = kMiB});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->pointer, block.pointer);
}

TEST(HostResource, device_over_the_host_tells_its_memory_and_shares_the_resource) {
  auto const device = host_device({.total_bytes = kGiB, .ordinal = 3}).value();
  EXPECT_EQ(device.kind(), DeviceKind::host);
  EXPECT_EQ(device.name(), "host");
  EXPECT_EQ(device.ordinal(), 3);
  EXPECT_EQ(device.memory_info().total, kGiB);
  EXPECT_EQ(device.resource().allocate({.bytes = 1})->device, 3);
  auto const copy = device;
  EXPECT_EQ(copy, device);
  EXPECT_NE(host_device_over(make({})).value(), device);
  EXPECT_EQ(host_device({.total_bytes = 0}).error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(host_device_over(nullptr).error().kind, ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace headroom
