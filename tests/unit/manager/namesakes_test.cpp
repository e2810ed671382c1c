// Of managers of one name on one device, one at a time has the bare name.
#include <memory>
#include <thread>
#include <vector>

#include "managers.hpp"

namespace headroom::test {
namespace {

std::unique_ptr<GpuMemoryManager> open(Device const& device, std::string_view name) {
  return std::make_unique<GpuMemoryManager>(GpuMemoryManager::create(device, MemoryBudget::unlimited(), name).value());
}
bool is_namesake(GpuMemoryManager const& manager) { return snapshot_of(manager).is_namesake; }

TEST(Namesakes, are_told_apart_from_their_opening_to_their_end) {
  const auto device = null_device().value();
  auto first = open(device, "twin");
  auto second = open(device, "twin");
  const auto other_name = open(device, "no twin");
  const auto other_device = open(host_device({.touch_memory = false, .ordinal = 5}).value(), "twin");
  EXPECT_FALSE(is_namesake(*first));
  EXPECT_TRUE(is_namesake(*second));
  EXPECT_FALSE(is_namesake(*other_name));
  EXPECT_FALSE(is_namesake(*other_device));
  first.reset();
  EXPECT_TRUE(is_namesake(*second)) << "it keeps what it is";
  const auto third = open(device, "twin");
  EXPECT_FALSE(is_namesake(*third)) << "nobody had the bare name";
  second.reset();
  const auto fourth = open(device, "twin");
  EXPECT_TRUE(is_namesake(*fourth));
  EXPECT_FALSE(is_namesake(*third));
}

TEST(Namesakes, of_one_that_is_closed_and_holds_bytes_are_some) {
  const auto device = null_device().value();
  auto first = open(device, "held");
  auto bytes = std::make_unique<TrackedBuffer<std::byte>>(first->alloc<std::byte>(100).value());
  first.reset();
  EXPECT_TRUE(is_namesake(*open(device, "held")));
  bytes.reset();
  EXPECT_FALSE(is_namesake(*open(device, "held")));
}

TEST(Namesakes, of_many_that_open_at_once_all_but_one_are) {
  const auto device = null_device().value();
  for (int round = 0; round < 20; ++round) {
    constexpr std::size_t kThreads = 6;
    std::vector<std::unique_ptr<GpuMemoryManager>> managers(kThreads);
    std::vector<std::thread> threads;
    for (auto& manager : managers) threads.emplace_back([&] { manager = open(device, "at once"); });
    for (auto& thread : threads) thread.join();
    std::size_t namesakes = 0;
    for (auto const& manager : managers) namesakes += std::size_t{is_namesake(*manager)};
    EXPECT_EQ(namesakes, kThreads - 1);
  }
}

}  // namespace
}  // namespace headroom::test
