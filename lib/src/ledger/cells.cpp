#include "ledger/cells.hpp"

#include <atomic>

#include "flight/directory.hpp"

namespace headroom::ledger {
namespace {

// Read and written by whoever opens a ledger for the first time; relaxed: only distinctness matters.
std::atomic<std::uint32_t> next{0};

}  // namespace

std::uint32_t take_cell() noexcept {
  std::uint32_t cell = next.load(std::memory_order_relaxed);
  do {
    if (cell >= flight::kLedgerCount) return flight::kNoCell;
  } while (!next.compare_exchange_weak(cell, cell + 1, std::memory_order_relaxed));
  return cell;
}

}  // namespace headroom::ledger
