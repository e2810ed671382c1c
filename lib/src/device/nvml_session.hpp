// NVML between its start and its end, and the list of GPUs read through it.
//
// NVML counts starts and ends itself and is thread-safe, so a session is one start, and needs neither a lock nor a count of ours
// but one: how many are open, for the child of a fork.
#pragma once

#include <optional>
#include <vector>

#include <headroom/gpu_devices.hpp>

#include "device/nvml.hpp"

namespace headroom::device::nvml {

class Session {
public:
  /// `table` must outlive the session. A driver that finds no GPU is a session too: its list is empty.
  /// Errors: NVML's codes (driver); unsupported in a forked child (see usable_after_fork).
  [[nodiscard]] static Result<Session> open(Table const& table);
  Session(Session&& other) noexcept;
  Session& operator=(Session&& other) noexcept;
  ~Session();

  [[nodiscard]] Result<std::vector<GpuDevice>> devices() const;

private:
  Session(Table const& table, bool is_started) noexcept;
  void close() noexcept;

  Table const* table_;  // null once moved from
  bool is_started_;     // false: there is no GPU, hence nothing to end
};

/// False in a child of a process that had a session open when it forked: NVML's locks and descriptors are those of the parent, and a
/// call may never return.
[[nodiscard]] bool usable_after_fork() noexcept;

/// All GPUs. NVML must be started. Errors: of counting; of a driver that went away meanwhile. Others are told by GpuDevice::problem.
[[nodiscard]] Result<std::vector<GpuDevice>> read_devices(Table const& table);

}  // namespace headroom::device::nvml
