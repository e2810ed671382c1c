// headroom: the GPUs of this machine, without CUDA.
// Layer: device
//
// What is there, who it is (UUID and PCI address, the identity that all outputs share), and how its memory is divided. It comes
// from NVML, the driver's management library, which is opened at run time and never linked: the same program runs where there is
// no driver, and is told so. No CUDA context is ever created (one costs hundreds of MiB of the memory that it would report).
//
// Use gpu_devices() for one look. Hold a GpuSession while you look again and again: the driver then stays open in between, which
// saves the start of NVML (seconds on machines without persistence mode). visible_devices.hpp says which of these a CUDA program sees.
//
// Errors, all of kind `driver` and layer `driver`, tell by `device_code`, NVML's own, what is missing:
//   12 no library (no driver installed, or not inside this container)    9 the driver is not loaded    4 no permission
//   13 the library lacks a function that is needed, named in the message (a driver older than 2018)
//   18 library and kernel module are of different versions               15 a GPU has fallen off the bus, …
// A driver without any device is no error, but an empty list. An error of one device or figure spoils nothing else: the figure is
// absent and `problem` says why.
//
// A call can hang for as long as a driver in trouble pleases: never call it on a thread that must answer (the exporter's GpuSampler
// bounds the wait). Fork: a child of a process that had NVML open at the fork is refused (`unsupported`); close the session first, or
// exec. Thread safety: everything may be called from any thread at any time; no lock is held over a call into the driver.
// Cost: some milliseconds for each GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/device.hpp>
#include <headroom/error.hpp>

namespace headroom {

/// Four separate figures in bytes, as the driver gives them; what it does not give is absent.
/// Where only the older call answers, reserved and usable are unknown. free + what is allocated = usable.
struct GpuMemory {
  std::optional<std::uint64_t> physical_total;   ///< all of it
  std::optional<std::uint64_t> driver_reserved;  ///< kept by driver and firmware, never for programs
  std::optional<std::uint64_t> usable;           ///< physical total less driver reserved
  std::optional<std::uint64_t> free;             ///< allocated by nobody now
};

/// One compute instance of a partitioned GPU: what a CUDA program sees as its device.
struct MigInstance {
  std::string uuid;                               ///< `MIG-…`; empty = unknown
  std::optional<std::uint32_t> gpu_instance;      ///< as in `MIG-GPU-…/gi/ci`
  std::optional<std::uint32_t> compute_instance;  ///< likewise
  GpuMemory memory;
};

enum class MigMode : std::uint8_t { unknown, unsupported, disabled, enabled };
[[nodiscard]] std::string_view to_string(MigMode mode) noexcept;

/// A physical GPU.
struct GpuDevice {
  std::uint32_t index = 0;  ///< NVML's, as nvidia-smi shows it. It is not CUDA's ordinal
  std::string uuid;         ///< `GPU-…`; empty = unknown
  std::string pci_address;  ///< `0000:65:00.0`; empty = unknown
  std::string name;         ///< empty = unknown
  GpuMemory memory;
  MigMode mig = MigMode::unknown;
  std::vector<MigInstance> mig_instances;
  bool mig_instances_complete = true;  ///< false: there may be instances that could not be read
  std::string problem;                 ///< what could not be read and why; empty when all could
};

/// All physical GPUs, by NVML's index, whatever CUDA_VISIBLE_DEVICES says.
[[nodiscard]] Result<std::vector<GpuDevice>> gpu_devices();

/// Keeps NVML open.
class GpuSession {
public:
  /// Errors: as above.
  [[nodiscard]] static Result<GpuSession> open();
  GpuSession(GpuSession&& other) noexcept;
  GpuSession& operator=(GpuSession&& other) noexcept;
  ~GpuSession();

  /// As gpu_devices(). After an error the session should be closed and opened again: a driver may have been replaced under it.
  [[nodiscard]] Result<std::vector<GpuDevice>> devices() const;

private:
  struct State;
  explicit GpuSession(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// The identity of a device as the CUDA runtime reports it, in the words of all outputs: `uuid` is cudaDeviceProp::uuid (or what
/// cuDeviceGetUuid_v2 says), `pci_bus_id` the text of cudaDeviceGetPCIBusId, empty if unknown. A UUID of zeros and a text that is no
/// address are unknown, and left empty. Where a context exists, this wins over anything concluded from the environment.
/// An instance's UUID looks like a GPU's here: find_gpu() tells them apart. Calls no driver.
[[nodiscard]] DeviceIdentity gpu_identity(std::int32_t ordinal, std::span<const std::uint8_t, 16> uuid,
                                          std::string_view pci_bus_id);

/// A device in a list of GPUs.
struct GpuMatch {
  std::size_t gpu = 0;                      ///< position in the list
  std::optional<std::size_t> mig_instance;  ///< position among the GPU's instances; absent: the whole GPU
  friend bool operator==(GpuMatch const&, GpuMatch const&) = default;
};

/// Which of these `identity` is. The UUID decides, be it a GPU's or an instance's; without one, the PCI address does, for a GPU that
/// is not partitioned. Nothing when it is not in the list, when it could be several, or when UUID and PCI address name different
/// devices: no answer is better than the wrong card.
[[nodiscard]] std::optional<GpuMatch> find_gpu(std::span<GpuDevice const> gpus, DeviceIdentity const& identity);

/// UUID and memory of what was matched. `match` must be of this list.
[[nodiscard]] std::string const& uuid_of(std::span<GpuDevice const> gpus, GpuMatch const& match);
[[nodiscard]] GpuMemory const& memory_of(std::span<GpuDevice const> gpus, GpuMatch const& match);

}  // namespace headroom
