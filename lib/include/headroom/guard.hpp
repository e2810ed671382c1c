// headroom: the memory guard, a manager's door for programs that want to be helped before they fail.
// Layer: guard
//
// A MemoryGuard allocates through a GpuMemoryManager and its one ledger, and does what a plain manager does not: memory comes zeroed or
// filled; a request that does not fit asks the program's own hooks to free memory, then the out-of-memory policy, and only then
// fails; listeners hear of pressure; and device memory can be held back from the start.
//
//   request ─▶ fits ─▶ memory
//              does not ─▶ hooks, one at a time, the request tried after each (safe_alloc_with_hooks only)
//                       ─▶ policy: fail · retry after free · wait and retry · checkpoint and fail
//                       ─▶ the reservation, if it may be released ─▶ the on_oom callback, if the policy says so ─▶ the first error
//
// A budget without room and a device without memory take the same road. No claim is held while hooks run, and every retry is judged by
// the budget anew, so the limit holds whatever hooks say that they freed.
//
// Use a guard's doors where a request may be helped; GpuMemoryManager::alloc on manager() is the same memory without any help.
//
// Ownership: a cheap handle; copies are the same guard, which ends with its last handle: its hooks and listeners are gone then, and the
// reservation is given back. When the last handle goes inside a hook, a listener or the on_oom callback, the guard ends with the
// operation that called it: that goes on as if the handle were there, and later hooks, listeners and the callback still have their
// turns. A hook, listener or callback that captures a MemoryGuard of its own guard by value is a cycle: the guard, its reservation
// included, lives until it is removed. Capture a reference, or remove it. Buffers need no guard to stay alive; one that is destroyed
// gives its memory back as free() does.
// Thread safety: every member may be called from any thread, and from inside every hook, listener and callback. No lock is held over a
// call into the device or into your code.
// Cost: safe_alloc costs about 15 ns more than the manager's alloc and the device's own time to zero the memory; hooks, listeners and
// policy cost nothing while requests fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <ranges>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include <headroom/buffer.hpp>
#include <headroom/device.hpp>
#include <headroom/error.hpp>
#include <headroom/guard_builder.hpp>
#include <headroom/hook.hpp>
#include <headroom/manager.hpp>
#include <headroom/oom_policy.hpp>
#include <headroom/pressure.hpp>
#include <headroom/pressure_listener.hpp>
#include <headroom/tag.hpp>
#include <headroom/zero_bits.hpp>

namespace headroom {

namespace guard {
class Core;

/// A request through one of the doors.
struct Request {
  manager::AllocArguments arguments;
  std::span<const std::byte> source{};  ///< what the memory is filled with, as long as it is; only without zeroed
  bool zeroed = false;
  bool hooks = false;
};
/// Fills `allocation` unless there is an error.
[[nodiscard]] std::optional<Error> allocate(Core& core, Request const& request, std::source_location const& site,
                                            manager::Allocation& allocation);
[[nodiscard]] Result<void> free_allocation(Core& core, manager::Allocation& allocation);
}  // namespace guard

/// A guard at one moment. used, claimed and peak are one consistent reading; all figures without a unit are bytes. All but `reservation`
/// are the ledger's, shared by every guard and manager of it: over its whole life, whichever guard's hooks and policy they came from.
struct GuardStats {
  std::uint64_t used = 0;                     ///< allocated
  std::uint64_t claimed = 0;                  ///< used, unspent reservations, and what is on its way
  std::uint64_t peak = 0;                     ///< of used
  std::uint64_t budget = 0;                   ///< 0 = unlimited
  std::optional<std::uint64_t> device_free;   ///< absent: the device does not say
  std::optional<std::uint64_t> device_total;  ///< likewise
  std::uint64_t live_allocations = 0;
  std::uint64_t refusals = 0;             ///< requests that were refused at first, whatever became of them
  std::uint64_t recoveries = 0;           ///< … and granted after hooks or policy
  std::uint64_t failures_after_help = 0;  ///< … and failed although something was tried
  std::uint64_t waits = 0;                ///< requests that waited for room
  std::uint64_t checkpoints = 0;          ///< runs of the on_oom callback
  std::uint64_t hooks_run = 0;
  std::uint64_t bytes_freed_by_hooks = 0;  ///< really freed, on the hook's thread, during its run
  std::uint64_t reservation = 0;           ///< held back by this guard
  PressureLevel pressure = PressureLevel::none;
  [[nodiscard]] std::string to_string() const;
};

/// Made by MemoryGuardBuilder only. See the top of this file.
class MemoryGuard {
public:
  // Copies only: a handle that was moved from is the guard's handle still.
  MemoryGuard(MemoryGuard const&) = default;
  MemoryGuard& operator=(MemoryGuard const& other) noexcept;
  ~MemoryGuard();

