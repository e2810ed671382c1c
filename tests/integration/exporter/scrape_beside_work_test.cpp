// Scrapes beside and within what the program does: no lock in common, figures of this moment, and none that a stalled reader could freeze.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <headroom/exporter.hpp>
#include <headroom/guard.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>

#include "exporters.hpp"
#include "http_client.hpp"
#include "scale.hpp"
#include "service.hpp"

namespace headroom {
namespace {

/// The value of the only series of that name and manager; −1 where there is none.
double value_in(std::string const& text, std::string const& name, std::string const& manager) {
  for (std::size_t at = 0; (at = text.find("\nheadroom_" + name + "{", at)) != std::string::npos; ++at) {
    const auto end = text.find('\n', at + 1);
    const auto line = text.substr(at + 1, end - at - 1);
    if (line.find(manager.empty() ? "{" : "manager=\"" + manager + "\"") == std::string::npos) continue;
    return std::strtod(line.c_str() + line.rfind(' '), nullptr);
  }
  return -1;
}

GpuMemoryManager manager_of(std::uint64_t bytes, std::string_view name) {
  return GpuMemoryManager::create(host_device().value(), MemoryBudget::with_limit(bytes), name).value();
}

TEST(Scrape, from_within_a_hook_is_answered) {
  auto exporter = test::start_anywhere();
  auto manager = manager_of(1000, "hooked");
  auto guard = MemoryGuardBuilder(manager).build().value();
  std::optional<TrackedBuffer<std::byte>> cache = manager.alloc<std::byte>(600).value();
  std::string seen;
  const OomHook hook{.name = "scrape", .callback = [&](HookContext const&) -> std::uint64_t {
                       seen = test::get(exporter.port(), "/metrics").body;
                       cache.reset();
                       return 600;
                     }};
  ASSERT_TRUE(guard.register_hook(hook).has_value());
  // A request in the middle, on this thread; the scrape is made by the exporter's, which must not wait for it.
  auto block = guard.safe_alloc_with_hooks<std::byte>(900);
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(value_in(seen, "allocated_bytes", "hooked"), 600) << "before the hook gave up its cache";
  EXPECT_EQ(value_in(test::get(exporter.port(), "/metrics").body, "allocated_bytes", "hooked"), 900);
}

TEST(Scrape, beside_allocating_threads_is_whole_every_time) {
  constexpr std::size_t kThreads = 4;
  const auto rounds = test::scaled(20'000);
  auto exporter = test::start_anywhere();
  auto manager = manager_of(std::uint64_t{1} << 30U, "busy");
  std::atomic<std::size_t> working{kThreads};  // threads that are not done; relaxed: a hint when to stop
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < kThreads; ++i) {
    workers.emplace_back([&, i] {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        auto block = manager.alloc<std::byte>(256 * (1 + (round + i) % 7));
        EXPECT_TRUE(block.has_value());
      }
      working.fetch_sub(1, std::memory_order_relaxed);
    });
  }
  std::vector<double> times;
  double allocations = 0, frees = 0, peak = 0;
  while (working.load(std::memory_order_relaxed) > 0 || times.empty()) {
    const auto begin = std::chrono::steady_clock::now();
    const auto text = test::get(exporter.port(), "/metrics").body;
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    const double allocated_now = value_in(text, "allocated_bytes", "busy"), peak_now = value_in(text, "peak_bytes", "busy");
    EXPECT_GE(allocated_now, 0);
    EXPECT_LE(allocated_now, peak_now);
    EXPECT_LE(peak_now, 256.0 * 7 * kThreads);
    EXPECT_GE(value_in(text, "allocations_total", "busy"), allocations);
    EXPECT_GE(value_in(text, "frees_total", "busy"), frees);
    EXPECT_GE(peak_now, peak);
    allocations = value_in(text, "allocations_total", "busy");
    frees = value_in(text, "frees_total", "busy");
    peak = peak_now;
  }
  for (auto& worker : workers) worker.join();
  const auto text = test::get(exporter.port(), "/metrics").body;
  EXPECT_EQ(value_in(text, "allocations_total", "busy"), static_cast<double>(kThreads * rounds));
  EXPECT_EQ(value_in(text, "frees_total", "busy"), static_cast<double>(kThreads * rounds));
  EXPECT_EQ(value_in(text, "allocated_bytes", "busy"), 0);
  EXPECT_EQ(value_in(text, "exporter_errors_total", ""), 0);
  std::ranges::sort(times);
  const auto events = std::uint64_t{2} * kThreads * rounds;
  std::printf("%zu scrapes beside %" PRIu64 " events: median %.2f ms, 99th percentile %.2f ms\n", times.size(), events,
              times[times.size() / 2], times[times.size() * 99 / 100]);
}

TEST(Scrape, is_of_now_though_nobody_follows_the_events) {
  // A service whose tick never comes: what follows the events stands still for good.
  exporter::Service service{[]() -> Result<std::vector<GpuDevice>> { return fail(ErrorKind::driver, Layer::driver, "none"); }};
  auto manager = manager_of(1000, "live");
  auto first = manager.alloc<std::byte>(300).value();
  auto text = service.metrics().body;
  EXPECT_EQ(value_in(text, "allocated_bytes", "live"), 300);
  const double recorded = value_in(text, "events_recorded_total", "");
  const double active = value_in(text, "last_activity_timestamp_seconds", "");
  EXPECT_GT(active, 0) << "since when nothing happened is a series of its own";
  auto second = manager.alloc<std::byte>(400).value();
  EXPECT_FALSE(manager.alloc<std::byte>(400));
  text = service.metrics().body;
  EXPECT_EQ(value_in(text, "allocated_bytes", "live"), 700);
  EXPECT_EQ(value_in(text, "remaining_bytes", "live"), 300);
  EXPECT_GT(value_in(text, "events_recorded_total", ""), recorded);
  EXPECT_GE(value_in(text, "last_activity_timestamp_seconds", ""), active);
  EXPECT_EQ(value_in(text, "events_lost_total", ""), 0) << "not read yet is not lost";
}

}  // namespace
}  // namespace headroom
