#include "guard/hook_registry.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <optional>
#include <tuple>
#include <utility>

#include "base/clock.hpp"
#include "base/test_point.hpp"
#include "base/thrown_error.hpp"
#include "flight/recorder.hpp"
#include "guard/deadline.hpp"
#include "guard/hook_telemetry.hpp"
#include "manager/errors.hpp"

namespace headroom::guard {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

std::uint64_t claimed_by(ledger::Ledger const& ledger) noexcept {
  return ledger.cell().claim.load(std::memory_order_seq_cst) & flight::kBytesMask;
}

std::uint64_t headroom_of(ledger::Ledger const& ledger) noexcept {
  const std::uint64_t limit = ledger.limit_word();
  const std::uint64_t most = (limit & flight::kLimitNone) != 0 ? flight::kBytesMask : limit & flight::kBytesMask;
  const std::uint64_t claimed = claimed_by(ledger);
  return most > claimed ? most - claimed : 0;
}

std::int64_t fall(std::uint64_t before, std::uint64_t after) noexcept {
  return static_cast<std::int64_t>(before) - static_cast<std::int64_t>(after);  // 44 bits each
}

std::uint64_t nanoseconds_of(nanoseconds time) noexcept { return static_cast<std::uint64_t>(time.count()); }

/// What is really used: an emergency reserve that lent some bytes for a while claims them back later.
std::uint64_t in_use_by(ledger::Ledger const& ledger) noexcept {
  const std::uint64_t claimed = claimed_by(ledger);
  const std::uint64_t unspent = ledger.cell().unspent.load(std::memory_order_acquire);
  return claimed > unspent ? claimed - unspent : 0;
}

/// Adds up what this thread takes from a ledger and frees to it while it lives. Hooks never nest on a thread, so one is enough.
class FreedHere {
public:
  explicit FreedHere(ledger::Ledger const& ledger) noexcept : thread_{flight::this_thread()} {
    thread_.watched_taken_bytes = 0;
    thread_.watched_freed_bytes = 0;
    thread_.watched_ledger = &ledger.cell();
  }
  ~FreedHere() { thread_.watched_ledger = nullptr; }
  FreedHere(FreedHere const&) = delete;
  FreedHere& operator=(FreedHere const&) = delete;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return thread_.watched_freed_bytes; }
  [[nodiscard]] std::uint64_t taken() const noexcept { return thread_.watched_taken_bytes; }

private:
  flight::ThreadState& thread_;
};

}  // namespace

struct HookRegistry::Entry {
  Entry(OomHook given, HookId number, flight::HookPlace const& where, ledger::Ledger& ledger)
      : hook{std::move(given)}, id{number}, place{where}, telemetry{where, ledger} {}
  ~Entry() { flight::give_hook_cell_back(place); }
  Entry(Entry const&) = delete;
  Entry& operator=(Entry const&) = delete;

  [[nodiscard]] auto order() const noexcept {
    return std::tuple{hook.priority, ~hook.estimated_free_bytes, id};  // complement: the larger estimate first
  }

  const OomHook hook;
  const HookId id;
  const flight::HookPlace place;
  const HookTelemetry telemetry;
  // All under the registry's mutex.
  bool removed = false;
  bool running = false;
  bool overrun_noted = false;  // of the present run
  std::uint64_t run = 0;       // number of the present or last run
  std::uint64_t start_ticks = 0;
  std::uint32_t thread = 0;  // that runs it
  bool last_run_made_progress = false;
};

/// One round: the turns of a list of hooks, on this thread.
class HookRegistry::Round {
public:
  Round(HookRegistry& registry, HookRound const& asked) noexcept : registry_{registry}, asked_{asked}, context_{asked.context} {}

