#include "manager/failure_observer.hpp"

#include <atomic>

#include "flight/thread_state.hpp"

namespace headroom::manager {
namespace {

// Written once, by observe_failures (release); read by whoever failed (acquire): finds the observer whole.
constinit std::atomic<FailureObserver*> observing{nullptr};

}  // namespace

void observe_failures(FailureObserver& observer) noexcept { observing.store(&observer, std::memory_order_release); }

void tell_of_failure(Error const& error, ledger::Ledger& ledger, AllocTag tag, std::source_location const& site) noexcept {
  FailureObserver* const observer = observing.load(std::memory_order_acquire);
  if (observer == nullptr) return;
  flight::ThreadState const& thread = flight::this_thread();
  // A resource that allocates through another manager, or a signal handler's request: the outer operation is not over.
  if (thread.in_flight_depth != 0 || thread.writing.load(std::memory_order_relaxed)) return observer->passed_over();
  observer->failed({.error = error, .ledger = ledger, .tag = tag.is_default() ? thread.scoped_tag : tag.id(), .site = site});
}

}  // namespace headroom::manager
