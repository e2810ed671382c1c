#include "manager/errors.hpp"

#include "base/checked.hpp"

namespace headroom::manager {

void add_figures(Error& error, ledger::Ledger const& ledger, ledger::ClaimResult const& claim) noexcept {
  error.current = claim.claimed_before;
  const auto required = checked_add(claim.claimed_before, error.requested.value_or(0));
  error.required = required.value_or(kMaxUint64);
  error.required_is_clamped = !required.has_value();
  if ((claim.limit_word & flight::kLimitNone) == 0) error.limit = claim.limit_word & flight::kBytesMask;
  error.peak = ledger.words().peak;
}

void add_holders(Error& error, ledger::Ledger const& ledger) noexcept {
  error.holders = ledger.largest_holders();
  auto const& cell = ledger.cell();
  error.unspent_bytes = cell.unspent.load(std::memory_order_relaxed);
  error.unspent_reservations = static_cast<std::uint32_t>(cell.unspent_reservations.load(std::memory_order_relaxed));
  error.failed_free_bytes = cell.failed_free_bytes.load(std::memory_order_relaxed);
  error.failed_frees = static_cast<std::uint32_t>(cell.failed_frees.load(std::memory_order_relaxed));
}

Error forked_child_error() {
  return make_error(ErrorKind::unsupported, Layer::manager,
                    "this process is a forked child: the device and the books belong to its parent; exec, or allocate there");
}

std::string overflow_message(std::uint64_t count, std::uint64_t element_bytes) {
  return std::to_string(count) + " elements of " + std::to_string(element_bytes) + " bytes do not fit 64 bits";
}

std::string too_large_message(std::uint64_t bytes) {
  return std::to_string(bytes) + " bytes cannot be held: a ledger counts up to " + std::to_string(flight::kBytesMask) +
         " (16 TiB - 1) in all";
}

std::string alignment_message(std::uint64_t alignment) {
  return "alignment " + std::to_string(alignment) + " is no power of two";
}

}  // namespace headroom::manager
