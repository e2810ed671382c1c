// A scrape of a real manager: the figures are those of the manager, and promtool has nothing to say.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/exporter.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>

#include "../../unit/exporter/families_support.hpp"
#include "exporters.hpp"
#include "http_client.hpp"

namespace headroom {
namespace {

using testing::ContainsRegex;

TEST(Scrape, shows_a_manager_exactly) {
  auto exporter = test::start_anywhere();
  auto manager = GpuMemoryManager::create(host_device().value(), MemoryBudget::with_limit(1000), "scraped").value();
  auto weights = manager.alloc<char>(600, AllocTag{"we\"ights"}).value();
  EXPECT_FALSE(manager.alloc<char>(401));
  {
    auto gone = manager.alloc<char>(100).value();
  }

  const auto text = test::get(exporter.port(), "/metrics").body;
  const auto sample = [](std::string const& name, std::string const& labels, std::string const& value) {
    return ContainsRegex("\nheadroom_" + name + "\\{[^\n]*manager=\"scraped\"" + labels + "[^\n]*\\} " + value + "\n");
  };
  EXPECT_THAT(text, sample("allocated_bytes", "", "600"));
  EXPECT_THAT(text, sample("budget_bytes", "", "1000"));
  EXPECT_THAT(text, sample("remaining_bytes", "", "400"));
  EXPECT_THAT(text, sample("peak_bytes", "", "700"));
  EXPECT_THAT(text, sample("live_allocations", "", "1"));
  EXPECT_THAT(text, sample("allocations_total", "", "2"));
  EXPECT_THAT(text, sample("frees_total", "", "1"));
  EXPECT_THAT(text, sample("allocation_failures_total", ",reason=\"over_budget\",layer=\"manager\"", "1"));
  EXPECT_THAT(text, sample("tag_allocated_bytes", ",tag=\"we..ights\"", "600"));
  EXPECT_THAT(text, sample("allocation_size_bytes_count", "", "2"));
  EXPECT_THAT(text, sample("allocation_size_bytes_sum", "", "700"));
  EXPECT_THAT(test::get(exporter.port(), "/").body, ContainsRegex("scraped +[^\n]*600 B +1000 B +700 B +none"));
  EXPECT_GE(exporter::count_samples(text), 50U);
  if (!exporter::has_promtool()) GTEST_SKIP() << "promtool is not installed";
  EXPECT_EQ(exporter::promtool_says(text), "");
}

}  // namespace
}  // namespace headroom
