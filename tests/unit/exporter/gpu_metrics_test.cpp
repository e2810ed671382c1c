// The memory of GPUs beside the books of a process: one identity, no figure twice, nothing that is unknown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families_support.hpp"
#include "flight_builder.hpp"
#include "metrics.hpp"

namespace headroom::exporter {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

[[nodiscard]] GpuDevice gpu(std::uint32_t index, std::string uuid, GpuMemory const& memory) {
  GpuDevice device;
  device.index = index;
  device.uuid = std::move(uuid);
  device.memory = memory;
  device.mig = MigMode::disabled;
  return device;
}

constexpr GpuMemory kWhole{.physical_total = 80 * kGiB, .driver_reserved = kGiB, .usable = 79 * kGiB, .free = 30 * kGiB};

/// A process whose manager is on the device that CUDA calls 5 and the driver "GPU-b".
class GpuMetrics : public testing::Test {
protected:
  GpuMetrics() {
    file_.put_name(1, flight::EntryKind::device, 0, 5, "Test GPU\tGPU-b");
    auto& pool = file_.open_ledger(3, 2, "pool");
    pool.device_id = 1;
    pool.device_total = 79 * kGiB + 1;  // stored with 1 added
    pool.device_free = 33 * kGiB + 1;
    pool.device_outside = 7 * kGiB + 1;
  }
  [[nodiscard]] FamilyList families() const {
    CollectOptions options;
    options.gpus = gpus_;
    options.visible = visible_;
    return collect(file_.view(), options);
  }
  [[nodiscard]] std::optional<double> value(std::string_view name, Wanted const& wanted = {}) const {
    return value_of(families(), name, wanted);
  }

  flight::FlightBuilder file_;
  std::vector<GpuDevice> gpus_{gpu(0, "GPU-a", kWhole), gpu(1, "GPU-b", kWhole)};
  VisibleDevices visible_{
      .devices = {{.gpu = 0, .mig_instance = {}}, {.gpu = 1, .mig_instance = {}}}, .complete = true, .note = {}};
};

TEST_F(GpuMetrics, four_figures_by_index_and_uuid) {
  const Wanted first{{"device", "0"}, {"uuid", "GPU-a"}};
  EXPECT_EQ(value("device_total_bytes", first), 85'899'345'920.0);
  EXPECT_EQ(value("device_driver_reserved_bytes", first), 1'073'741'824.0);
  EXPECT_EQ(value("device_usable_bytes", first), 84'825'604'096.0);
  EXPECT_EQ(value("device_free_bytes", first), 32'212'254'720.0);
  EXPECT_EQ(samples_of(families(), "device_total_bytes", first).at(0).label.size(), 5U) << "process, pid, run, device, uuid";
}

TEST_F(GpuMetrics, a_device_of_the_books_is_told_once_and_by_its_own_ordinal) {
  const auto all = families();
  EXPECT_EQ(samples_of(all, "device_total_bytes").size(), 2U);
  EXPECT_EQ(samples_of(all, "device_free_bytes").size(), 2U);
  const Wanted second{{"device", "5"}, {"uuid", "GPU-b"}};
  EXPECT_EQ(value_of(all, "device_total_bytes", second), 80.0 * kGiB) << "physical, and not what the program's resource said";
  EXPECT_EQ(value_of(all, "device_free_bytes", second), 30.0 * kGiB) << "of now, and not as last seen";
  EXPECT_EQ(value_of(all, "device_used_outside_bytes", second), 7.0 * kGiB) << "which only the books know";
}

TEST_F(GpuMetrics, the_books_speak_where_the_driver_does_not) {
  gpus_[1].memory = {.physical_total = 80 * kGiB, .driver_reserved = {}, .usable = {}, .free = {}};
  const Wanted second{{"uuid", "GPU-b"}};
  EXPECT_EQ(value("device_total_bytes", second), 80.0 * kGiB);
  EXPECT_EQ(value("device_free_bytes", second), 33.0 * kGiB);
  EXPECT_EQ(value("device_usable_bytes", second), std::nullopt);
  EXPECT_EQ(value("device_driver_reserved_bytes", second), std::nullopt) << "unknown is absent";
  gpus_.clear();
  visible_ = {};
  EXPECT_EQ(value("device_total_bytes"), 79.0 * kGiB);
}

TEST_F(GpuMetrics, devices_that_the_process_cannot_see_are_none_of_its_own) {
  visible_.devices = {{.gpu = 1, .mig_instance = {}}};
  EXPECT_TRUE(samples_of(families(), "device_total_bytes", {{"uuid", "GPU-a"}}).empty());
  EXPECT_EQ(value("device_usable_bytes", {{"uuid", "GPU-b"}, {"device", "5"}}), 79.0 * kGiB);
  visible_.devices = {{.gpu = 0, .mig_instance = {}}};
  EXPECT_EQ(value("device_usable_bytes", {{"uuid", "GPU-b"}, {"device", "5"}}), 79.0 * kGiB)
      << "it uses what the environment says is hidden: the environment was changed";
}

TEST_F(GpuMetrics, an_ordinal_that_is_unknown_is_no_label) {
  visible_ = {.devices = {}, .complete = false, .note = "unknown"};
  const auto first = samples_of(families(), "device_total_bytes", {{"uuid", "GPU-a"}});
  ASSERT_EQ(first.size(), 1U);
  EXPECT_FALSE(std::ranges::any_of(first[0].label, [](auto const& label) { return label.name == "device"; }));
}

TEST_F(GpuMetrics, a_device_without_identity_is_not_served) {
  gpus_[0].uuid.clear();
  EXPECT_EQ(samples_of(families(), "device_total_bytes").size(), 1U);
}

TEST_F(GpuMetrics, two_devices_of_one_uuid_are_one_series) {
  gpus_[0].uuid = "GPU-b";
  EXPECT_EQ(samples_of(families(), "device_total_bytes").size(), 1U);
}

TEST_F(GpuMetrics, instances_are_devices_of_their_own) {
  gpus_[0].mig = MigMode::enabled;
  gpus_[0].mig_instances.push_back({.uuid = "MIG-c",
                                    .gpu_instance = 1,
                                    .compute_instance = 0,
                                    .memory = {.physical_total = kGiB, .driver_reserved = {}, .usable = {}, .free = {}}});
  visible_.devices = {{.gpu = 0, .mig_instance = 0}};
  EXPECT_EQ(value("device_total_bytes", {{"uuid", "MIG-c"}, {"device", "0"}}), 1.0 * kGiB);
  EXPECT_TRUE(samples_of(families(), "device_total_bytes", {{"uuid", "GPU-a"}}).empty()) << "the process sees a part of it only";
}

TEST_F(GpuMetrics, promtool_has_nothing_to_say) {
  if (!has_promtool()) GTEST_SKIP() << "promtool is not installed";
  EXPECT_EQ(promtool_says(text_of(families())), "");
}

}  // namespace
}  // namespace headroom::exporter
