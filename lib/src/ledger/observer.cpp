#include "ledger/observer.hpp"

#include <atomic>

#include "flight/emit.hpp"
#include "ledger/ledger.hpp"

namespace headroom::ledger {
namespace {

// Newest first; observers are never taken out. Written by add_observer (release), read by deliver_notices (acquire): whoever finds an
// observer finds it whole, and its `next_` as well.
std::atomic<PressureObserver*> newest{nullptr};

}  // namespace

void add_observer(PressureObserver& observer) noexcept {
  observer.next_ = newest.load(std::memory_order_relaxed);
  while (!newest.compare_exchange_weak(observer.next_, &observer, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void deliver_notices(flight::ThreadState& thread) noexcept {
  // A signal handler's operation inside a section of the thread that it interrupted: that one delivers.
  if (thread.writing.load(std::memory_order_relaxed)) return;
  thread.notices_due.store(false, std::memory_order_relaxed);
  bool more = false;
  for (auto* observer = newest.load(std::memory_order_acquire); observer != nullptr; observer = observer->next_) {
    more |= observer->deliver();
  }
  if (more) thread.notices_due.store(true, std::memory_order_relaxed);
}

PressureObserver& Ledger::observe(PressureObserver& observer) noexcept {
  PressureObserver* present = nullptr;
  return observer_.compare_exchange_strong(present, &observer, std::memory_order_seq_cst) ? observer : *present;
}

void Ledger::set_pressure_margin(std::optional<std::uint64_t> bytes) noexcept {
  flight::ThreadState& thread = flight::this_thread();
  // The word is bytes + 1; a margin of all there is does not get larger.
  const std::uint64_t word = bytes ? (*bytes < kBytesMask ? *bytes : kBytesMask) + 1 : 0;
  cell_->pressure_margin.store(word, std::memory_order_relaxed);
  {
    const flight::LaneSection section{thread};
    judge_pressure(section);
  }
  deliver_notices_if_due(thread);
}

}  // namespace headroom::ledger
