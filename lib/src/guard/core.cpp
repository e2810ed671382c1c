#include "guard/core.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/thrown_error.hpp"
#include "flight/recorder.hpp"
#include "ledger/waiting.hpp"
#include "manager/errors.hpp"

namespace headroom::guard {

Core::Core(GpuMemoryManager manager, Options const& options)
    : manager_{std::move(manager)},
      route_{manager::RouteAccess::of(manager_)},
      options_{options},
      policy_{options.policy.word()},
      hooks_{route_.ledger()} {}

Core::~Core() {
  // The mutexes may have been held, at the fork, by threads that the child does not have.
  if (flight::in_forked_child()) return;
  for (const ListenerId id : std::exchange(listeners_, {})) {
    if (auto listeners = PressureListeners::of(ledger())) (*listeners)->remove(id);
  }
}

void Core::set_policy(OomPolicy policy) noexcept {
  policy_.store(policy.word(), std::memory_order_seq_cst);
  ledger().wake_waiters();
  tell_of_change();
}

void Core::set_budget(std::uint64_t bytes) {
  manager_.set_budget(bytes == 0 ? MemoryBudget::unlimited() : MemoryBudget::with_limit(bytes));
  tell_of_change();
}

void Core::tell_of_change() noexcept {
  changes_.fetch_add(1, std::memory_order_seq_cst);
  ledger::wake_all(changes_);
}

Result<ListenerId> Core::add_listener(PressureListener listener) {
  // As in the destructor.
  if (flight::in_forked_child()) return tl::unexpected{manager::forked_child_error()};
  auto listeners = PressureListeners::of(ledger());
  if (!listeners) return tl::unexpected{std::move(listeners.error())};
  try {
    // Room first: one that hears already and is on no list would outlive the guard.
    const std::scoped_lock lock{listeners_mutex_};
    listeners_.reserve(listeners_.size() + adding_ + 1);
    ++adding_;
  } catch (std::bad_alloc const&) {
    return no_memory_for_a_listener();
  }
  Result<ListenerId> id = (*listeners)->add(std::move(listener));
  const std::scoped_lock lock{listeners_mutex_};
  --adding_;
  if (id) listeners_.push_back(*id);
  return id;
}

bool Core::remove_listener(ListenerId id) {
  if (flight::in_forked_child()) return false;  // as in the destructor
  {
    const std::scoped_lock lock{listeners_mutex_};
    // Another guard's, or one that was removed.
    if (std::erase(listeners_, id) == 0) return false;
  }
  const auto listeners = PressureListeners::of(ledger());
  return listeners && (*listeners)->remove(id);
}

}  // namespace headroom::guard