  /// Device memory for `count` elements, zeroed. Budget and policy hold, hooks are not asked. Zero elements succeed and hold nothing.
  /// Errors: over_budget and device_out_of_memory (the first refusal; its message says what was tried), and as
  /// GpuMemoryManager::alloc; unsupported (the device cannot zero memory).
  template <ValidAsZeroBits T>
  [[nodiscard]] Result<TrackedBuffer<T>> safe_alloc(std::size_t count, AllocTag tag = {},
                                                    std::source_location const& site = std::source_location::current()) const {
    return safe_alloc<T>(count, AllocOptions{.tag = tag, .stream = {}, .alignment = kMinimumAlignment}, site);
  }
  template <ValidAsZeroBits T>
  [[nodiscard]] Result<TrackedBuffer<T>> safe_alloc(std::size_t count, AllocOptions const& options,
                                                    std::source_location const& site = std::source_location::current()) const {
    return make<T>({.arguments = manager::typed_arguments<T>(count, options), .zeroed = true}, site);
  }

  /// Likewise, and hooks are asked before the policy. See hook.hpp.
  template <ValidAsZeroBits T>
  [[nodiscard]] Result<TrackedBuffer<T>> safe_alloc_with_hooks(
      std::size_t count, AllocTag tag = {}, std::source_location const& site = std::source_location::current()) const {
    return safe_alloc_with_hooks<T>(count, AllocOptions{.tag = tag, .stream = {}, .alignment = kMinimumAlignment}, site);
  }
  template <ValidAsZeroBits T>
  [[nodiscard]] Result<TrackedBuffer<T>> safe_alloc_with_hooks(
      std::size_t count, AllocOptions const& options, std::source_location const& site = std::source_location::current()) const {
    return make<T>({.arguments = manager::typed_arguments<T>(count, options), .zeroed = true, .hooks = true}, site);
  }

  /// Device memory with a copy of host data, which may be reused when the call returns. Budget and policy hold, as in safe_alloc.
  /// Errors: as safe_alloc.
  template <DeviceRepr T>
  [[nodiscard]] Result<TrackedBuffer<T>> safe_alloc_copy(
      std::span<T const> data, AllocTag tag = {}, std::source_location const& site = std::source_location::current()) const {
    const AllocOptions options{.tag = tag, .stream = {}, .alignment = kMinimumAlignment};
    return make<T>({.arguments = manager::typed_arguments<T>(data.size(), options), .source = std::as_bytes(data)}, site);
  }
  /// … of a vector, an array, or anything else whose elements lie side by side.
  template <std::ranges::contiguous_range Data>
    requires std::ranges::sized_range<Data> && DeviceRepr<std::ranges::range_value_t<Data>>
  [[nodiscard]] Result<TrackedBuffer<std::ranges::range_value_t<Data>>> safe_alloc_copy(
      Data const& data, AllocTag tag = {}, std::source_location const& site = std::source_location::current()) const {
    using T = std::ranges::range_value_t<Data>;
    return safe_alloc_copy(std::span<T const>{std::ranges::data(data), std::ranges::size(data)}, tag, site);
  }

  /// Gives the memory back and tells how it went. After an error the buffer is as it was, in the caller's hands, and the books are
  /// untouched: the call may be repeated. Any buffer of this guard's ledger is taken, whichever door it came by; an empty one succeeds.
  /// Errors: wrong_owner (it stands in another ledger; counted as misuse of this one), driver and whatever the device says (counted).
  template <DeviceRepr T>
  // NOLINTNEXTLINE(cppcoreguidelines-rvalue-reference-param-not-moved): taken only when the device took the memory
  [[nodiscard]] Result<void> free(TrackedBuffer<T>&& buffer) const {
    return guard::free_allocation(*core_, manager::AllocationAccess::of(buffer));
  }

