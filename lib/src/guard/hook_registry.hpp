// The hooks of one guard, and the rounds in which they are called.
//
// The list is copied on write: a round works on the list that it found and calls hooks under no lock. The mutex is held over the list
// and over who runs what, never over a call. What hooks may do and expect is written in <headroom/hook.hpp>.
//
// Ownership: belongs to a guard, and must live until its last round is over.
// Thread safety: every member, from any thread and from inside any callback. Cost: none for a request that fits.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <headroom/error.hpp>
#include <headroom/hook.hpp>

#include "base/test_wait.hpp"
#include "guard/callback_scope.hpp"
#include "ledger/ledger.hpp"

namespace headroom::guard {

enum class HookId : std::uint64_t {};

enum class HookOutcome : std::uint8_t {
  ran,
  threw,
  ran_elsewhere,  ///< another thread ran it while this one waited; that was its turn, and is written down as no skip
  skipped_large,  ///< its overhead was greater than the headroom
  skipped_busy,   ///< it ran on another thread for longer than its limit, or than this request's deadline; the request is tried
};

/// One hook's turn in a round, in the order of turns.
struct HookTurn {
  HookId id{};
  std::string name;
  HookOutcome outcome{};
  bool overran = false;  ///< the run took longer than the hook's limit
  std::uint64_t reported_bytes = 0;
  std::uint64_t estimated_bytes = 0;
  std::uint64_t freed_bytes = 0;        ///< to this ledger, on the hook's thread, during its run
  std::int64_t ledger_fell_bytes = 0;   ///< by how much claimed fell meanwhile, whoever did it; negative: it rose
  std::chrono::nanoseconds duration{};  ///< of the run, or of the wait for one
};

enum class RoundEnd : std::uint8_t {
  claimed,      ///< try_claim said yes
  exhausted,    ///< every hook had its turn
  deadline,     ///< it passed
  inside_hook,  ///< asked for inside a hook: nothing was called
};

struct HookRound {
  /// device, requested, attempt, deadline, budget: as given; shortfall: of the first turn, and of all when `shortfall` is empty.
  HookContext context;
  /// Tries the request itself, or the claim for it. Called after each run and each wait for one, under no lock. Must not
  /// throw.
  std::function<bool()> try_claim;
  /// Present headroom, for hooks with an overhead. Empty: limit − claimed of the ledger.
  std::function<std::uint64_t()> headroom;
  /// What is missing now, asked before each hook is called. Empty: the context's figure for all.
  std::function<std::uint64_t()> shortfall;
  /// Called before this thread waits for another one's run of a hook, under no lock. Must not throw. Empty: nobody wants to know.
  std::function<void()> before_wait;
  /// False: once the context's deadline has passed nobody is waited for, but hooks still have their turns.
  bool ends_at_deadline = true;
};

struct RoundResult {
  RoundEnd end = RoundEnd::exhausted;
  std::vector<HookTurn> turns;
  std::uint64_t runs = 0;
  std::uint64_t failures = 0;        ///< that threw
  std::uint64_t reported_bytes = 0;  ///< sums over the turns
  std::uint64_t freed_bytes = 0;
  std::int64_t ledger_fell_bytes = 0;  ///< from the beginning of the round to its end
  [[nodiscard]] bool claimed() const noexcept { return end == RoundEnd::claimed; }
  /// False: another round would do the same again. True when a hook freed more than it took, or the ledger's claimed bytes fell during
  /// the run of a hook, its own thread's or another's, by more than scratch memory that it had of a reserve.
  bool made_progress = false;
};

/// No hook frees more than a ledger can hold: what one reports beyond that counts as that.
inline constexpr std::uint64_t kMostReported = flight::kBytesMask;

class HookRegistry {
public:
  explicit HookRegistry(ledger::Ledger& ledger) noexcept;
  ~HookRegistry();
  HookRegistry(HookRegistry const&) = delete;
  HookRegistry& operator=(HookRegistry const&) = delete;

  /// Errors: invalid_argument (no callback; no name; a time limit that is not positive).
  [[nodiscard]] Result<HookId> add(OomHook hook);
  /// Removes every hook of that name; true when there was one. Waits as <headroom/hook.hpp> says.
  bool remove(std::string_view name);
  [[nodiscard]] std::size_t size() const;

  /// Calls hooks until try_claim says yes. Never throws, and calls nothing inside a hook.
  [[nodiscard]] RoundResult run_round(HookRound const& round);

  /// Over the life of the registry.
  struct Totals {
    std::uint64_t runs = 0, failures = 0, skips = 0;
    std::uint64_t reported_bytes = 0, freed_bytes = 0;
  };
  [[nodiscard]] Totals totals() const noexcept;

private:
  struct Entry;
  using EntryPtr = std::shared_ptr<Entry>;
  using List = std::vector<EntryPtr>;
  using ListPtr = std::shared_ptr<List const>;
  class Round;

  /// A new list of those that are not removed, under the mutex. Throws when there is no memory for it.
  [[nodiscard]] std::shared_ptr<List> without_removed() const;
  void drop_removed() noexcept;

  ledger::Ledger& ledger_;
  mutable std::mutex mutex_;  // the list, and the running state of every entry
  RunEnded run_ended_;
  ListPtr list_;
  std::uint64_t next_id_ = 1;
  // Written by the threads of rounds, read by totals(); relaxed: sums that stand for themselves.
  std::atomic<std::uint64_t> runs_{0}, failures_{0}, skips_{0}, reported_bytes_{0}, freed_bytes_{0};
};

}  // namespace headroom::guard