  RoundResult run(List const& list) noexcept {
    const std::uint64_t claimed_before = claimed_by(registry_.ledger_);
    for (EntryPtr const& entry : list) {
      if (asked_.ends_at_deadline && context_.deadline && steady_now() >= *context_.deadline) {
        result_.end = RoundEnd::deadline;
        break;
      }
      if (!take_turn(*entry)) continue;
      if (asked_.try_claim && asked_.try_claim()) {
        result_.end = RoundEnd::claimed;
        break;
      }
      if (flight::in_forked_child()) break;  // forked inside the hook: see run_hook
    }
    result_.ledger_fell_bytes = fall(claimed_before, claimed_by(registry_.ledger_));
    return std::move(result_);
  }

private:
  /// True when memory may have come back.
  bool take_turn(Entry& entry) noexcept {
    HookAsk ask{.requested = context_.requested_bytes,
                .shortfall = asked_.shortfall ? asked_.shortfall() : asked_.context.shortfall_bytes,
                .estimate = entry.hook.estimated_free_bytes,
                .overhead = entry.hook.execution_overhead_bytes,
                .headroom = asked_.headroom ? asked_.headroom() : headroom_of(registry_.ledger_),
                .limit_ns = nanoseconds_of(entry.hook.time_limit)};
    context_.shortfall_bytes = ask.shortfall;
    HookTurn turn{.id = entry.id, .name = {}, .estimated_bytes = ask.estimate};
    switch (begin(entry, ask, turn)) {
      case Begin::gone: return false;
      case Begin::mine: run_hook(entry, ask, turn); break;
      case Begin::over: break;
    }
    const bool skipped = turn.outcome == HookOutcome::skipped_large || turn.outcome == HookOutcome::skipped_busy;
    if (skipped) registry_.skips_.fetch_add(1, std::memory_order_relaxed);
    // A run that was waited for in vain may have given up memory all the same: who waited looks.
    const bool may_have_come_back = turn.outcome != HookOutcome::skipped_large;
    note(entry, std::move(turn));
    return may_have_come_back;
  }

  enum class Begin : std::uint8_t {
    gone,  ///< removed meanwhile: no turn
    mine,  ///< this thread runs it now
    over,  ///< its turn is over, or it has none: `turn.outcome` says how
  };

  Begin begin(Entry& entry, HookAsk const& ask, HookTurn& turn) noexcept {
    std::unique_lock lock{registry_.mutex_};
    if (entry.removed) return Begin::gone;
    if (ask.overhead > ask.headroom) {
      lock.unlock();
      turn.outcome = HookOutcome::skipped_large;
      entry.telemetry.skip(ask, flight::HookSkip::large, nanoseconds::zero());
      return Begin::over;
    }
    if (!entry.running) {
      entry.running = true;
      entry.overrun_noted = false;
      ++entry.run;
      entry.start_ticks = ticks_now();
      entry.thread = flight::this_thread().thread_id;
      return Begin::mine;
    }
    wait_for_run(lock, entry, ask, turn);
    return Begin::over;
  }

  void wait_for_run(std::unique_lock<std::mutex>& lock, Entry& entry, HookAsk const& ask, HookTurn& turn) noexcept {
    const std::uint64_t run = entry.run;
    const std::uint64_t claimed_before = claimed_by(registry_.ledger_);
    const auto start = steady_now();
    auto until = after(start, entry.hook.time_limit);
    if (context_.deadline) until = std::min(until, *context_.deadline);
    if (asked_.before_wait) {
      lock.unlock();
      asked_.before_wait();
      lock.lock();  // the run may be over by now: the wait then ends at once
    }
    test_point(TestPoint::hook_before_wait);
    const bool ended = registry_.run_ended_.wait_until(lock, until, [&] { return !entry.running || entry.run != run; });
    const bool progress = ended && entry.last_run_made_progress;
    const auto end = steady_now();
    // Two clocks: who waited for the whole limit has seen the run exceed it.
    const bool too_long = !ended && end >= after(start, entry.hook.time_limit);
    const std::uint64_t ticks_ns = flight::recorder.to_ns(ticks_now() - entry.start_ticks);
    const std::uint64_t ns = too_long ? std::max(ticks_ns, ask.limit_ns) : ticks_ns;
    const std::uint64_t start_ticks = entry.start_ticks;
    const std::uint32_t thread = entry.thread;
    const bool notice = (too_long || (!ended && ns > ask.limit_ns)) && !std::exchange(entry.overrun_noted, true);
    lock.unlock();
    turn.duration = end - start;
    turn.ledger_fell_bytes = fall(claimed_before, claimed_by(registry_.ledger_));
    turn.outcome = ended ? HookOutcome::ran_elsewhere : HookOutcome::skipped_busy;
    if (progress || turn.ledger_fell_bytes > 0) result_.made_progress = true;
    if (notice) entry.telemetry.overrun(ask.limit_ns, ns, start_ticks, thread);
    entry.telemetry.skip(ask, ended ? flight::HookSkip::elsewhere : flight::HookSkip::busy, turn.duration);
  }

