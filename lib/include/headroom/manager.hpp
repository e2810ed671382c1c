// headroom: the budget-enforcing memory manager.
// Layer: manager
//
// Use a GpuMemoryManager wherever a program would call cudaMalloc: it keeps the program inside a budget, knows who holds what, and
// publishes every outcome in the flight file. Claim first, admit after, release last: bytes are claimed before the driver is
// asked, counted once it delivered, and come back to the budget only when the free was accepted.
//
// With a DeviceRuntime (with_runtime, with_runtime_overlay) allocations go through the runtime's stack, so that budgets of the whole
// device hold too, and raw blocks and launches across streams become possible. Without one they go to the device's own resource.
//
// Ownership: a manager is a cheap handle; copies share one core, which lives as long as the process. Buffers keep what they need.
// Thread safety: every member may be called from any thread. No lock is held over a call into the device or into your code.
// Cost: about 100 ns for an allocation and its free beyond the device's own (`./run bench`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/budget.hpp>
#include <headroom/buffer.hpp>
#include <headroom/device.hpp>
#include <headroom/error.hpp>
#include <headroom/pressure.hpp>
#include <headroom/reservation.hpp>
#include <headroom/runtime.hpp>
#include <headroom/tag.hpp>

namespace headroom {

namespace manager {
class DoorCore;
struct RouteAccess;
}  // namespace manager

/// The result of recomputing the books from the live table.
struct AuditReport {
  std::uint64_t claimed = 0, allocated = 0, peak = 0, unspent = 0;
  std::uint64_t live_bytes = 0;        ///< slots live, freeing and failed, and untracked bytes
  std::uint64_t live_allocations = 0;  ///< … how many
  std::uint64_t failed_free_bytes = 0;
  std::uint64_t tag_bytes = 0;        ///< sum over all tags
  std::vector<std::string> problems;  ///< one sentence each; empty when the books balance
  /// True when live = allocated = claimed − unspent = Σ tags and peak ≥ allocated. Exact when no other thread is at work.
  [[nodiscard]] bool clean() const noexcept { return problems.empty(); }
  [[nodiscard]] std::string to_string() const;
};

/// One consistent reading of the ledger's words, and the counters.
struct ManagerStats {
  std::uint64_t claimed = 0, allocated = 0, peak = 0;
  std::optional<std::uint64_t> limit;
  std::uint64_t live_allocations = 0;
  std::uint64_t allocations = 0, frees = 0, allocation_bytes = 0, deallocation_bytes = 0;
  std::uint64_t refusals = 0;           ///< requests that failed, all kinds and layers
  std::uint64_t observed_refusals = 0;  ///< what an observing budget would have refused
  std::uint64_t pressure_transitions = 0;
};

class GpuMemoryManager {
public:
  /// A manager of `device` with a ledger of its own. `name` is its label in every output; empty = "manager-N".
  /// A limit above the device's total works as that total. Errors: unsupported (in a forked child of a process that used headroom).
  [[nodiscard]] static Result<GpuMemoryManager> create(Device device, MemoryBudget budget, std::string_view name = {});

  /// The same, with all allocations through `runtime`: its stack's budgets hold beside this one.
  /// Errors: as create; invalid_argument (the runtime is of another device object).
  [[nodiscard]] static Result<GpuMemoryManager> with_runtime(Device device, MemoryBudget budget, DeviceRuntime runtime,
                                                             std::string_view name = {});

  /// Another way in to the same manager: allocations through `runtime`, on the very budget, books and peak of this one. It brings
  /// no budget of its own; together they never exceed the limit. The same runtime gives the same overlay.
  /// Errors: invalid_argument (the runtime is of another ordinal), wrong_owner (of another device object), unsupported (it does not
  /// track uses, or this is a forked child). An error leaves no trace.
  [[nodiscard]] Result<GpuMemoryManager> with_runtime_overlay(DeviceRuntime runtime) const;

  /// The runtime that allocations go through; null without one. Valid as long as this handle.
  [[nodiscard]] DeviceRuntime const* runtime() const noexcept;

  GpuMemoryManager(GpuMemoryManager const& other) noexcept;
  GpuMemoryManager(GpuMemoryManager&& other) noexcept;
  GpuMemoryManager& operator=(GpuMemoryManager other) noexcept;
  ~GpuMemoryManager();

  /// Uninitialised device memory for `count` elements. Zero elements succeed, hold no memory and charge nothing.
  /// Errors: over_budget (figures and holders), device_out_of_memory, overflow, invalid_argument, driver.
  template <DeviceRepr T>
  [[nodiscard]] Result<TrackedBuffer<T>> alloc(std::size_t count, AllocTag tag = {},
                                               std::source_location const& site = std::source_location::current()) {
    return alloc<T>(count, AllocOptions{.tag = tag, .stream = {}, .alignment = kMinimumAlignment}, site);
  }
  template <DeviceRepr T>
  [[nodiscard]] Result<TrackedBuffer<T>> alloc(std::size_t count, AllocOptions const& options,
                                               std::source_location const& site = std::source_location::current()) {
    return manager::make_owner<TrackedBuffer<T>>(*route_, manager::typed_arguments<T>(count, options), site);
  }

