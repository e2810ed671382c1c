// Helpers for tests that replay small histories of their own.
#pragma once

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <headroom/host_resource.hpp>
#include <headroom/manager.hpp>
#include <headroom/replay.hpp>

#include "histories.hpp"

namespace headroom::test {

/// `records` without the header line.
[[nodiscard]] inline TraceHistory history_of(std::string const& records) {
  TempFolder const folder;
  auto history = TraceHistory::load(folder.write(std::string{kHeader} + records));
  if (!history) throw std::runtime_error{history.error().to_string()};
  return std::move(*history);
}

/// A manager of its own on a device that gives out addresses only.
[[nodiscard]] inline GpuMemoryManager manager_with(MemoryBudget budget, std::uint64_t device_bytes = std::uint64_t{1} << 40) {
  HostOptions options;
  options.total_bytes = device_bytes;
  options.touch_memory = false;
  auto device = host_device(options);
  if (!device) throw std::runtime_error{device.error().to_string()};
  auto manager = GpuMemoryManager::create(*device, budget);
  if (!manager) throw std::runtime_error{manager.error().to_string()};
  return std::move(*manager);
}

[[nodiscard]] inline ReplayResult replayed(TraceHistory const& history, GpuMemoryManager const& manager,
                                           ReplayOptions const& options = {}) {
  auto result = replay(history, manager, options);
  if (!result) throw std::runtime_error{result.error().to_string()};
  return std::move(*result);
}

}  // namespace headroom::test
