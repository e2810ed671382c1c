// headroom: the command line of `headroom replay`.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <headroom/budget.hpp>
#include <headroom/cuda_resource.hpp>
#include <headroom/error.hpp>
#include <headroom/exporter.hpp>
#include <headroom/replay.hpp>

#include "command/replay_guard.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
}

namespace headroom::command {

/// As given; see ReplayPlan for what it means.
struct ReplayArguments {
  std::string trace;
  std::string budget = "unlimited", device = "host";
  std::string speed = "max", loop = "1", order = "file", bind = "warn";
  std::optional<std::string> allocator, device_total, stretch, stop_after, hold, seconds, listen, tag, trace_device;
  std::vector<std::string> hooks;
  std::optional<std::string> policy;
  bool keep = false, json = false;
};

struct ReplayPlan {
  /// Absent: the host's stand-in, of device_total_bytes.
  std::optional<std::int32_t> cuda_ordinal;
  CudaAllocator cuda_allocator = CudaAllocator::async;
  std::uint64_t device_total_bytes = 0;  ///< of the host's stand-in
  ReplayOptions options;
  std::optional<ReplayTags> tags;             ///< absent: what the history recorded, else size
  std::optional<std::uint32_t> trace_device;  ///< which device of the history
  std::chrono::nanoseconds hold{0};
  std::optional<std::chrono::nanoseconds> seconds;
  BindPolicy bind = BindPolicy::warn;
  std::vector<HookPlan> hooks;
  std::optional<OomPolicy> policy;  ///< with hooks or a policy requests go through a guard
};

/// Adds the options to `app`, which fills `arguments` when it parses.
void add_replay_options(CLI::App& app, ReplayArguments& arguments);

/// What the arguments mean, all but the budget, which is checked as far as it can be. Touches no device. Errors name the option, the
/// text and what was expected.
[[nodiscard]] Result<ReplayPlan> plan_replay(ReplayArguments const& arguments);

/// What --budget means on a device with that much memory: a percentage is of it. Errors: as plan_replay.
[[nodiscard]] Result<MemoryBudget> plan_budget(ReplayArguments const& arguments, std::optional<std::uint64_t> device_total);

}  // namespace headroom::command
