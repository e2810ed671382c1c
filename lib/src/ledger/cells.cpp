#include "ledger/cells.hpp"

#include <atomic>

#include "flight/directory.hpp"
#include "flight/recorder.hpp"

namespace headroom::ledger {
namespace {

// Read and written by whoever opens a ledger for the first time; relaxed: only distinctness matters.
std::atomic<std::uint32_t> next{0};

// Cells in private memory, newest first; never removed, like the ledgers that they belong to. Pushed release by whoever opens one, read
// acquire by whoever looks at all: a node is whole when it is seen.
struct PrivateCell {
  flight::LedgerCell* cell;
  PrivateCell* older;
};
std::atomic<PrivateCell*> newest_private{nullptr};

}  // namespace

std::uint32_t take_cell() noexcept {
  std::uint32_t cell = next.load(std::memory_order_relaxed);
  do {
    if (cell >= flight::kLedgerCount) return flight::kNoCell;
  } while (!next.compare_exchange_weak(cell, cell + 1, std::memory_order_relaxed));
  return cell;
}

void add_private_cell(flight::LedgerCell& cell) {
  auto* const node = new PrivateCell{&cell, newest_private.load(std::memory_order_relaxed)};
  while (!newest_private.compare_exchange_weak(node->older, node, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void for_each_cell(std::function<void(flight::LedgerCell const&)> const& visit) {
  for (std::uint32_t cell = 0; cell < flight::kLedgerCount; ++cell) visit(flight::recorder.ledgers[cell]);
  for (auto const* node = newest_private.load(std::memory_order_acquire); node != nullptr; node = node->older) visit(*node->cell);
}

}  // namespace headroom::ledger
