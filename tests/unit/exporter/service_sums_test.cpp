// What the exporter of a process says of its managers in all: it never falls, whichever of them closes.
#include "service.hpp"

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <headroom/headroom.hpp>

namespace headroom::exporter {
namespace {

/// Of all series of a metric, and of what has none any more.
std::uint64_t whole(std::string const& text, std::string const& metric) {
  std::uint64_t sum = 0;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("headroom_" + metric + '{') || line.starts_with("headroom_exited_" + metric + '{')) {
      sum += std::stoull(line.substr(line.rfind(' ') + 1));
    }
  }
  return sum;
}

TEST(ServiceSums, never_fall_when_managers_close_and_others_take_their_places) {
  Service service;
  auto device = host_device().value();
  auto const scrape = [&] { return service.metrics().body; };
  auto big = GpuMemoryManager::create(device, MemoryBudget::with_limit(1 << 20), "sums-big").value();
  auto const work = [](GpuMemoryManager& manager, int count) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(manager.alloc<std::byte>(64).has_value());
    ASSERT_FALSE(manager.alloc<std::byte>(2 << 20).has_value());
  };
  work(big, 1'000);
  auto const begin = scrape();
  auto const allocations = whole(begin, "allocations_total");
  auto const failures = whole(begin, "allocation_failures_total");
  for (std::uint64_t round = 1; round <= 5; ++round) {
    {
      auto small = GpuMemoryManager::create(device, MemoryBudget::with_limit(1 << 20), "sums-small").value();
      work(small, 10);
      auto const beside = scrape();
      EXPECT_EQ(whole(beside, "allocations_total"), allocations + 10 * round);
      EXPECT_NE(beside.find("manager=\"sums-small\""), std::string::npos);
    }
    auto const after = scrape();
    EXPECT_EQ(whole(after, "allocations_total"), allocations + 10 * round);
    EXPECT_EQ(whole(after, "allocation_failures_total"), failures + round);
    EXPECT_EQ(after.find("manager=\"sums-small\""), std::string::npos) << "its series end with it";
  }
  // One that nobody saw.
  {
    auto unseen = GpuMemoryManager::create(device, MemoryBudget::with_limit(1 << 20), "sums-unseen").value();
    work(unseen, 7);
  }
  EXPECT_EQ(whole(scrape(), "allocations_total"), allocations + 57);
  EXPECT_EQ(whole(scrape(), "allocation_failures_total"), failures + 6);
}

}  // namespace
}  // namespace headroom::exporter