  /// Raw bytes through the attached runtime. Counted apart: alloc_count does not move. Zero bytes succeed.
  /// Errors: no_runtime (this manager has none: never another path), else as alloc.
  [[nodiscard]] Result<RuntimeAllocBlock> alloc_raw(std::size_t bytes, AllocTag tag,
                                                    std::source_location const& site = std::source_location::current()) {
    return alloc_raw(bytes, AllocOptions{.tag = tag, .stream = {}, .alignment = kMinimumAlignment}, site);
  }
  [[nodiscard]] Result<RuntimeAllocBlock> alloc_raw(std::size_t bytes, AllocOptions const& options,
                                                    std::source_location const& site = std::source_location::current()) {
    return manager::make_owner<RuntimeAllocBlock>(*route_, manager::raw_arguments(bytes, options), site);
  }

  /// Claims `bytes` for several allocations to come, all or nothing; through a runtime also of its stack's finite budget. Touches no
  /// device memory and counts no request. Zero bytes succeed and hold nothing.
  /// Errors: over_budget (of this budget, or of the stack's), unsupported (the runtime has no budget to reserve of), overflow.
  [[nodiscard]] Result<GpuMemoryReservation> reserve_bytes(
      std::uint64_t bytes, std::source_location const& site = std::source_location::current()) const;

  /// Would `bytes` more exceed the budget now? Looks only; takes no claim. Errors: over_budget, overflow.
  [[nodiscard]] Result<void> check_budget(std::uint64_t bytes) const;

  [[nodiscard]] std::uint64_t allocated_bytes() const noexcept;  ///< delivered and not yet freed
  [[nodiscard]] std::uint64_t claimed_bytes() const noexcept;    ///< all claims, unspent reservations included
  [[nodiscard]] std::optional<std::uint64_t> remaining_bytes()
      const noexcept;                                       ///< limit − claimed, never below 0; absent: unlimited
  [[nodiscard]] std::uint64_t peak_bytes() const noexcept;  ///< of allocated, since creation or reset_peak
  [[nodiscard]] std::uint64_t live_allocations() const noexcept;
  [[nodiscard]] std::uint64_t alloc_count() const noexcept;      ///< typed requests, also those that failed or were empty
  [[nodiscard]] std::uint64_t raw_alloc_count() const noexcept;  ///< the same of raw requests; never reset
  void reset_alloc_count() noexcept;
  /// Sets the peak to what is allocated now; never leaves it below.
  void reset_peak() noexcept;
  [[nodiscard]] std::uint64_t deallocation_failure_count() const noexcept;  ///< frees that the device refused
  [[nodiscard]] std::uint64_t deallocation_failure_bytes() const noexcept;  ///< bytes now kept charged by them
  /// Frees again what failed. Returns how many blocks came back; the others stay charged.
  std::size_t retry_failed_deallocations();
  /// Gives the bytes of failed frees back to the budget without asking the device. Returns the bytes.
  std::uint64_t write_off_failed_deallocations();

  /// Waits for the frees that are still queued on streams of the attached runtime, so that what follows finds their bytes free.
  /// Without a runtime there is nothing to do. Errors: what the resource says.
  [[nodiscard]] Result<void> reap_pending_deallocations();
  /// Judges a release by hand and never moves a counter: owners give their own bytes back, and nobody else can show that bytes are
  /// theirs. 0 succeeds. Errors: invalid_argument (something is allocated or reserved), overflow (nothing is: it would underflow).
  [[nodiscard]] Result<void> record_free(std::uint64_t bytes) const;
  /// Resets the peak, only when nothing is allocated or reserved. Errors: invalid_argument (with what is).
  [[nodiscard]] Result<void> reset_tracking();

  /// Changes the budget for everyone who shares this ledger. Below what is claimed nothing is taken away and nothing granted.
  void set_budget(MemoryBudget budget);
  [[nodiscard]] MemoryBudget budget() const noexcept;
  /// The limit that this manager and all its overlays share; absent: unlimited.
  [[nodiscard]] std::optional<std::uint64_t> budget_limit_bytes() const noexcept;
  /// The pure level of claimed bytes under the budget; none without one.
  [[nodiscard]] PressureLevel pressure_level() const noexcept;

  /// Looks at the device and publishes its total, its free memory and what is used outside of this process's ledgers (readers of the
  /// flight file and the exporter show them as last seen). Done by itself when the manager is made, when the device was short, when
  /// the budget changed and when pending frees were waited for; never on the way of a request that succeeds, nor of one that a budget
  /// refuses. Call it as often as you want these figures fresh: it costs one question to the driver (100 ns on the host).
  void refresh_device_figures() const noexcept;

  [[nodiscard]] ManagerStats stats() const;
  [[nodiscard]] AuditReport audit() const;
  [[nodiscard]] Device const& device() const noexcept;
  [[nodiscard]] std::string const& name() const noexcept;
  /// Index of this manager's cell in the flight file; absent when the file had none left.
  [[nodiscard]] std::optional<std::uint32_t> ledger_cell() const noexcept;

private:
  friend class manager::DoorCore;
  friend struct manager::RouteAccess;
  explicit GpuMemoryManager(manager::Route& route) noexcept;
  manager::Route* route_;
};

}  // namespace headroom
