// The list of GPUs as NVML gives it. A figure that cannot be read is absent, and its reason is written down; only a driver that does
// not answer at all is an error.
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/pci_address.hpp"
#include "base/utf8.hpp"
#include "device/nvml_session.hpp"

namespace headroom::device::nvml {
namespace {

/// Why one thing of a device could not be read, among the others of that device.
void note(GpuDevice& device, std::string_view what, Code code) {
  if (!device.problem.empty()) device.problem += "; ";
  device.problem += std::string{what} + ": " + meaning(code) + " (NVML code " + std::to_string(code) + ")";
}

/// True for answers that mean "not here" and hence need no word: an old driver, or a device without the thing.
bool is_silent(Code code) noexcept {
  return code == kSuccess || code == kNotSupported || code == kFunctionNotFound || code == kArgumentVersionMismatch;
}

using TextCall = Code (*)(DeviceHandle, char*, unsigned int);

struct Text {
  Code code = kFunctionNotFound;
  std::string text;
};

Text read_text(TextCall call, DeviceHandle device) {
  if (call == nullptr) return {};
  std::array<char, kTextBytes + 1> buffer{};  // one more than NVML is told, so that the text ends whatever it writes
  auto const code = call(device, buffer.data(), kTextBytes);
  return {code, code == kSuccess ? valid_utf8(buffer.data()) : std::string{}};
}

/// Figures that cannot be are unknown: a reserve or a rest above the whole.
GpuMemory figures(std::uint64_t total, std::uint64_t free, std::optional<std::uint64_t> reserved) {
  GpuMemory memory;
  memory.physical_total = total;
  if (free <= total) memory.free = free;
  if (reserved && *reserved <= total) {
    memory.driver_reserved = reserved;
    memory.usable = total - *reserved;
  }
  return memory;
}

Code read_memory(Table const& table, DeviceHandle device, GpuMemory& memory) {
  if (table.memory_v2 != nullptr) {
    MemoryV2 answer{};
    answer.version = kMemoryV2Version;
    auto const code = table.memory_v2(device, &answer);
    if (code == kSuccess) {
      memory = figures(answer.total, answer.free, answer.reserved);
      return code;
    }
    // A driver that does not know the newer call may know the older one; of anything else the older one would say the same.
    if (!is_silent(code) && code != kInvalidArgument) return code;
  }
  if (table.memory == nullptr) return kFunctionNotFound;
  Memory answer{};
  auto const code = table.memory(device, &answer);
  if (code == kSuccess) memory = figures(answer.total, answer.free, std::nullopt);
  return code;
}

std::optional<std::uint32_t> read_number(Code (*call)(DeviceHandle, unsigned int*), DeviceHandle device) {
  unsigned int number = 0;
  if (call == nullptr || call(device, &number) != kSuccess) return std::nullopt;
  return number;
}

MigMode read_mig_mode(Table const& table, GpuDevice& device, DeviceHandle handle) {
  // A driver without the function is older than partitions.
  if (table.mig_mode == nullptr) return MigMode::unsupported;
  unsigned int current = 0, pending = 0;
  auto const code = table.mig_mode(handle, &current, &pending);
  if (code == kSuccess) return current == 0 ? MigMode::disabled : MigMode::enabled;
  if (is_silent(code)) return MigMode::unsupported;
  note(device, "MIG mode", code);
  return MigMode::unknown;
}

void read_mig_instances(Table const& table, GpuDevice& device, DeviceHandle handle) {
  device.mig_instances_complete = false;
  if (table.mig_count == nullptr || table.mig_handle == nullptr) return note(device, "MIG instances", kFunctionNotFound);
  unsigned int count = 0;
  if (auto const code = table.mig_count(handle, &count); code != kSuccess) return note(device, "MIG instances", code);
  if (count > kMostDevices) return note(device, "MIG instances", kUnknown);
  device.mig_instances_complete = true;
  for (unsigned int index = 0; index < count; ++index) {
    DeviceHandle instance_handle = nullptr;
    auto const code = table.mig_handle(handle, index, &instance_handle);
    if (code == kNotFound) continue;  // places that no instance takes
    if (code != kSuccess) {
      device.mig_instances_complete = false;
      note(device, "MIG instance " + std::to_string(index), code);
      continue;
    }
    MigInstance instance;
    auto uuid = read_text(table.uuid, instance_handle);
    if (uuid.text.empty()) {
      device.mig_instances_complete = false;  // it is there, but nobody can tell which
      note(device, "UUID of MIG instance " + std::to_string(index), uuid.code);
    }
    instance.uuid = std::move(uuid.text);
    instance.gpu_instance = read_number(table.gpu_instance, instance_handle);
    instance.compute_instance = read_number(table.compute_instance, instance_handle);
    static_cast<void>(read_memory(table, instance_handle, instance.memory));
    device.mig_instances.push_back(std::move(instance));
  }
}

void read_pci_address(Table const& table, GpuDevice& device, DeviceHandle handle) {
  if (table.pci_info == nullptr) return;
  PciInfo info{};
  auto const code = table.pci_info(handle, &info);
  if (code != kSuccess) return note(device, "PCI address", code);
  info.bus_id[sizeof info.bus_id - 1] = '\0';
  if (auto const address = parse_pci_address(std::string_view{info.bus_id})) device.pci_address = to_string(*address);
}

/// The code of a driver that is gone, else success.
Code read_device(Table const& table, GpuDevice& device) {
  DeviceHandle handle = nullptr;
  if (auto const code = table.device_handle(device.index, &handle); code != kSuccess) {
    device.mig_instances_complete = false;
    note(device, "device", code);
    return code;
  }
  auto uuid = read_text(table.uuid, handle);
  if (uuid.code != kSuccess) note(device, "UUID", uuid.code);
  device.uuid = std::move(uuid.text);
  device.name = read_text(table.name, handle).text;
  read_pci_address(table, device, handle);
  auto const memory = read_memory(table, handle, device.memory);
  if (!is_silent(memory)) note(device, "memory", memory);
  device.mig = read_mig_mode(table, device, handle);
  if (device.mig == MigMode::enabled) read_mig_instances(table, device, handle);
  if (device.mig == MigMode::unknown) device.mig_instances_complete = false;
  return uuid.code;
}

}  // namespace

Result<std::vector<GpuDevice>> read_devices(Table const& table) {
  unsigned int count = 0;
  auto const counted = table.device_count(&count);
  if (counted == kNotFound || counted == kGpuNotFound)
    count = 0;
  else if (counted != kSuccess)
    return failure(counted, "counting the GPUs");
  if (count > kMostDevices) {
    return fail(ErrorKind::driver, Layer::driver,
                "NVML counts " + std::to_string(count) + " GPUs, expected at most " + std::to_string(kMostDevices));
  }
  std::vector<GpuDevice> devices;
  for (unsigned int index = 0; index < count; ++index) {
    GpuDevice device;
    device.index = index;
    auto const code = read_device(table, device);
    if (code == kUninitialized || code == kDriverNotLoaded) return failure(code, "reading GPU " + std::to_string(index));
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace headroom::device::nvml
