#include "base/pci_address.hpp"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(PciAddress, is_read_as_cuda_nvml_and_the_kernel_write_it) {
  const PciAddress expected{.domain = 0, .bus = 0x65, .device = 0, .function = 0};
  for (char const* text : {"0000:65:00.0", "00000000:65:00.0", "65:00.0", "65:00", "0:65:0", "0000:65:00"}) {
    EXPECT_EQ(parse_pci_address(text), expected) << text;
  }
  const PciAddress other{.domain = 0xC0DE, .bus = 0xAF, .device = 0x1F, .function = 7};
  EXPECT_EQ(parse_pci_address("C0DE:AF:1F.7"), other);
  EXPECT_EQ(parse_pci_address("c0de:af:1f.7"), other);
}

TEST(PciAddress, is_written_in_one_way) {
  EXPECT_EQ(to_string(*parse_pci_address("00000000:0A:01.0")), "0000:0a:01.0");
  EXPECT_EQ(to_string(*parse_pci_address("3:e:2.1")), "0003:0e:02.1") << "all parts but the function are padded";
  EXPECT_EQ(to_string(*parse_pci_address("00010002:0A:01.0")), "10002:0a:01.0") << "a domain above ffff keeps its digits";
}

TEST(PciAddress, what_is_no_address_is_nothing) {
  for (char const* text : {"", "65", ":", "::", "0000:65:00.8", "0000:65:20.0", "0000:100:00.0", "0000:65:00.", "0000:65:00.00",
                           "123456789:65:00.0", "0000:65:00.0 ", " 0000:65:00.0", "-1:65:00.0", "0000:6g:00.0", "0:0:0:0",
                           "0x0:1:1", "GPU-65:00.0", "+0:65:00.0", "0000.65.00.0"}) {
    EXPECT_EQ(parse_pci_address(text), std::nullopt) << text;
  }
}

TEST(PciAddress, its_code_holds_all_of_it) {
  const PciAddress largest{.domain = 0xFFFFFFFF, .bus = 0xFF, .device = 0x1F, .function = 7};
  EXPECT_EQ(largest.code(), (std::uint64_t{1} << 48U) - 1);
  EXPECT_EQ(PciAddress::from_code(largest.code()), largest);
  const PciAddress some{.domain = 1, .bus = 0x65, .device = 2, .function = 3};
  EXPECT_EQ(some.code(), 0x1'6513U);
  EXPECT_EQ(PciAddress::from_code(0x1'6513), some);
}

TEST(PciAddress, is_ordered_as_on_the_bus) {
  EXPECT_LT(*parse_pci_address("0000:0a:00.0"), *parse_pci_address("0000:65:00.0"));
  EXPECT_LT(*parse_pci_address("0000:ff:1f.7"), *parse_pci_address("0001:00:00.0"));
}

}  // namespace
}  // namespace headroom
