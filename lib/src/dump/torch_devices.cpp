#include "dump/torch_devices.hpp"

#include <algorithm>

namespace headroom::dump {

void TorchDevices::add(TimelineLedger const& ledger) {
  auto const is_same = [&](Device const& device) {
    return device.ordinal == ledger.device_ordinal && device.uuid == ledger.device_uuid && device.name == ledger.device_name;
  };
  auto device = std::ranges::find_if(devices_, is_same);
  if (device == devices_.end()) {
    devices_.push_back(
        {.place = kNone, .name = ledger.device_name, .uuid = ledger.device_uuid, .ordinal = ledger.device_ordinal});
    device = devices_.end() - 1;
    dealt_ = false;
  }
  if (!ledger.is_device_account) device->managers.push_back(ledger.name);
  of_ledger_.resize(std::max<std::size_t>(of_ledger_.size(), ledger.id + std::size_t{1}), kNone);
  of_ledger_[ledger.id] = static_cast<std::uint32_t>(device - devices_.begin());
}

bool TorchDevices::is_taken(std::uint32_t place) const noexcept {
  return place < first_free_ || std::ranges::any_of(devices_, [&](Device const& device) { return device.place == place; });
}

void TorchDevices::deal() {
  if (dealt_) return;
  for (bool const with_uuid : {true, false}) {
    for (auto& device : devices_) {
      if (device.place != kNone || device.ordinal < 0 || device.ordinal > kMostOrdinal || device.uuid.empty() == with_uuid)
        continue;
      auto const place = static_cast<std::uint32_t>(device.ordinal);
      if (!is_taken(place)) device.place = place;
    }
  }
  for (auto const& device : devices_) {
    if (device.place != kNone) count_ = std::max(count_, device.place + 1);
  }
  for (auto& device : devices_) {
    if (device.place == kNone) {
      device.place = std::max(count_, first_free_);
      count_ = device.place + 1;
    }
  }
  dealt_ = true;
}

std::uint32_t TorchDevices::place_of(std::uint32_t ledger) {
  deal();
  return devices_[of_ledger_[ledger]].place;
}

std::optional<std::uint32_t> TorchDevices::place_of_ordinal(std::int64_t ordinal) {
  deal();
  auto const device = std::ranges::find(devices_, ordinal, &Device::ordinal);
  return device == devices_.end() ? std::nullopt : std::optional{device->place};
}

std::uint32_t TorchDevices::first() {
  deal();
  auto const least = std::ranges::min_element(devices_, {}, &Device::place);
  return least == devices_.end() ? 0 : least->place;
}

}  // namespace headroom::dump
