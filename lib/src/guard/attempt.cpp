#include "guard/attempt.hpp"

#include "base/clock.hpp"
#include "device/guarded.hpp"
#include "manager/block.hpp"
#include "manager/errors.hpp"

namespace headroom::guard {

Result<void> fill(manager::Allocation const& allocation, Request const& request) noexcept {
  DeviceResource& resource = allocation.route->resource();
  return device::guarded([&] {
    const Block block = manager::block_of(allocation);
    return request.zeroed ? resource.fill_zero(block, 0, block.bytes, block.stream)
                          : resource.copy_in(block, 0, request.source, block.stream);
  });
}

Error give_back_unfilled(manager::Allocation& allocation, Error error, bool again) noexcept {
  ledger::Ledger& ledger = allocation.route->ledger();
  ledger::Refusal refusal{.kind = error.kind,
                          .layer = error.layer,
                          .requested = allocation.bytes,
                          .alignment = std::uint64_t{1} << allocation.alignment_log2,
                          .device_free = {},
                          .start_ticks = ticks_now(),
                          .tag = {allocation.tag_entry, allocation.tag_cell},
                          .site = allocation.site,
                          .counted = false};
  error.requested = allocation.bytes;
  // A free that the device refuses now is counted and put in quarantine: the request ends without memory either way.
  manager::release_or_count(allocation);
  const ledger::ClaimResult claim = manager::present_claim(ledger);
  if (!again || !manager::is_shortage(error)) {
    refusal.claimed = claim.claimed_before;
    refusal.limit_word = claim.limit_word;
    manager::take_figures(refusal, error);
    const flight::LaneSection section{flight::this_thread()};
    ledger.book_refusal(section, refusal);
  }
  if (!error.limit) manager::add_figures(error, ledger, claim);
  add_clause(error, [] { return std::string{"the memory was there, but could not be filled"}; });
  return error;
}

}  // namespace headroom::guard
