// What the CUDA runtime reports, found again among what NVML lists.
#include <array>

#include <gtest/gtest.h>

#include <headroom/gpu_devices.hpp>

#include "device/nvml_session.hpp"
#include "fake_nvml.hpp"

namespace headroom {
namespace {

using Bytes = std::array<std::uint8_t, 16>;
constexpr Bytes kBytes{0x89, 0x32, 0xF9, 0x37, 0xd7, 0x2c, 0x41, 0x06, 0xc1, 0x2f, 0x20, 0xbd, 0x9f, 0xae, 0xd9, 0xf6};

/// Three GPUs, the last of them partitioned.
[[nodiscard]] std::vector<GpuDevice> three() {
  test::FakeNvml fake{test::equal_gpus(3)};
  fake.gpus[0].uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
  test::partition(fake.gpus[2], 2);
  return device::nvml::read_devices(test::FakeNvml::table()).value();
}

TEST(GpuIdentity, is_written_in_the_words_of_all_outputs) {
  const auto identity = gpu_identity(3, kBytes, "0000:AF:00.0");
  EXPECT_EQ(identity.ordinal, 3);
  EXPECT_EQ(identity.uuid, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
  EXPECT_EQ(identity.pci_address, "0000:af:00.0");
}

TEST(GpuIdentity, what_the_runtime_does_not_know_stays_unknown) {
  const auto identity = gpu_identity(0, Bytes{}, "not an address");
  EXPECT_EQ(identity.uuid, "");
  EXPECT_EQ(identity.pci_address, "");
  EXPECT_EQ(gpu_identity(0, kBytes, "").pci_address, "");
}

TEST(FindGpu, the_uuid_decides) {
  const auto gpus = three();
  EXPECT_EQ(find_gpu(gpus, gpu_identity(0, kBytes, "")), (GpuMatch{0, {}}));
  EXPECT_EQ(find_gpu(gpus, {.ordinal = 0, .uuid = test::fake_uuid(1), .pci_address = ""}), (GpuMatch{1, {}}));
  EXPECT_EQ(find_gpu(gpus, {.ordinal = 0, .uuid = test::fake_uuid(7), .pci_address = ""}), std::nullopt);
}

TEST(FindGpu, an_address_that_contradicts_the_uuid_makes_it_unknown) {
  const auto gpus = three();
  EXPECT_EQ(find_gpu(gpus, gpu_identity(0, kBytes, "0000:08:00.0")), (GpuMatch{0, {}}));
  EXPECT_EQ(find_gpu(gpus, gpu_identity(0, kBytes, "0000:18:00.0")), std::nullopt);
}

TEST(FindGpu, the_address_decides_where_there_is_no_uuid) {
  const auto gpus = three();
  EXPECT_EQ(find_gpu(gpus, {.ordinal = 0, .uuid = "", .pci_address = "00000000:18:00.0"}), (GpuMatch{1, {}}));
  EXPECT_EQ(find_gpu(gpus, {.ordinal = 0, .uuid = "", .pci_address = "0000:28:00.0"}), std::nullopt)
      << "all instances of a partitioned GPU share its address";
  EXPECT_EQ(find_gpu(gpus, {.ordinal = 0, .uuid = "", .pci_address = "0000:99:00.0"}), std::nullopt);
  EXPECT_EQ(find_gpu(gpus, {}), std::nullopt);
}

TEST(FindGpu, two_candidates_are_none) {
  auto gpus = three();
  gpus[1].uuid = gpus[0].uuid;
  EXPECT_EQ(find_gpu(gpus, gpu_identity(0, kBytes, "")), std::nullopt);
  gpus[1].pci_address = gpus[0].pci_address;
  EXPECT_EQ(find_gpu(gpus, {.ordinal = 0, .uuid = "", .pci_address = gpus[0].pci_address}), std::nullopt);
}

TEST(FindGpu, an_instance_is_told_from_a_gpu_though_cuda_reports_bytes_only) {
  const auto gpus = three();
  // MIG-00000002-0002-5555-6666-777777777777
  const Bytes instance{0, 0, 0, 2, 0, 2, 0x55, 0x55, 0x66, 0x66, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77};
  const auto match = find_gpu(gpus, gpu_identity(0, instance, "0000:28:00.0"));
  ASSERT_EQ(match, (GpuMatch{2, 1}));
  EXPECT_EQ(uuid_of(gpus, *match), "MIG-00000002-0002-5555-6666-777777777777");
  EXPECT_EQ(memory_of(gpus, *match).physical_total, 20 * test::kGiB);
  EXPECT_EQ(uuid_of(gpus, GpuMatch{1, {}}), test::fake_uuid(1));
  EXPECT_EQ(memory_of(gpus, GpuMatch{1, {}}).physical_total, 80 * test::kGiB);
}

}  // namespace
}  // namespace headroom
