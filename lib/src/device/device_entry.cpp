#include "device/device_entry.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "flight/directory.hpp"

namespace headroom::device {
namespace {

struct Known {
  std::mutex mutex;
  std::map<std::string, std::uint32_t> entries;  // by ordinal and label
};

// Never destroyed: managers with static storage may be made and closed at any time.
Known& known() {
  static Known& instance = *new Known;
  return instance;
}

}  // namespace

std::uint32_t directory_entry(std::int32_t ordinal, std::string_view name, std::string_view uuid, DeviceKind kind) {
  std::string label{name};
  std::ranges::replace(label, '\t', ' ');
  if (!uuid.empty()) label.append("\t").append(uuid);
  const std::string key = std::to_string(ordinal) + "\t" + label;
  Known& all = known();
  const std::scoped_lock lock{all.mutex};
  if (const auto found = all.entries.find(key); found != all.entries.end()) return found->second;
  const std::uint32_t id = flight::add_entry(flight::EntryKind::device, 0, static_cast<std::uint32_t>(ordinal),
                                             static_cast<std::uint64_t>(kind), label);
  all.entries.emplace(key, id);
  return id;
}

std::uint32_t directory_entry(Device const& device) {
  return directory_entry(device.ordinal(), device.name(), device.uuid(), device.kind());
}

}  // namespace headroom::device
