// Who wants to hear that a ledger's pressure changed: the interface through which a lower layer tells a higher one.
//
// note() is called in the middle of the operation that made the change: it only takes the change down, wait-free. deliver() is called
// once the thread's outermost operation is over (in_flight = none, no lane section, no lock): it may call the program's own code.
#pragma once

#include <cstdint>

#include <headroom/pressure.hpp>

#include "flight/thread_state.hpp"

namespace headroom::ledger {

class PressureObserver {
public:
  virtual void note(std::uint64_t sequence, PressureLevel from, PressureLevel to) noexcept = 0;
  /// True when something is left that this thread must come back for after its next operation.
  [[nodiscard]] virtual bool deliver() noexcept = 0;

  PressureObserver(PressureObserver const&) = delete;
  PressureObserver& operator=(PressureObserver const&) = delete;
  /// Only of one that no ledger and no list ever had: others live as long as the process, since an operation may be about to call them.
  virtual ~PressureObserver() = default;

protected:
  PressureObserver() = default;

private:
  friend void add_observer(PressureObserver& observer) noexcept;
  friend void deliver_notices(flight::ThreadState& thread) noexcept;
  PressureObserver* next_ = nullptr;  // written before it is in the list, then constant
};

/// Puts the observer into the list of those that deliver_notices asks. Once for each, for ever.
void add_observer(PressureObserver& observer) noexcept;

/// Lets every observer deliver what it has.
void deliver_notices(flight::ThreadState& thread) noexcept;

/// At the end of operations, outside every lane section and lock. Costs a load while nothing is due.
inline void deliver_notices_if_due(flight::ThreadState& thread) noexcept {
  if (thread.notices_due.load(std::memory_order_relaxed) && thread.in_flight_depth == 0) [[unlikely]] {
    deliver_notices(thread);
  }
}

}  // namespace headroom::ledger
