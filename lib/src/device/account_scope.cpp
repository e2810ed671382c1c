#include "device/account_scope.hpp"

#include "base/clock.hpp"
#include "flight/recorder.hpp"

namespace headroom::device {
namespace {

// The thread's innermost scope. Its own signal handlers nest properly, so plain words do.
thread_local constinit AccountScope* innermost = nullptr;

}  // namespace

AccountScope::AccountScope(flight::ThreadState& thread, ledger::Ledger& ledger, flight::InFlight operation,
                           std::uint64_t bytes) noexcept
    : thread_(thread), ledger_(ledger), operation_(operation), bytes_(bytes), outer_(innermost) {
  if (named_by_free()) {
    borrowed_ = outer_;
    borrowed_->lent_ = true;
  } else if (named_by_manager()) {
    deeper_ = true;
    ++thread_.in_flight_depth;
  } else {
    own_.emplace(thread, ledger, operation, bytes, ticks_now());
  }
  innermost = this;
}

AccountScope::~AccountScope() {
  innermost = outer_;
  if (borrowed_ != nullptr) borrowed_->lent_ = false;
  if (deeper_) --thread_.in_flight_depth;
}

// A resource that reports a return inside `deallocate`: between its steps at most this free's bytes are claimed and not allocated.
bool AccountScope::named_by_free() const noexcept {
  return operation_ == flight::InFlight::freeing && outer_ != nullptr && &outer_->ledger_ == &ledger_ &&
         outer_->operation_ == flight::InFlight::freeing && !outer_->lent_ && outer_->borrowed_ == nullptr &&
         bytes_ <= outer_->bytes_;
}

bool AccountScope::named_by_manager() const noexcept {
  if (thread_.in_flight_depth != 1 || thread_.lane == nullptr || ledger_.index() == flight::kNoCell) return false;
  // Relaxed: the thread's own word.
  const std::uint64_t word = thread_.lane->header.in_flight.load(std::memory_order_relaxed);
  const std::uint64_t cell = (word >> 44) & 0xFFFU;
  // Relaxed: a manager's parent is set before its first operation and stays.
  return (word & flight::kBytesMask) >= bytes_ && cell < flight::kLedgerCount &&
         flight::recorder.ledgers[cell].parent_cell.load(std::memory_order_relaxed) == std::uint64_t{ledger_.index()} + 1;
}

}  // namespace headroom::device
