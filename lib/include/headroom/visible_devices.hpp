// headroom: which physical GPUs a CUDA program sees, and under which ordinals, concluded without CUDA.
// Layer: device
//
// CUDA numbers devices for each process, by CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. This works the numbers out from the two
// variables and NVML's list. Use it where no context exists and none may be made: exporters, listings. Where one exists, ask the
// runtime instead (gpu_identity, find_gpu): a program may have changed its environment since CUDA read it.
//
// The rule is: unknown stays unknown, never the wrong card. What NVIDIA's documents and the driver's well-known behaviour decide is
// resolved; everything else gives no device and a note that says why:
//   0,2           ordinals by CUDA_DEVICE_ORDER. PCI_BUS_ID is exact. The default, FASTEST_FIRST, is a heuristic of the driver: on a
//                 machine of different cards it is unknown which index is which; equal cards keep the order of the bus
//   GPU-8932f937  a UUID, or enough of its beginning to fit one GPU alone
//   MIG-…         an instance, by its UUID or as MIG-GPU-<uuid>/<GPU instance>/<compute instance>
//   (unset)       all devices           (empty)   none
//   -1, no-card   an entry that is invalid hides itself and all that follow, with the devices before it visible: an index out of
//                 range, a negative one, no entry between two commas, a word, a UUID that fits no GPU or several
//   1,1           a device named twice: none at all. The CUDA guide says nothing of it; the driver then reports no device
//                 (cudaErrorNoDevice), and PyTorch, which works out the same list, relies on it. Of instances: unknown
//   " 1"          blanks around an index are skipped
//   0,GPU-8932…   mixed forms: documented nowhere. What stands before the change is visible if nothing after it can undo that;
//                 whether the rest is, is unknown
//   1x, 007, +1   how the driver reads such a number is documented nowhere: unknown
// Partitions: CUDA shows a process one compute instance, and no GPU beside it (a limit that "may be relaxed", says the MIG guide), so
// of several MIG entries the first is resolved and of the others it is unknown whether they are visible. Naming a partitioned GPU
// as a whole means one of its instances: known if it has exactly one.
//
// Thread safety: pure functions but for VisibilityEnvironment::of_this_process. Cost: microseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <headroom/gpu_devices.hpp>

namespace headroom {

/// The two variables; absent = unset, which is not the same as empty.
struct VisibilityEnvironment {
  std::optional<std::string> visible_devices;  ///< CUDA_VISIBLE_DEVICES
  std::optional<std::string> device_order;     ///< CUDA_DEVICE_ORDER
  /// As getenv; nobody may be changing the environment meanwhile.
  [[nodiscard]] static VisibilityEnvironment of_this_process();
};

struct VisibleDevices {
  std::vector<GpuMatch> devices;  ///< what is known: CUDA's ordinal is the place in here
  bool complete = true;           ///< false: there may be further ordinals, of which nothing is known
  std::string note;               ///< why not, or which entry was ignored; for people. Empty when there is nothing to say

  /// The device behind one of CUDA's ordinals; nothing when there is none, or when it is unknown.
  [[nodiscard]] std::optional<GpuMatch> at(std::int32_t ordinal) const noexcept;
  /// The ordinal of a device; nothing when it has none, or when it is unknown.
  [[nodiscard]] std::optional<std::int32_t> ordinal_of(GpuMatch const& device) const noexcept;
  /// True when the program certainly sees neither this GPU nor an instance of it.
  [[nodiscard]] bool hides(std::size_t gpu) const noexcept;
};

/// `gpus` must be the list of all devices, as gpu_devices() gives it.
[[nodiscard]] VisibleDevices resolve_visible_devices(VisibilityEnvironment const& environment, std::span<GpuDevice const> gpus);

}  // namespace headroom
