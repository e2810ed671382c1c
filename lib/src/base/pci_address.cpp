#include "base/pci_address.hpp"

#include <array>
#include <charconv>
#include <cstdio>

namespace headroom {
namespace {

constexpr std::size_t kDomainDigits = 8, kPartDigits = 2;
constexpr std::uint32_t kLargestBus = 0xFF, kLargestDevice = 0x1F, kLargestFunction = 0x7;

/// The whole of `text` as a hexadecimal number of at most `digits` digits and of at most `largest`.
std::optional<std::uint32_t> number_in(std::string_view text, std::size_t digits, std::uint32_t largest) noexcept {
  std::uint32_t value = 0;
  auto const* const end = text.data() + text.size();
  auto const [stopped, error] = std::from_chars(text.data(), end, value, 16);
  if (text.empty() || text.size() > digits || error != std::errc{} || stopped != end || value > largest) return std::nullopt;
  return value;
}

/// What stands behind the last `separator`, which is cut off; nothing when there is none.
std::optional<std::string_view> take_last(std::string_view& text, char separator) noexcept {
  auto const at = text.rfind(separator);
  if (at == std::string_view::npos) return std::nullopt;
  auto const last = text.substr(at + 1);
  text = text.substr(0, at);
  return last;
}

}  // namespace

std::string to_string(PciAddress const& address) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", address.domain, unsigned{address.bus}, unsigned{address.device},
                unsigned{address.function});
  return text.data();
}

std::optional<PciAddress> parse_pci_address(std::string_view text) noexcept {
  auto const function_text = take_last(text, '.');
  auto const function = number_in(function_text.value_or("0"), 1, kLargestFunction);
  auto const device_text = take_last(text, ':');
  if (!function || !device_text) return std::nullopt;
  auto const device = number_in(*device_text, kPartDigits, kLargestDevice);
  auto const before_bus = take_last(text, ':');
  // Without a second colon, what is left is the bus, and the domain is 0.
  auto const bus = number_in(before_bus.value_or(text), kPartDigits, kLargestBus);
  auto const domain = number_in(before_bus ? text : "0", kDomainDigits, 0xFFFF'FFFFU);
  if (!device || !bus || !domain) return std::nullopt;
  return PciAddress{.domain = *domain,
                    .bus = static_cast<std::uint8_t>(*bus),
                    .device = static_cast<std::uint8_t>(*device),
                    .function = static_cast<std::uint8_t>(*function)};
}

}  // namespace headroom
