// headroom: the memory of GPUs, as NVML has it, as samples. Pure functions.
//
// A device is the same one here and in the books when the UUIDs are equal. The books' ordinal is then shown, since it comes from the
// CUDA runtime; for other devices it is what the environment says, and left out when that is unknown.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include <headroom/flight_reader.hpp>
#include <headroom/visible_devices.hpp>

#include "families.hpp"

namespace headroom::exporter {

/// What has been said of which device, by UUID.
class ToldFigures {
public:
  struct Figures {
    bool total = false, free = false;
  };
  /// Two devices of one UUID would be two equal series, which Prometheus resolves by dropping one: false when it was told before.
  bool add(std::string const& uuid, Figures figures) { return told_.emplace(uuid, figures).second; }
  /// The ledger without the figures of its device that have been told already.
  [[nodiscard]] flight::LedgerSnapshot without(flight::LedgerSnapshot ledger) const;

private:
  std::map<std::string, Figures> told_;
};

/// The four figures of each GPU, and of each instance of a partitioned one, that the process may see; what is unknown is left out, and
/// so is a device without a UUID. `labels` name the process.
[[nodiscard]] ToldFigures add_gpus(Families& families, std::span<GpuDevice const> gpus, VisibleDevices const& visible,
                                   std::span<flight::LedgerSnapshot const> ledgers, Labels const& labels);

/// The same once a machine, for whoever serves all its processes: `device` is the driver's own index, and of a partitioned GPU its
/// instances are shown instead of itself, so that a sum over devices is what the machine has (but for compute instances of one GPU
/// instance: they share its memory, and each shows it). `labels` name the exporter.
[[nodiscard]] ToldFigures add_node_gpus(Families& families, std::span<GpuDevice const> gpus, Labels const& labels);

}  // namespace headroom::exporter
