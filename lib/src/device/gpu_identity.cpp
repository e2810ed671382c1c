// One device in several tongues: what the CUDA runtime says, against what NVML says.
#include <algorithm>
#include <array>
#include <cstdio>

#include <headroom/gpu_devices.hpp>

#include "base/pci_address.hpp"

namespace headroom {
namespace {

/// The digits behind `GPU-` or `MIG-`: CUDA reports the same 16 bytes for both kinds.
std::string_view digits_of(std::string_view uuid) noexcept {
  for (std::string_view const prefix : {"GPU-", "MIG-"}) {
    if (uuid.starts_with(prefix)) return uuid.substr(prefix.size());
  }
  return uuid;
}

bool is_same_uuid(std::string_view known, std::string_view asked) noexcept {
  return !known.empty() && digits_of(known) == digits_of(asked);
}

/// A second candidate makes the answer nothing, for good.
class OnlyOne {
public:
  void add(GpuMatch match) noexcept {
    ++count_;
    match_ = match;
  }
  [[nodiscard]] std::optional<GpuMatch> get() const noexcept { return count_ == 1 ? std::optional{match_} : std::nullopt; }

private:
  GpuMatch match_;
  std::size_t count_ = 0;
};

std::optional<GpuMatch> find_by_uuid(std::span<GpuDevice const> gpus, std::string_view uuid) {
  OnlyOne found;
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    if (is_same_uuid(gpus[gpu].uuid, uuid)) found.add({.gpu = gpu, .mig_instance = {}});
    for (std::size_t instance = 0; instance < gpus[gpu].mig_instances.size(); ++instance) {
      if (is_same_uuid(gpus[gpu].mig_instances[instance].uuid, uuid)) found.add({.gpu = gpu, .mig_instance = instance});
    }
  }
  return found.get();
}

std::optional<GpuMatch> find_by_address(std::span<GpuDevice const> gpus, PciAddress const& address) {
  OnlyOne found;
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    if (parse_pci_address(gpus[gpu].pci_address) == address) found.add({.gpu = gpu, .mig_instance = {}});
  }
  auto const match = found.get();
  if (!match) return std::nullopt;
  // All instances of a GPU share its address, and CUDA may mean any of them.
  auto const mig = gpus[match->gpu].mig;
  return mig == MigMode::disabled || mig == MigMode::unsupported ? match : std::nullopt;
}

}  // namespace

DeviceIdentity gpu_identity(std::int32_t ordinal, std::span<const std::uint8_t, 16> uuid, std::string_view pci_bus_id) {
  DeviceIdentity identity{.ordinal = ordinal, .uuid = {}, .pci_address = {}};
  if (std::ranges::any_of(uuid, [](std::uint8_t byte) { return byte != 0; })) {
    identity.uuid = "GPU-";
    constexpr std::array<std::size_t, 4> kDashesBefore = {4, 6, 8, 10};
    for (std::size_t i = 0; i < uuid.size(); ++i) {
      if (std::ranges::find(kDashesBefore, i) != kDashesBefore.end()) identity.uuid += '-';
      std::array<char, 3> digits{};
      std::snprintf(digits.data(), digits.size(), "%02x", unsigned{uuid[i]});
      identity.uuid += digits.data();
    }
  }
  if (auto const address = parse_pci_address(pci_bus_id)) identity.pci_address = to_string(*address);
  return identity;
}

std::optional<GpuMatch> find_gpu(std::span<GpuDevice const> gpus, DeviceIdentity const& identity) {
  auto const address = parse_pci_address(identity.pci_address);
  if (identity.uuid.empty()) return address ? find_by_address(gpus, *address) : std::nullopt;
  auto const match = find_by_uuid(gpus, identity.uuid);
  if (!match || !address) return match;
  auto const listed = parse_pci_address(gpus[match->gpu].pci_address);
  return !listed || *listed == *address ? match : std::nullopt;
}

std::string const& uuid_of(std::span<GpuDevice const> gpus, GpuMatch const& match) {
  auto const& gpu = gpus[match.gpu];
  return match.mig_instance ? gpu.mig_instances[*match.mig_instance].uuid : gpu.uuid;
}

GpuMemory const& memory_of(std::span<GpuDevice const> gpus, GpuMatch const& match) {
  auto const& gpu = gpus[match.gpu];
  return match.mig_instance ? gpu.mig_instances[*match.mig_instance].memory : gpu.memory;
}

}  // namespace headroom
