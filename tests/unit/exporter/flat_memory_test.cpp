// Scrapes leave nothing behind: whatever one takes from the heap is back when it is done.
#include "flat_memory.hpp"

#include <memory>
#include <vector>

#include <headroom/guard.hpp>
#include <headroom/host_resource.hpp>

#include "service.hpp"

namespace headroom::exporter {
namespace {

TEST(FlatMemory, what_is_forgotten_is_seen) {
  std::vector<std::unique_ptr<int>> forgotten;
  const auto blocks = test::host_blocks_held.load();
  const auto bytes = test::host_bytes_held.load();
  for (int i = 0; i < 2'000; ++i) forgotten.push_back(std::make_unique<int>(i));
  EXPECT_GE(test::host_blocks_held.load() - blocks, 2'000);
  EXPECT_GE(test::host_bytes_held.load() - bytes, 2'000 * std::int64_t{sizeof(int)});
}

TEST(FlatMemory, scrapes_of_a_program_leave_nothing_behind) {
  auto manager =
      GpuMemoryManager::create(host_device({.touch_memory = false}).value(), MemoryBudget::with_limit(1 << 20), "flat").value();
  const auto guard = MemoryGuardBuilder(manager).build().value();
  ASSERT_TRUE(guard.register_hook({.name = "cache", .callback = [](HookContext const&) { return 0U; }}));
  std::vector<TrackedBuffer<std::byte>> held;
  for (const char* tag : {"weights", "cache", "scratch"}) held.push_back(manager.alloc<std::byte>(1000, AllocTag{tag}).value());

  Service service{[]() -> Result<std::vector<GpuDevice>> { return std::vector<GpuDevice>(2); }};
  expect_nothing_is_left_behind([&](int number) {
    const auto reply = service.metrics({.accept = number % 2 == 0 ? "" : "application/openmetrics-text"});
    ASSERT_NE(reply.body.find("manager=\"flat\""), std::string::npos);
    // Figures move, and so do their digits.
    held.front() = manager.alloc<std::byte>(1 + static_cast<std::size_t>(number), AllocTag{"weights"}).value();
  });
  EXPECT_EQ(service.errors(), 0U);
}

}  // namespace
}  // namespace headroom::exporter