  void run_hook(Entry& entry, HookAsk const& ask, HookTurn& turn) noexcept {
    // start_ticks is this thread's to read until it says that the run is over.
    const bool shown = entry.telemetry.begin(ask, entry.start_ticks);
    const std::uint64_t claimed_before = claimed_by(registry_.ledger_);
    const std::uint64_t used_before = in_use_by(registry_.ledger_);
    std::uint64_t taken = 0;
    HookRunFigures run;
    {
      const CallbackScope inside{Callback::hook};
      const FreedHere freed{registry_.ledger_};
      try {
        run.reported = std::min(entry.hook.callback(context_), kMostReported);
      } catch (...) {
        run.threw = true;
      }
      run.freed = freed.bytes();
      taken = freed.taken();
    }
    // A child that was forked inside the hook and returns here: who held the locks is a thread that it does not have.
    if (flight::in_forked_child()) return;
    run.ns = flight::recorder.to_ns(ticks_now() - entry.start_ticks);
    run.ledger_fell = fall(claimed_before, claimed_by(registry_.ledger_));
    // Net: scratch memory that came and went is none. Beside such, what the ledger says is the others' doing only where use fell too.
    const bool others_freed = run.ledger_fell > 0 && (taken == 0 || fall(used_before, in_use_by(registry_.ledger_)) > 0);
    const bool progress = run.freed > taken || others_freed;
    bool notice = false;
    {
      const std::scoped_lock lock{registry_.mutex_};
      run.overran = run.ns > ask.limit_ns || entry.overrun_noted;
      notice = run.overran && !std::exchange(entry.overrun_noted, true);
    }
    // Written down before anybody learns that it ended: who waited for it finds its figures.
    if (notice) entry.telemetry.overrun(ask.limit_ns, run.ns, entry.start_ticks, entry.thread);
    entry.telemetry.end(ask, run, shown);
    {
      const std::scoped_lock lock{registry_.mutex_};
      entry.running = false;
      entry.last_run_made_progress = progress;
    }
    registry_.run_ended_.notify_all();
    count(run);
    if (progress) result_.made_progress = true;
    turn.outcome = run.threw ? HookOutcome::threw : HookOutcome::ran;
    turn.overran = run.overran;
    turn.reported_bytes = run.reported;
    turn.freed_bytes = run.freed;
    turn.ledger_fell_bytes = run.ledger_fell;
    turn.duration = nanoseconds{run.ns};
  }

  void count(HookRunFigures const& run) noexcept {
    ++result_.runs;
    result_.failures += run.threw ? 1 : 0;
    result_.reported_bytes += run.reported;
    result_.freed_bytes += run.freed;
    registry_.runs_.fetch_add(1, std::memory_order_relaxed);
    registry_.failures_.fetch_add(run.threw ? 1 : 0, std::memory_order_relaxed);
    registry_.reported_bytes_.fetch_add(run.reported, std::memory_order_relaxed);
    registry_.freed_bytes_.fetch_add(run.freed, std::memory_order_relaxed);
  }

  // Without memory for it the turn is in the sums and in the flight file all the same.
  void note(Entry const& entry, HookTurn&& turn) noexcept {
    try {
      turn.name = entry.hook.name;
      result_.turns.push_back(std::move(turn));
    } catch (...) {
      return;
    }
  }

  HookRegistry& registry_;
  HookRound const& asked_;
  HookContext context_;
  RoundResult result_;
};

HookRegistry::HookRegistry(ledger::Ledger& ledger) noexcept : ledger_{ledger} {}
HookRegistry::~HookRegistry() = default;

