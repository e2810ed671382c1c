// The listeners of one ledger's pressure state, and the queue between the operations and them.
//
// How a change comes from the operation that made it to the listeners, in order and without a lock, is notice_queue.hpp. What listeners
// may do and expect is written in <headroom/pressure_listener.hpp>.
//
// Ownership: one for each ledger that was ever listened to; lives as long as the process, like ledgers do.
// Thread safety: every member, from any thread and from inside any callback.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/pressure_listener.hpp>

#include "base/atomics.hpp"
#include "base/test_wait.hpp"
#include "guard/callback_scope.hpp"
#include "guard/notice_queue.hpp"
#include "ledger/ledger.hpp"
#include "ledger/observer.hpp"

namespace headroom::guard {

[[nodiscard]] tl::unexpected<Error> no_memory_for_a_listener() noexcept;

class PressureListeners final : public ledger::PressureObserver {
public:
  static constexpr std::size_t kQueue = 64;
  static constexpr std::uint64_t kMostInOneCall = 256;  // of changes that listeners made
  static constexpr std::chrono::seconds kLongestWaitForRun{1};

  /// The listeners of `ledger`, made at the first call. Errors: io (no memory).
  [[nodiscard]] static Result<PressureListeners*> of(ledger::Ledger& ledger);

  /// Hears every change after this call. Errors: invalid_argument (an empty function).
  [[nodiscard]] Result<ListenerId> add(PressureListener listener);
  /// True when there was one of that id. Waits for a run of it elsewhere, as <headroom/pressure_listener.hpp> says.
  bool remove(ListenerId id, std::chrono::nanoseconds longest_wait = kLongestWaitForRun);
  [[nodiscard]] std::size_t size() const;

  struct Totals {
    std::uint64_t calls = 0;     ///< of listeners
    std::uint64_t failures = 0;  ///< calls that threw
    std::uint64_t dropped = 0;   ///< changes that the queue was too short for, while there were listeners
  };
  [[nodiscard]] Totals totals() const noexcept;

  void note(std::uint64_t sequence, PressureLevel from, PressureLevel to) noexcept override;
  [[nodiscard]] bool deliver() noexcept override;

private:
  struct Entry;
  using EntryPtr = std::shared_ptr<Entry>;

  ~PressureListeners() override = default;  // only of one that lost the race to be the first
  explicit PressureListeners(ledger::Ledger& ledger) noexcept : ledger_{ledger} {}
  void tell_all(Noted const& noted) noexcept;
  void tell(Entry& entry, PressureChange const& change) noexcept;
  [[nodiscard]] PressureChange change_of(Noted const& noted) const noexcept;

  ledger::Ledger& ledger_;
  NoticeQueue<StdAtomics, kQueue> queue_;
  // Sums that stand for themselves: relaxed.
  std::atomic<std::uint64_t> calls_{0}, failures_{0}, dropped_{0};

  mutable std::mutex mutex_;  // the list and who runs; never held over a call
  RunEnded run_ended_;
  std::vector<EntryPtr> list_;  // in order of registration
  Entry* running_ = nullptr;    // the listener being called, if any
};

}  // namespace headroom::guard
