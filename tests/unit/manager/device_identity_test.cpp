// One identity for all outputs: what a device was made with is what the flight file says of its managers and accounts.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/flight_reader.hpp>
#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>

namespace headroom {
namespace {

constexpr char kUuid[] = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";

[[nodiscard]] Result<Device> device(std::string name, DeviceIdentity identity) {
  return Device::custom(std::move(name), host_device().value().shared_resource(), std::move(identity), DeviceKind::cuda);
}

/// What the file says of the manager `name`.
[[nodiscard]] flight::LedgerSnapshot in_file(std::string const& name) {
  for (auto const& ledger : flight::FlightView::of_this_process()->ledgers()) {
    if (ledger.name == name) return ledger;
  }
  ADD_FAILURE() << "no ledger " << name;
  return {};
}

TEST(DeviceIdentity, is_the_same_in_the_program_and_in_its_file) {
  const auto gpu = device("H100", {.ordinal = 2, .uuid = kUuid, .pci_address = "00000000:AF:00.0"}).value();
  EXPECT_EQ(gpu.pci_address(), "0000:af:00.0");
  EXPECT_EQ(gpu.uuid(), kUuid);
  EXPECT_EQ(gpu.ordinal(), 2);
  const auto manager = GpuMemoryManager::create(gpu, MemoryBudget::unlimited(), "identified").value();
  const auto ledger = in_file("identified");
  EXPECT_EQ(ledger.device_name, "H100");
  EXPECT_EQ(ledger.device_ordinal, 2);
  EXPECT_EQ(ledger.device_uuid, kUuid);
  EXPECT_EQ(ledger.device_pci_address, "0000:af:00.0");
}

TEST(DeviceIdentity, what_is_unknown_stays_so) {
  const auto gpu = device("nobody", {.ordinal = 1, .uuid = "", .pci_address = ""}).value();
  const auto manager = GpuMemoryManager::create(gpu, MemoryBudget::unlimited(), "unidentified").value();
  const auto ledger = in_file("unidentified");
  EXPECT_EQ(ledger.device_uuid, "");
  EXPECT_EQ(ledger.device_pci_address, "");
  EXPECT_EQ(gpu.pci_address(), "");
}

TEST(DeviceIdentity, an_address_without_a_uuid_is_told_and_the_first_slot_of_all_is_no_unknown) {
  const auto gpu = device("placed", {.ordinal = 0, .uuid = "", .pci_address = "0:0:0.0"}).value();
  const auto manager = GpuMemoryManager::create(gpu, MemoryBudget::unlimited(), "placed").value();
  EXPECT_EQ(in_file("placed").device_pci_address, "0000:00:00.0");
}

TEST(DeviceIdentity, a_long_name_is_cut_and_a_uuid_never) {
  const auto gpu = device(std::string(200, 'n'), {.ordinal = 0, .uuid = kUuid, .pci_address = ""}).value();
  const auto manager = GpuMemoryManager::create(gpu, MemoryBudget::unlimited(), "long name").value();
  const auto ledger = in_file("long name");
  EXPECT_EQ(ledger.device_uuid, kUuid);
  EXPECT_EQ(ledger.device_name, std::string(54, 'n')) << "95 bytes of label, less a tab and 40 of UUID";
}

TEST(DeviceIdentity, a_uuid_that_does_not_fit_is_left_out_rather_than_cut) {
  const auto gpu = device("strange", {.ordinal = 0, .uuid = std::string(90, 'u'), .pci_address = ""}).value();
  const auto manager = GpuMemoryManager::create(gpu, MemoryBudget::unlimited(), "strange").value();
  EXPECT_EQ(in_file("strange").device_uuid, "");
  EXPECT_EQ(in_file("strange").device_name, "strange");
}

TEST(DeviceIdentity, devices_that_differ_in_address_only_are_two) {
  const auto one = device("twin", {.ordinal = 0, .uuid = "", .pci_address = "0000:01:00.0"}).value();
  const auto two = device("twin", {.ordinal = 0, .uuid = "", .pci_address = "0000:02:00.0"}).value();
  const auto first = GpuMemoryManager::create(one, MemoryBudget::unlimited(), "twin one").value();
  const auto second = GpuMemoryManager::create(two, MemoryBudget::unlimited(), "twin two").value();
  EXPECT_EQ(in_file("twin one").device_pci_address, "0000:01:00.0");
  EXPECT_EQ(in_file("twin two").device_pci_address, "0000:02:00.0");
}

TEST(DeviceIdentity, what_is_no_address_is_refused_by_name) {
  const auto gpu = device("bad", {.ordinal = 0, .uuid = "", .pci_address = "slot 3"});
  ASSERT_FALSE(gpu);
  EXPECT_EQ(gpu.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(gpu.error().message, testing::HasSubstr("'slot 3', expected one such as 0000:65:00.0"));
  const auto without = Device::custom("none", nullptr, DeviceIdentity{}, DeviceKind::cuda);
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().kind, ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace headroom
