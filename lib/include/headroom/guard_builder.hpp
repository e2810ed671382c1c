// headroom: how a MemoryGuard is made.
// Layer: guard
//
//   auto guard = MemoryGuardBuilder(device).budget_bytes(8 << 30).oom_policy(OomPolicy::wait_and_retry(200ms)).build();
//
// Over a device, build() makes a manager of its own, unlimited unless budget_bytes says otherwise. Over a manager, with or without a
// runtime, the guard is one more door to that manager's ledger: what the one says, the other says. A builder may be kept and used
// again; it belongs to one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <headroom/device.hpp>
#include <headroom/error.hpp>
#include <headroom/manager.hpp>
#include <headroom/oom_policy.hpp>

namespace headroom {

class MemoryGuard;

class MemoryGuardBuilder {
public:
  explicit MemoryGuardBuilder(Device device);
  explicit MemoryGuardBuilder(GpuMemoryManager manager);

  /// The budget that the ledger gets at build(), in bytes; 0 = unlimited. Not called: a manager keeps its own.
  MemoryGuardBuilder& budget_bytes(std::uint64_t bytes) &;
  /// Label of the manager that is made for a device; empty = "manager-N". A manager keeps its own name.
  MemoryGuardBuilder& name(std::string_view name) &;
  /// Real device memory that is held back from the start, until release_reservation(). 0 = none.
  MemoryGuardBuilder& reserve_bytes(std::uint64_t bytes) &;
  /// True: the reservation is an allocation under the budget, with the tag "reservation". False (default): outside of it.
  MemoryGuardBuilder& count_reservation_against_budget(bool counted) &;
  /// True: before a request fails for good for lack of memory that the reservation holds, it is released and the request tried once
  /// more. The default is false.
  MemoryGuardBuilder& release_reservation_on_oom(bool release) &;
  MemoryGuardBuilder& oom_policy(OomPolicy policy) &;
  /// Bytes of the budget (not of the device) that only requests inside hooks and the on_oom callback may use, once the rest is full;
  /// claimed from build() on and filled up again when such memory was freed. 0 = none: such requests fail at once.
  MemoryGuardBuilder& emergency_reserve_bytes(std::uint64_t bytes) &;
  /// How far used bytes must fall below a pressure boundary before listeners hear of it. Not called: 1 % of the budget; 0: none.
  MemoryGuardBuilder& hysteresis_margin_bytes(std::uint64_t bytes) &;
  /// How long others wait for a run of the on_oom callback that they share: 1 s unless set. Hooks have limits of their own.
  MemoryGuardBuilder& callback_limit(std::chrono::nanoseconds limit) &;
  /// How often the hooks are gone through for one request; a further round is made only if the last one really freed something. 1 unless
  /// set; 0 is read as 1.
  MemoryGuardBuilder& hook_rounds(std::uint32_t rounds) &;

  // The same in a chain that begins with a temporary.
  MemoryGuardBuilder&& budget_bytes(std::uint64_t bytes) && { return std::move(budget_bytes(bytes)); }
  MemoryGuardBuilder&& name(std::string_view name) && { return std::move(this->name(name)); }
  MemoryGuardBuilder&& reserve_bytes(std::uint64_t bytes) && { return std::move(reserve_bytes(bytes)); }
  MemoryGuardBuilder&& count_reservation_against_budget(bool counted) && {
    return std::move(count_reservation_against_budget(counted));
  }
  MemoryGuardBuilder&& release_reservation_on_oom(bool release) && { return std::move(release_reservation_on_oom(release)); }
  MemoryGuardBuilder&& oom_policy(OomPolicy policy) && { return std::move(oom_policy(policy)); }
  MemoryGuardBuilder&& emergency_reserve_bytes(std::uint64_t bytes) && { return std::move(emergency_reserve_bytes(bytes)); }
  MemoryGuardBuilder&& hysteresis_margin_bytes(std::uint64_t bytes) && { return std::move(hysteresis_margin_bytes(bytes)); }
  MemoryGuardBuilder&& callback_limit(std::chrono::nanoseconds limit) && { return std::move(callback_limit(limit)); }
  MemoryGuardBuilder&& hook_rounds(std::uint32_t rounds) && { return std::move(hook_rounds(rounds)); }

  /// Errors: as GpuMemoryManager::create; device_out_of_memory, over_budget or whatever the device says (the reservation, or the
  /// emergency reserve, cannot be had); invalid_argument (a callback limit that is not positive); io (no memory). After an error
  /// nothing is held, and a manager that was given keeps its budget. Its budget is changed last, so that nobody is judged by the one of
  /// a build that fails, but for one case: bytes that are to be claimed under it fit the wanted budget and not the present one. Then the
  /// budget rises first, and goes back if the device refuses them, unless somebody else changed it meanwhile; what was granted to others
  /// in between stays.
  [[nodiscard]] Result<MemoryGuard> build() const;

private:
  std::optional<Device> device_;
  std::optional<GpuMemoryManager> manager_;
  std::string name_;
  std::optional<std::uint64_t> budget_bytes_;
  std::uint64_t reserve_bytes_ = 0;
  bool counts_reservation_ = false;
  bool releases_on_oom_ = false;
  OomPolicy policy_ = OomPolicy::fail();
  std::uint64_t emergency_bytes_ = 0;
  std::optional<std::uint64_t> margin_bytes_;
  std::chrono::nanoseconds callback_limit_ = std::chrono::seconds{1};
  std::uint32_t hook_rounds_ = 1;
};

}  // namespace headroom
