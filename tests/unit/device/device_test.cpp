// Devices, the defaults of a minimal resource, and the null resource.
#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/null_resource.hpp>

namespace headroom {
namespace {

class MinimalResource final : public DeviceResource {
public:
  Result<Block> allocate(AllocRequest const&) override { return fail(ErrorKind::driver, Layer::driver, "always fails"); }
  Result<void> deallocate(Block const&) override { return {}; }
  [[nodiscard]] std::uint64_t bytes_outstanding() const noexcept override { return 0; }
  [[nodiscard]] std::string_view name() const noexcept override { return "minimal"; }
};

TEST(DeviceResource, defaults_refuse_loudly_or_say_that_they_do_not_know) {
  MinimalResource resource;
  auto const fill = resource.fill_zero({}, 0, 0, {});
  ASSERT_FALSE(fill);
  EXPECT_EQ(fill.error().kind, ErrorKind::unsupported);
  EXPECT_THAT(fill.error().message, ::testing::HasSubstr("'minimal'"));
  EXPECT_EQ(resource.copy_in({}, 0, {}, {}).error().kind, ErrorKind::unsupported);
  EXPECT_EQ(resource.budget_snapshot().has_value(), false);
  EXPECT_EQ(resource.reap_pending(ReapMode::synchronize), 0);
  EXPECT_EQ(resource.memory_info().total, std::nullopt);
  EXPECT_EQ(resource.memory_info().free, std::nullopt);
  EXPECT_FALSE(resource.tracks_uses());
  EXPECT_FALSE(resource.host_accessible());
}

TEST(Device, keeps_its_identity_and_its_resource) {
  auto const resource = std::make_shared<MinimalResource>();
  auto const device = Device::custom("gpu", resource, 2, "GPU-1234", DeviceKind::cuda).value();
  EXPECT_EQ(device.name(), "gpu");
  EXPECT_EQ(device.ordinal(), 2);
  EXPECT_EQ(device.uuid(), "GPU-1234");
  EXPECT_EQ(device.kind(), DeviceKind::cuda);
  EXPECT_EQ(&device.resource(), resource.get());
  EXPECT_EQ(device.shared_resource(), resource);
  EXPECT_EQ(device.memory_info().total, std::nullopt);
}

TEST(Device, is_equal_to_its_copies_only) {
  auto const resource = std::make_shared<MinimalResource>();
  auto const device = Device::custom("a", resource).value();
  auto const copy = device;
  EXPECT_EQ(copy, device);
  EXPECT_FALSE(Device::custom("a", resource).value() == device) << "the same resource is not the same device object";
}

TEST(Device, needs_a_resource) {
  auto const device = Device::custom("nothing", nullptr);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(device.error().message, ::testing::HasSubstr("nothing"));
}

TEST(NullResource, addresses_are_distinct_over_threads_and_resources) {
  std::vector<std::vector<void*>> seen(4);
  std::vector<std::thread> threads;
  for (auto& mine : seen) {
    threads.emplace_back([&mine] {
      NullResource resource;
      for (int round = 0; round < 10000; ++round) mine.push_back(resource.allocate({.bytes = 1}).value().pointer);
    });
  }
  for (auto& thread : threads) thread.join();
  std::set<void*> all;
  for (auto const& mine : seen) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), 40000);
}

TEST(NullResource, alignment_has_an_end) {
  auto const device = null_device().value();
  EXPECT_EQ(device.name(), "null");
  auto const block = device.resource().allocate({.bytes = 1, .alignment = std::uint64_t{1} << 30}).value();
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(block.pointer) % (std::uint64_t{1} << 30), 0);
  EXPECT_EQ(device.resource().allocate({.bytes = 1, .alignment = std::uint64_t{1} << 31}).error().kind,
            ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace headroom
