#include "gpu_metrics.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace headroom::exporter {
namespace {

using flight::LedgerSnapshot;

std::optional<std::int64_t> ordinal_of(std::string const& uuid, std::optional<std::int32_t> by_environment,
                                       std::span<LedgerSnapshot const> ledgers) {
  const auto in_books = std::ranges::find_if(
      ledgers, [&uuid](auto const& ledger) { return ledger.device_uuid == uuid && ledger.device_ordinal >= 0; });
  if (in_books != ledgers.end()) return in_books->device_ordinal;
  return by_environment ? std::optional<std::int64_t>{*by_environment} : std::nullopt;
}

void add_figures(Families& families, GpuMemory const& memory, Labels const& labels) {
  const auto add = [&](Metric metric, std::optional<std::uint64_t> const& figure) {
    if (figure) families.add(metric, labels, *figure);
  };
  add(Metric::device_total_bytes, memory.physical_total);
  add(Metric::device_driver_reserved_bytes, memory.driver_reserved);
  add(Metric::device_usable_bytes, memory.usable);
  add(Metric::device_free_bytes, memory.free);
}

}  // namespace

flight::LedgerSnapshot ToldFigures::without(flight::LedgerSnapshot ledger) const {
  const auto found = told_.find(ledger.device_uuid);
  if (found == told_.end()) return ledger;
  if (found->second.total) ledger.device_total.reset();
  if (found->second.free) ledger.device_free.reset();
  return ledger;
}

ToldFigures add_gpus(Families& families, std::span<GpuDevice const> gpus, VisibleDevices const& visible,
                     std::span<LedgerSnapshot const> ledgers, Labels const& labels) {
  ToldFigures told;
  const auto is_in_books = [ledgers](std::string const& uuid) {
    return std::ranges::any_of(ledgers, [&uuid](auto const& ledger) { return ledger.device_uuid == uuid; });
  };
  const auto add = [&](GpuMatch const& match) {
    auto const& uuid = uuid_of(gpus, match);
    auto const& memory = memory_of(gpus, match);
    const bool is_hidden = visible.complete && !visible.ordinal_of(match);
    if (uuid.empty() || (is_hidden && !is_in_books(uuid))) return;
    if (!told.add(uuid, {.total = memory.physical_total.has_value(), .free = memory.free.has_value()})) return;
    Labels device = labels;
    if (const auto ordinal = ordinal_of(uuid, visible.ordinal_of(match), ledgers)) {
      device = with_label(std::move(device), "device", std::to_string(*ordinal));
    }
    add_figures(families, memory, with_label(std::move(device), "uuid", uuid));
  };
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    add({.gpu = gpu, .mig_instance = {}});
    for (std::size_t instance = 0; instance < gpus[gpu].mig_instances.size(); ++instance) {
      add({.gpu = gpu, .mig_instance = instance});
    }
  }
  return told;
}

ToldFigures add_node_gpus(Families& families, std::span<GpuDevice const> gpus, Labels const& labels) {
  ToldFigures told;
  for (auto const& gpu : gpus) {
    const Labels device = with_label(labels, "device", std::to_string(gpu.index));
    const auto add = [&](std::string const& uuid, GpuMemory const& memory) {
      if (uuid.empty()) return;
      if (!told.add(uuid, {.total = memory.physical_total.has_value(), .free = memory.free.has_value()})) return;
      add_figures(families, memory, with_label(device, "uuid", uuid));
    };
    if (gpu.mig_instances.empty()) add(gpu.uuid, gpu.memory);
    for (auto const& instance : gpu.mig_instances) add(instance.uuid, instance.memory);
  }
  return told;
}

}  // namespace headroom::exporter
