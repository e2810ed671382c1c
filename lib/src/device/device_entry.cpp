#include "device/device_entry.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <headroom/flight_format.hpp>

#include "base/pci_address.hpp"
#include "base/utf8.hpp"
#include "flight/directory.hpp"

namespace headroom::device {
namespace {

struct Known {
  std::mutex mutex;
  std::map<std::tuple<std::uint32_t, std::uint64_t, std::string>, std::uint32_t> entries;  // by ordinal, payload and label
};

// Never destroyed: managers with static storage may be made and closed at any time.
Known& known() {
  static Known& instance = *new Known;
  return instance;
}

/// Name, tab, UUID. Half a UUID could be another device's: what does not fit whole beside a few letters of name is left out.
std::string label_of(std::string_view name, std::string_view uuid) {
  constexpr std::size_t kRoom = flight::kLabelBytes - 1, kLeastName = 16;
  const bool has_uuid = !uuid.empty() && uuid.size() + 1 + kLeastName <= kRoom;
  std::string label = valid_utf8(name, has_uuid ? kRoom - 1 - uuid.size() : kRoom);
  std::ranges::replace(label, '\t', ' ');
  if (has_uuid) label.append("\t").append(uuid);
  return label;
}

}  // namespace

std::uint32_t directory_entry(Device const& device) {
  const auto pci = parse_pci_address(device.pci_address());
  const auto kind = static_cast<std::uint8_t>(device.kind());
  const std::uint64_t payload = pci ? flight::DevicePayload::pack(kind, pci->code()) : flight::DevicePayload::pack(kind);
  const auto ordinal = static_cast<std::uint32_t>(device.ordinal());
  const std::string label = label_of(device.name(), device.uuid());
  std::tuple key{ordinal, payload, label};
  Known& all = known();
  const std::scoped_lock lock{all.mutex};
  if (const auto found = all.entries.find(key); found != all.entries.end()) return found->second;
  const std::uint32_t id = flight::add_entry(flight::EntryKind::device, 0, ordinal, payload, label);
  all.entries.emplace(std::move(key), id);
  return id;
}

}  // namespace headroom::device