  // ── budget and pressure ──

  /// Changes the limit of the ledger, for every door to it; 0 = unlimited. Below what is used nothing is taken away and nothing granted,
  /// and pressure is critical. Whoever waits for room looks again.
  void set_budget(std::uint64_t bytes) const;
  /// The limit; 0 = unlimited. (A manager's MemoryBudget may also allow nothing, or only observe: ask manager().budget().)
  [[nodiscard]] std::uint64_t budget() const noexcept;
  /// The pure level of claimed bytes under the budget; none without one.
  [[nodiscard]] PressureLevel pressure_level() const noexcept;
  /// `listener` hears of every change of the notified level, through whichever door; see pressure_listener.hpp.
  /// Errors: invalid_argument (an empty function), io (no memory), unsupported (a forked child).
  [[nodiscard]] Result<ListenerId> add_pressure_listener(PressureListener listener) const;
  /// True when this guard had one of that id.
  bool remove_pressure_listener(ListenerId id) const;

  // ── hooks and policy ──

  /// See hook.hpp. Errors: invalid_argument (no name, no callback, a limit that is not positive), io (no memory), unsupported (a forked
  /// child).
  [[nodiscard]] Result<void> register_hook(OomHook hook) const;
  /// Removes every hook of that name; true when there was one.
  bool remove_hook(std::string_view name) const;
  /// What the policy checkpoint_and_fail calls before a request fails, on the thread whose request it is. It may be called often and
  /// from any thread, but not twice at a time; it may allocate (without hooks, and failing at once) and call on_oom itself; what it
  /// throws is counted. Replaces the one before; an empty function takes it away.
  /// Errors: io (no memory), unsupported (a forked child); the one before stays.
  Result<void> on_oom(std::function<void()> callback) const;
  /// Holds from now on, also for requests that wait.
  void set_oom_policy(OomPolicy policy) const;
  [[nodiscard]] OomPolicy oom_policy() const noexcept;

  // ── reservation ──

  /// Frees the device memory that was held back at build; the bytes. 0 when none is held, or when the device refuses to take it (counted;
  /// it stays held, and the call may be repeated).
  std::uint64_t release_reservation() const;
  [[nodiscard]] bool has_reservation() const noexcept;

  // ── looking ──

  [[nodiscard]] GuardStats stats() const;
  /// The peak becomes what is allocated now.
  void reset_peak_stats() const noexcept;
  [[nodiscard]] Device const& device() const noexcept;
  /// A handle of its own on the same device.
  [[nodiscard]] Device shared_device() const;
  /// The manager whose ledger this guard guards: the same books.
  [[nodiscard]] GpuMemoryManager manager() const;
  /// Such as "guard of 'manager-1' on 'host': 1.5 KiB of 2 KiB claimed, pressure low, 2 hooks, policy fail, no reservation".
  [[nodiscard]] std::string to_string() const;

  /// The same guard.
  friend bool operator==(MemoryGuard const&, MemoryGuard const&) = default;

private:
  friend class MemoryGuardBuilder;
  explicit MemoryGuard(std::shared_ptr<guard::Core> core) noexcept;

  template <DeviceRepr T>
  [[nodiscard, gnu::always_inline]] Result<TrackedBuffer<T>> make(guard::Request request,
                                                                  std::source_location const& site) const {
    request.arguments.guarded = true;
    Result<TrackedBuffer<T>> buffer{tl::in_place, manager::Allocation::Unset{}};
    std::optional<Error> error = guard::allocate(*core_, request, site, manager::AllocationAccess::of(*buffer));
    if (error) [[unlikely]] {
      manager::AllocationAccess::of(*buffer).clear();
      buffer = tl::unexpected(std::move(*error));
    }
    return buffer;
  }

  std::shared_ptr<guard::Core> core_;  // never null
};

std::ostream& operator<<(std::ostream& out, MemoryGuard const& guard);
std::ostream& operator<<(std::ostream& out, GuardStats const& stats);
std::ostream& operator<<(std::ostream& out, OomPolicy const& policy);

}  // namespace headroom
