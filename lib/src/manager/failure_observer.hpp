// Who wants to hear that a request failed for good: the interface through which managers and guards tell a higher layer.
//
// Called on the thread that failed, after its operation is over: in_flight = none, no lane section, no lock. A manager tells when the
// device is out of memory, a guard when hooks and policy have not helped; what a guard may still mend is told by nobody.
#pragma once

#include <cstdint>
#include <source_location>

#include <headroom/error.hpp>
#include <headroom/tag.hpp>

#include "ledger/ledger.hpp"

namespace headroom::manager {

struct FinalFailure {
  Error const& error;
  ledger::Ledger& ledger;
  std::uint16_t tag = 0;  ///< the number of an AllocTag
  std::source_location const& site;
};

class FailureObserver {
public:
  FailureObserver() = default;
  FailureObserver(FailureObserver const&) = delete;
  FailureObserver& operator=(FailureObserver const&) = delete;
  virtual void failed(FinalFailure const& failure) noexcept = 0;
  /// One that is not told: it failed within another operation, where neither rings nor books may be looked at. Anywhere, signal handlers
  /// included.
  virtual void passed_over() noexcept = 0;

protected:
  ~FailureObserver() = default;  // lives as long as the process: a request may be about to call it
};

/// The one observer there is. It lives as long as the process.
void observe_failures(FailureObserver& observer) noexcept;

/// Lets the observer make its preparations; called when a manager is opened, outside every lock. Defined by the layer that observes
/// (dump): whoever links a manager has it, and nobody needs to ask for it.
void start_observing_failures() noexcept;

/// Tells the observer, if there is one, or says that it does not. `tag` is as in AllocArguments: default means the thread's scoped one.
void tell_of_failure(Error const& error, ledger::Ledger& ledger, AllocTag tag, std::source_location const& site) noexcept;

}  // namespace headroom::manager
