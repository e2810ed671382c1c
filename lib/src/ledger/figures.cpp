#include "ledger/figures.hpp"

#include "base/checked.hpp"

namespace headroom::ledger {

void add_figures(Error& error, Ledger const& ledger, ClaimResult const& claim) noexcept {
  error.current = claim.claimed_before;
  const auto required = checked_add(claim.claimed_before, error.requested.value_or(0));
  error.required = required.value_or(kMaxUint64);
  error.required_is_clamped = !required.has_value();
  if ((claim.limit_word & kLimitNone) == 0) error.limit = claim.limit_word & kBytesMask;
  error.peak = ledger.words().peak;
}

void add_holders(Error& error, Ledger const& ledger) noexcept {
  error.holders = ledger.largest_holders();
  auto const& cell = ledger.cell();
  error.unspent_bytes = cell.unspent.load(std::memory_order_relaxed);
  error.unspent_reservations = static_cast<std::uint32_t>(cell.unspent_reservations.load(std::memory_order_relaxed));
  error.failed_free_bytes = cell.failed_free_bytes.load(std::memory_order_relaxed);
  error.failed_frees = static_cast<std::uint32_t>(cell.failed_frees.load(std::memory_order_relaxed));
}

}  // namespace headroom::ledger
