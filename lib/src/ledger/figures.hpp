// The figures of a refusal, from the ledger that refused.
#pragma once

#include <headroom/error.hpp>

#include "ledger/ledger.hpp"

namespace headroom::ledger {

/// current, required (clamped), limit and peak. `error.requested` must be set.
void add_figures(Error& error, Ledger const& ledger, ClaimResult const& claim) noexcept;
/// Largest tags, unspent reservations and failed frees.
void add_holders(Error& error, Ledger const& ledger) noexcept;

}  // namespace headroom::ledger
