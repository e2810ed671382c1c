// Cells of the flight file for ledgers: each is taken once in a process, by a manager's core or a device account, and kept.
#pragma once

#include <cstdint>

namespace headroom::ledger {

/// The next cell, or flight::kNoCell when all are taken.
[[nodiscard]] std::uint32_t take_cell() noexcept;

}  // namespace headroom::ledger
