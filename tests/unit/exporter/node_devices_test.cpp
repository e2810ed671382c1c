// Devices of a machine as a node exporter shows them: once each, and not less in use than what its processes hold.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "node_support.hpp"

namespace headroom::exporter {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

GpuDevice gpu(std::uint32_t index, std::string uuid, GpuMemory const& memory) {
  GpuDevice device;
  device.index = index;
  device.uuid = std::move(uuid);
  device.memory = memory;
  return device;
}

constexpr GpuMemory kMemory{.physical_total = 80 * kGiB, .driver_reserved = kGiB, .usable = 79 * kGiB, .free = 70 * kGiB};

/// A process with a manager of `gibibytes` below the account of the device that it calls 0, and that is GPU-b.
FakeProcess& start_on_device(FakeNode& node, std::uint64_t pid, std::uint64_t gibibytes) {
  auto& process = node.add("rank", pid);
  auto& file = process.file();
  file.put_name(1, flight::EntryKind::device, 0, 0, "Test GPU\tGPU-b");
  process.open(0, "pool");
  process.open(1, "device");
  file.ledger(0).parent_cell = 1 + 1;
  file.ledger(1).kind = 1;
  for (std::uint32_t cell : {0U, 1U}) {
    file.ledger(cell).device_id = 1;
    process.allocate(cell, 1, gibibytes * kGiB);
  }
  file.ledger(1).device_total = 79 * kGiB + 1;  // stored with 1 added
  file.ledger(1).device_free = 71 * kGiB + 1;
  EXPECT_EQ(node.arrive(process), NodeBooks::Arrival::taken);
  return process;
}

TEST(NodeDevices, bytes_of_processes_that_share_a_device_add_up_to_no_more_than_it_has_in_use) {
  FakeNode node;
  node.gpus = {gpu(0, "GPU-a", kMemory), gpu(1, "GPU-b", kMemory)};
  start_on_device(node, 1, 3);
  start_on_device(node, 2, 5);
  const auto families = node.scrape();
  double held = 0;
  for (auto const& sample : samples_of(families, "allocated_bytes", {{"uuid", "GPU-b"}})) held += sample.gauge.value;
  EXPECT_EQ(held, 8.0 * kGiB) << "an account is no manager: nothing is counted twice";
  const Wanted device{{"uuid", "GPU-b"}, {"device", "1"}, {"process", "headroom"}};
  const double used =
      value_of(families, "device_usable_bytes", device).value_or(0) - value_of(families, "device_free_bytes", device).value_or(0);
  EXPECT_EQ(used, 9.0 * kGiB);
  EXPECT_LE(held, used);
}

TEST(NodeDevices, each_is_shown_once_however_many_processes_use_it) {
  FakeNode node;
  node.gpus = {gpu(0, "GPU-a", kMemory), gpu(1, "GPU-b", kMemory)};
  start_on_device(node, 1, 3);
  start_on_device(node, 2, 5);
  const auto families = node.scrape();
  for (char const* name : {"device_total_bytes", "device_driver_reserved_bytes", "device_usable_bytes", "device_free_bytes"}) {
    EXPECT_THAT(samples_of(families, name), SizeIs(2)) << name;
    EXPECT_THAT(samples_of(families, name, {{"process", "headroom"}}), SizeIs(2)) << name;
  }
}

TEST(NodeDevices, programs_speak_where_the_driver_says_nothing) {
  FakeNode node;
  start_on_device(node, 1, 3);
  EXPECT_EQ(value_of(node.scrape(), "device_total_bytes", {{"process", "rank"}, {"device", "0"}}), 79.0 * kGiB);
  node.gpus = {gpu(1, "GPU-b", {.physical_total = 80 * kGiB, .driver_reserved = {}, .usable = {}, .free = {}})};
  const auto families = node.scrape();
  EXPECT_EQ(value_of(families, "device_total_bytes", {{"process", "headroom"}}), 80.0 * kGiB);
  EXPECT_EQ(value_of(families, "device_free_bytes", {{"process", "rank"}}), 71.0 * kGiB);
  EXPECT_THAT(samples_of(families, "device_usable_bytes"), IsEmpty()) << "unknown is absent";
}

TEST(NodeDevices, of_a_partitioned_gpu_the_instances_are_shown) {
  FakeNode node;
  node.gpus = {gpu(3, "GPU-a", kMemory)};
  for (const char* uuid : {"MIG-1", "MIG-2", ""}) {
    node.gpus[0].mig_instances.push_back(
        {.uuid = uuid,
         .gpu_instance = 1,
         .compute_instance = 0,
         .memory = {.physical_total = 20 * kGiB, .driver_reserved = {}, .usable = {}, .free = {}}});
  }
  const auto families = node.scrape();
  EXPECT_THAT(samples_of(families, "device_total_bytes"), SizeIs(2)) << "one has no identity";
  EXPECT_EQ(value_of(families, "device_total_bytes", {{"uuid", "MIG-2"}, {"device", "3"}}), 20.0 * kGiB);
}

TEST(NodeDevices, labels_are_the_programs_and_the_devices_and_no_clusters) {
  FakeNode node;
  node.gpus = {gpu(1, "GPU-b", kMemory)};
  start_on_device(node, 1, 3).kill();
  start_on_device(node, 2, 5);
  const auto families = node.scrape();
  std::size_t samples = 0;
  for (auto const& family : families) {
    for (auto const& sample : family.metric) {
      ++samples;
      for (auto const& label : sample.label) {
        // Who attaches these himself is told apart from us only by honor_labels and exported_….
        for (const char* taken : {"pod", "namespace", "container", "node", "instance", "job"}) {
          EXPECT_NE(label.name, taken) << family.name;
        }
        EXPECT_FALSE(label.name.starts_with("exported_") || label.name.starts_with("__")) << family.name << ": " << label.name;
      }
    }
  }
  EXPECT_GT(samples, 100U);
}

}  // namespace
}  // namespace headroom::exporter
