// Where a device sits on the PCI bus. One spelling for all outputs: `0000:65:00.0`, as the kernel writes it in /sys/bus/pci.
//
// CUDA, NVML and the kernel disagree on the case and on the length of the domain, so addresses are compared as numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headroom {

struct PciAddress {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0;
  std::uint8_t device = 0;    // 0…31
  std::uint8_t function = 0;  // 0…7

  friend auto operator<=>(PciAddress const&, PciAddress const&) = default;  // the order of the bus

  /// domain (32, bits 16–47) · bus (8, bits 8–15) · device (5, bits 3–7) · function (3, bits 0–2)
  [[nodiscard]] std::uint64_t code() const noexcept {
    return (std::uint64_t{domain} << 16U) | (std::uint64_t{bus} << 8U) | (std::uint64_t{device} << 3U) | function;
  }
  /// The inverse for the low 48 bits of any number.
  [[nodiscard]] static PciAddress from_code(std::uint64_t code) noexcept {
    return {.domain = static_cast<std::uint32_t>(code >> 16U),
            .bus = static_cast<std::uint8_t>(code >> 8U),
            .device = static_cast<std::uint8_t>((code >> 3U) & 0x1FU),
            .function = static_cast<std::uint8_t>(code & 0x7U)};
  }
};

/// Lower case, four digits of domain or as many as it needs (up to eight).
[[nodiscard]] std::string to_string(PciAddress const& address);

/// `[domain:]bus:device[.function]` in hexadecimal of either case, as CUDA (`0000:65:00.0`), NVML (`00000000:65:00.0`) and the kernel
/// write it; the domain and the function are 0 where they are left out. Nothing when the text is no address.
[[nodiscard]] std::optional<PciAddress> parse_pci_address(std::string_view text) noexcept;

}  // namespace headroom
