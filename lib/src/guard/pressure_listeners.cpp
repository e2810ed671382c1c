#include "guard/pressure_listeners.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/test_point.hpp"
#include "base/thrown_error.hpp"
#include "flight/recorder.hpp"
#include "manager/errors.hpp"

namespace headroom::guard {
namespace {

// A signal handler that interrupts the holder of a list's mutex must not wait for it: it leaves the notice to this thread's next
// operation.
thread_local constinit std::atomic<bool> holding{false};

// Listeners that this thread is in, of whichever ledger: what changes meanwhile is their doing. This thread's only.
thread_local constinit std::uint32_t listeners_here = 0;

class [[nodiscard]] ListLock {
public:
  explicit ListLock(std::mutex& mutex) : lock_{mutex, std::defer_lock} {
    holding.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    lock_.lock();
    test_point(TestPoint::listeners_locked);
  }
  ~ListLock() {
    lock_.unlock();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    holding.store(false, std::memory_order_relaxed);
  }
  ListLock(ListLock const&) = delete;
  ListLock& operator=(ListLock const&) = delete;
  [[nodiscard]] std::unique_lock<std::mutex>& inner() noexcept { return lock_; }

private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace

tl::unexpected<Error> no_memory_for_a_listener() noexcept {
  return fail(ErrorKind::io, Layer::guard, words([] { return std::string{"the system has no memory for one more listener"}; }));
}

struct PressureListeners::Entry {
  PressureListener listener;
  ListenerId id{};
  std::uint64_t after = 0;  // hears what is numbered higher
};

Result<PressureListeners*> PressureListeners::of(ledger::Ledger& ledger) {
  if (auto* const present = ledger.observer(); present != nullptr) return static_cast<PressureListeners*>(present);
  auto* const fresh = new (std::nothrow) PressureListeners{ledger};
  if (fresh == nullptr) return no_memory_for_a_listener();
  auto* const first = static_cast<PressureListeners*>(&ledger.observe(*fresh));
  if (first == fresh) {
    ledger::add_observer(*fresh);
  } else {
    delete fresh;  // nobody else ever saw it
  }
  return first;
}

Result<ListenerId> PressureListeners::add(PressureListener listener) {
  if (flight::in_forked_child()) return tl::unexpected{manager::forked_child_error()};
  if (!listener) {
    return fail(ErrorKind::invalid_argument, Layer::guard,
                words([] { return std::string{"an empty function was given as a pressure listener"}; }));
  }
  // Never used twice, in no list: ids of different guards cannot be mixed up.
  static std::atomic<std::uint64_t> next_id{1};  // any thread; relaxed: only distinctness matters
  try {
    auto entry = std::make_shared<Entry>();
    entry->listener = std::move(listener);
    const ListLock lock{mutex_};
    entry->id = ListenerId{next_id.fetch_add(1, std::memory_order_relaxed)};
    list_.push_back(entry);
    // A change that is numbered higher was made after this load, hence finds the observer: none is missing for this listener.
    entry->after = ledger_.notice_number();
    // Changes made before there was an observer were never noted. Nobody waits for them.
    if (list_.size() == 1) queue_.skip_to(entry->after);
    return entry->id;
  } catch (std::bad_alloc const&) {
    return no_memory_for_a_listener();
  }
}

bool PressureListeners::remove(ListenerId id, std::chrono::nanoseconds longest_wait) {
  if (flight::in_forked_child()) return false;
  EntryPtr gone;  // destroyed after the lock
  ListLock lock{mutex_};
  const auto found = std::ranges::find_if(list_, [&](EntryPtr const& entry) { return entry->id == id; });
  if (found == list_.end()) return false;
  gone = std::move(*found);
  list_.erase(found);
  // Whoever is inside a callback may be what the run that we would wait for is waiting for.
  if (!inside_callback() && running_ == gone.get()) {
    test_point(TestPoint::removal_before_wait);
    static_cast<void>(run_ended_.wait_until(lock.inner(), steady_now() + longest_wait, [&] { return running_ != gone.get(); }));
  }
  return true;
}

std::size_t PressureListeners::size() const {
  if (flight::in_forked_child()) return 0;  // as for HookRegistry
  const ListLock lock{mutex_};
  return list_.size();
}

PressureListeners::Totals PressureListeners::totals() const noexcept {
  return {.calls = calls_.load(std::memory_order_relaxed),
          .failures = failures_.load(std::memory_order_relaxed),
          .dropped = dropped_.load(std::memory_order_relaxed)};
}

void PressureListeners::note(std::uint64_t sequence, PressureLevel from, PressureLevel to) noexcept {
  queue_.note({.number = sequence, .from = from, .to = to, .by_listener = listeners_here != 0});
}

bool PressureListeners::deliver() noexcept {
  // Listeners are the parent's, and their mutex may have been held at the fork.
  if (flight::in_forked_child()) return false;
  if (holding.load(std::memory_order_relaxed)) return true;
  return queue_.deliver(
      kMostInOneCall, [this](Noted const& noted) { tell_all(noted); },
      [this](std::uint64_t count) {
        if (size() != 0) dropped_.fetch_add(count, std::memory_order_relaxed);
      });
}

void PressureListeners::tell_all(Noted const& noted) noexcept {
  ListenerId last{};
  while (!flight::in_forked_child()) {
    EntryPtr entry;  // keeps a listener that removes itself until it returned
    {
      const ListLock lock{mutex_};
      const auto found = std::ranges::find_if(
          list_, [&](EntryPtr const& candidate) { return candidate->id > last && candidate->after < noted.number; });
      if (found == list_.end()) return;
      entry = *found;
      running_ = entry.get();
    }
    last = entry->id;
    tell(*entry, change_of(noted));
    if (flight::in_forked_child()) return;  // forked inside the listener
    {
      const ListLock lock{mutex_};
      running_ = nullptr;
    }
    run_ended_.notify_all();
  }
}

void PressureListeners::tell(Entry& entry, PressureChange const& change) noexcept {
  const CallbackScope inside{Callback::listener};
  ++listeners_here;
  calls_.fetch_add(1, std::memory_order_relaxed);
  try {
    entry.listener(change);
  } catch (...) {
    failures_.fetch_add(1, std::memory_order_relaxed);
  }
  --listeners_here;
}

PressureChange PressureListeners::change_of(Noted const& noted) const noexcept {
  const std::uint64_t limit = ledger_.limit_word();
  PressureChange change{.sequence = noted.number - ledger_.notice_base(),
                        .from = noted.from,
                        .to = noted.to,
                        .used_bytes = ledger_.cell().claim.load(std::memory_order_relaxed) & flight::kBytesMask,
                        .budget_bytes = {}};
  if ((limit & flight::kLimitNone) == 0) change.budget_bytes = limit & flight::kBytesMask;
  return change;
}

}  // namespace headroom::guard