Result<HookId> HookRegistry::add(OomHook hook) {
  if (flight::in_forked_child()) return tl::unexpected{manager::forked_child_error()};
  const auto refuse = [](auto const& text) { return fail(ErrorKind::invalid_argument, Layer::guard, words(text)); };
  if (hook.name.empty()) {
    return refuse([] { return std::string{"a hook needs a name: it is removed and shown by it"}; });
  }
  if (!hook.callback) {
    return refuse([&] { return "hook '" + hook.name + "' has no callback"; });
  }
  if (hook.time_limit <= nanoseconds::zero()) {
    return refuse([&] {
      return "hook '" + hook.name + "' has a time limit of " + std::to_string(hook.time_limit.count()) +
             " ns; more than 0 was expected";
    });
  }
  ListPtr old;  // its last reference goes after the lock
  try {
    const flight::HookPlace place = flight::take_hook_cell(ledger_.directory_id(), hook.name, hook.priority);
    HookId id{};
    EntryPtr entry;
    {
      const std::scoped_lock lock{mutex_};
      id = HookId{next_id_++};
    }
    try {
      entry = std::make_shared<Entry>(std::move(hook), id, place, ledger_);
    } catch (...) {
      flight::give_hook_cell_back(place);
      throw;
    }
    const std::scoped_lock lock{mutex_};
    auto list = without_removed();
    const auto before = [](EntryPtr const& a, EntryPtr const& b) { return a->order() < b->order(); };
    list->insert(std::ranges::upper_bound(*list, entry, before), entry);
    old = std::exchange(list_, std::move(list));
    return id;
  } catch (std::bad_alloc const&) {
    return fail(ErrorKind::io, Layer::guard, words([] { return std::string{"the system has no memory for one more hook"}; }));
  }
}

bool HookRegistry::remove(std::string_view name) {
  if (flight::in_forked_child()) return false;
  ListPtr old;  // the callbacks of what is removed are destroyed with it: under no lock
  std::unique_lock lock{mutex_};
  if (!list_) return false;
  old = list_;
  const auto is_meant = [&](EntryPtr const& entry) { return !entry->removed && entry->hook.name == name; };
  if (std::ranges::none_of(*old, is_meant)) return false;
  // Whoever is inside a callback may be what the run that we would wait for is waiting for.
  const bool wait = !inside_callback();
  for (EntryPtr const& entry : *old) {
    if (is_meant(entry)) entry->removed = true;
  }
  drop_removed();
  const auto begin = steady_now();  // for all of that name: the limits do not add up
  for (EntryPtr const& entry : *old) {
    if (!wait || entry->hook.name != name || !entry->running) continue;
    const std::uint64_t run = entry->run;
    test_point(TestPoint::removal_before_wait);
    static_cast<void>(
        run_ended_.wait_until(lock, after(begin, entry->hook.time_limit), [&] { return !entry->running || entry->run != run; }));
  }
  lock.unlock();
  return true;
}

std::shared_ptr<HookRegistry::List> HookRegistry::without_removed() const {
  auto kept = std::make_shared<List>();
  if (list_) std::ranges::copy_if(*list_, std::back_inserter(*kept), [](EntryPtr const& entry) { return !entry->removed; });
  return kept;
}

// Without memory for a shorter list they stay in the present one, marked, until the next change of the list.
void HookRegistry::drop_removed() noexcept {
  try {
    list_ = without_removed();
  } catch (...) {
    return;
  }
}

std::size_t HookRegistry::size() const {
  if (flight::in_forked_child()) return 0;  // its mutex may have been held, at the fork, by a thread that the child does not have
  const std::scoped_lock lock{mutex_};
  if (!list_) return 0;
  return static_cast<std::size_t>(std::ranges::count_if(*list_, [](EntryPtr const& entry) { return !entry->removed; }));
}

RoundResult HookRegistry::run_round(HookRound const& round) {
  RoundResult nothing;
  if (inside_hook()) nothing.end = RoundEnd::inside_hook;
  if (inside_hook() || flight::in_forked_child()) return nothing;
  ListPtr list;
  {
    const std::scoped_lock lock{mutex_};
    list = list_;
  }
  return list ? Round{*this, round}.run(*list) : nothing;
}

HookRegistry::Totals HookRegistry::totals() const noexcept {
  return {.runs = runs_.load(std::memory_order_relaxed),
          .failures = failures_.load(std::memory_order_relaxed),
          .skips = skips_.load(std::memory_order_relaxed),
          .reported_bytes = reported_bytes_.load(std::memory_order_relaxed),
          .freed_bytes = freed_bytes_.load(std::memory_order_relaxed)};
}

}  // namespace headroom::guard
