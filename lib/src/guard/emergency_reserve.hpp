// Bytes of the budget for requests inside hooks and the on_oom callback, when the rest of it is full: what frees memory often needs
// some first.
//
// It is a reservation, claimed from the start. Memory that was taken from it goes to the common budget when it is freed, as from any
// reservation, so the missing bytes are claimed back: before a request is tried, the first time or again, so that it does not get what
// a hook had for a moment, and when the guard frees something.
#pragma once

#include <atomic>
#include <cstdint>
#include <source_location>

#include <headroom/error.hpp>
#include <headroom/manager.hpp>
#include <headroom/reservation.hpp>

#include "manager/token.hpp"

namespace headroom::guard {

class EmergencyReserve {
public:
  /// Once, before anybody else knows of it. Errors: as GpuMemoryManager::reserve_bytes.
  [[nodiscard]] Result<void> take(GpuMemoryManager const& manager, std::uint64_t bytes, std::source_location const& site);
  [[nodiscard]] bool exists() const noexcept { return size_ != 0; }
  [[nodiscard]] manager::Token& token() noexcept { return manager::TokenAccess::of(reservation_); }
  /// Claims what was used of it, as far as there is room now.
  void refill(GpuMemoryManager const& manager) noexcept {
    if (exists()) [[unlikely]]
      refill_existing(manager);
  }

private:
  [[nodiscard]] std::uint64_t missing() noexcept;
  void refill_existing(GpuMemoryManager const& manager) noexcept;

  std::uint64_t size_ = 0;
  GpuMemoryReservation reservation_;
  // Two that refill at once would claim twice. Nobody waits: whoever finds it set leaves it to the other. acquire and release.
  std::atomic<bool> refilling_{false};
};

}  // namespace headroom::guard
