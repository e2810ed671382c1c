#include "guard/emergency_reserve.hpp"

#include <algorithm>
#include <utility>

#include "manager/route_access.hpp"

namespace headroom::guard {

Result<void> EmergencyReserve::take(GpuMemoryManager const& manager, std::uint64_t bytes, std::source_location const& site) {
  if (bytes == 0) return success();
  auto reservation = manager.reserve_bytes(bytes, site);
  if (!reservation) return tl::unexpected{std::move(reservation.error())};
  reservation_ = std::move(*reservation);
  size_ = bytes;
  return success();
}

std::uint64_t EmergencyReserve::missing() noexcept {
  const std::uint64_t state = token().state.load(std::memory_order_acquire);
  // An allocation under way may give its bytes back: later.
  if ((state & ~manager::Token::kRestMask) != 0) return 0;
  const std::uint64_t rest = state & manager::Token::kRestMask;
  return rest < size_ ? size_ - rest : 0;
}

void EmergencyReserve::refill_existing(GpuMemoryManager const& manager) noexcept {
  if (missing() == 0 || refilling_.exchange(true, std::memory_order_acquire)) return;
  const std::uint64_t room = manager.remaining_bytes().value_or(size_);
  if (const std::uint64_t bytes = std::min(missing(), room); bytes != 0) {
    // Nobody asked for it: a budget below that has no room for it refuses no request.
    auto more = manager::make_reservation(manager::RouteAccess::of(manager), bytes, true, std::source_location::current());
    if (more) manager::merge_tokens(manager::TokenAccess::of(*more), token());
  }
  refilling_.store(false, std::memory_order_release);
}

}  // namespace headroom::guard
