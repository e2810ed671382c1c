// The errors of a manager: figures from its ledger, holders from its tags, and the sentences for what no figure says.
#pragma once

#include <cstdint>
#include <string>

#include <headroom/error.hpp>

#include "ledger/ledger.hpp"

namespace headroom::manager {

/// current, required (clamped), limit and peak. `error.requested` must be set.
void add_figures(Error& error, ledger::Ledger const& ledger, ledger::ClaimResult const& claim) noexcept;
/// Largest tags, unspent reservations and failed frees.
void add_holders(Error& error, ledger::Ledger const& ledger) noexcept;

[[nodiscard]] Error forked_child_error();
[[nodiscard]] std::string overflow_message(std::uint64_t count, std::uint64_t element_bytes);
[[nodiscard]] std::string too_large_message(std::uint64_t bytes);
[[nodiscard]] std::string alignment_message(std::uint64_t alignment);

}  // namespace headroom::manager
