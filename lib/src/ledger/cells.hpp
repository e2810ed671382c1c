// Cells of the flight file for ledgers: each is taken once in a process, by a manager's core or a device account, and kept.
#pragma once

#include <cstdint>
#include <functional>

#include <headroom/flight_format.hpp>

namespace headroom::ledger {

/// The next cell, or flight::kNoCell when all are taken.
[[nodiscard]] std::uint32_t take_cell() noexcept;

/// A ledger without a cell in the file has one in private memory, for as long as the process lives: for_each_cell visits it too.
void add_private_cell(flight::LedgerCell& cell);

/// Every cell that a ledger of this process ever had, whatever its state.
void for_each_cell(std::function<void(flight::LedgerCell const&)> const& visit);

}  // namespace headroom::ledger
