#include "guard/recovery.hpp"

#include <algorithm>
#include <utility>

#include <headroom/byte_size.hpp>

#include "base/test_wait.hpp"
#include "guard/attempt.hpp"
#include "guard/policy_records.hpp"
#include "manager/errors.hpp"
#include "manager/failure_observer.hpp"
#include "manager/shortage.hpp"

namespace headroom::guard {

using flight::PolicyStep;
namespace {

// Copies no words, and needs no memory.
Error figures_of(Error& error) noexcept {
  std::string message = std::exchange(error.message, {});
  Error figures = error;
  error.message = std::move(message);
  return figures;
}

}  // namespace

Recovery::Recovery(Core& core, Request const& request, std::source_location const& site, manager::Allocation& allocation,
                   Error first)
    : core_{core.shared_from_this()},
      request_{request},
      site_{site},
      allocation_{allocation},
      first_{std::move(first)},
      last_{figures_of(first_)},
      policy_{core_->policy()},
      started_{steady_now()},
      checkpoint_mark_{core_->checkpoint().mark()} {}

std::optional<Error> Recovery::run() {
  // Depth 1: what hooks and the callback ask for has neither hooks nor a policy, or freeing memory could wait for itself.
  if (inside_hook() || inside_checkpoint()) {
    policy_ = OomPolicy::fail();
    return from_reserve() ? recovered() : gave_up();
  }
  if (request_.hooks && by_hooks()) return recovered();
  if (!broken_ && by_policy()) return recovered();
  if (!broken_ && by_reservation()) return recovered();
  if (policy_.kind() == OomPolicy::Kind::checkpoint_and_fail) call_back();
  return gave_up();
}

bool Recovery::try_again() {
  // What a hook had of the emergency reserve for a moment is not this request's to take.
  core_->refill_reserve();
  manager::AllocArguments arguments = request_.arguments;
  arguments.again = true;
  std::optional<Error> error = attempt(core_->route(), request_, arguments, site_, allocation_);
  if (!error) return true;
  if (manager::is_shortage(*error)) {
    last_ = std::move(*error);
  } else {
    broken_ = std::move(error);
  }
  return false;
}

bool Recovery::from_reserve() {
  EmergencyReserve& reserve = core_->reserve();
  if (!reserve.exists() || !short_of_own_budget()) return false;
  manager::AllocArguments arguments = request_.arguments;
  arguments.again = true;
  std::optional<Error> error = attempt(reserve.token(), request_, arguments, site_, allocation_);
  if (!error) return true;
  if (!manager::is_shortage(*error)) broken_ = std::move(error);
  return false;
}

// ── hooks ──

bool Recovery::by_hooks() {
  flight::LedgerTallies& tallies = core_->ledger().tallies();
  Device const& device = core_->manager().device();
  HookRound round;
  round.context = {.device_ordinal = device.ordinal(),
                   .device_name = device.name(),
                   .requested_bytes = bytes(),
                   .budget = core_->ledger().budget().limit_bytes(),
                   .deadline = {}};
  if (policy_.kind() == OomPolicy::Kind::wait_and_retry) round.context.deadline = started_ + policy_.timeout();
  // An error that no memory can mend ends the round as well: no further hook gives up its memory for it.
  round.try_claim = [this] { return try_again() || broken_.has_value(); };
  round.headroom = [this] { return room(); };
  round.shortfall = [this] { return shortfall(); };
  round.before_wait = [this] { record_begin(PolicyStep::none); };
  for (std::uint32_t number = 1;; ++number) {
    round.context.attempt = number;
    round.context.shortfall_bytes = shortfall();
    // Every hook has its turn before the policy decides, however short the policy's patience.
    round.ends_at_deadline = number > 1;
    const RoundResult result = core_->hooks().run_round(round);
    tallies.hook_runs.fetch_add(result.runs, std::memory_order_relaxed);
    tallies.hook_freed_bytes.fetch_add(result.freed_bytes, std::memory_order_relaxed);
    tried_.hook_runs += result.runs;
    tried_.hook_failures += result.failures;
    tried_.hook_freed += result.freed_bytes;
    tried_.hook_reported += result.reported_bytes;
    tried_.hook_skips += static_cast<std::uint64_t>(std::ranges::count_if(result.turns, [](HookTurn const& turn) {
      return turn.outcome == HookOutcome::skipped_large || turn.outcome == HookOutcome::skipped_busy;
    }));
    tried_.hooks_elsewhere +=
        static_cast<std::uint64_t>(std::ranges::count(result.turns, HookOutcome::ran_elsewhere, &HookTurn::outcome));
    if (broken_) return false;
    if (result.claimed()) return true;
    if (result.end != RoundEnd::exhausted || !result.made_progress || number >= core_->options().hook_rounds) {
      return false;
    }
  }
}

std::uint64_t Recovery::shortfall() const noexcept {
  if (last_.kind == ErrorKind::over_budget && last_.required && last_.limit) {
    return *last_.required > *last_.limit ? *last_.required - *last_.limit : 0;
  }
  // A device that has room enough, and refuses all the same, is in splinters: there is no telling how much would do.
  return last_.device_free && *last_.device_free < bytes() ? bytes() - *last_.device_free : bytes();
}

std::uint64_t Recovery::room() const noexcept {
  std::uint64_t least = core_->manager().remaining_bytes().value_or(~std::uint64_t{0});
  // A budget of the device has figures of its own, as it was when it refused.
  if (last_.layer != Layer::manager && last_.limit && last_.current) {
    least = std::min(least, *last_.limit - std::min(*last_.current, *last_.limit));
  }
  if (last_.kind == ErrorKind::device_out_of_memory) {
    if (const MemoryInfo memory = core_->route().resource().memory_info(); memory.free) least = std::min(least, *memory.free);
  }
  return least;
}

// ── policy ──

bool Recovery::by_policy() {
  const auto count = [this] {
    core_->ledger().tallies().policy_runs[static_cast<std::size_t>(policy_.kind())].fetch_add(1, std::memory_order_relaxed);
  };
  policy_ = core_->policy();
  count();
  if (policy_.kind() == OomPolicy::Kind::wait_and_retry) {
    if (by_waiting()) return true;
    if (broken_) return false;
    // It may have become another policy meanwhile, which then has its turn. No second wait: by_waiting goes on as long as there is one.
    if (policy_.kind() != OomPolicy::Kind::wait_and_retry) count();
  }
  return policy_.kind() == OomPolicy::Kind::retry_after_free && by_retry();
}

bool Recovery::by_retry() {
  const auto begin = steady_now();
  DeviceResource& resource = core_->route().resource();
  const std::uint64_t before = resource.bytes_outstanding();
  // A resource that cannot reap is no reason not to try: the retry says what counts.
  static_cast<void>(manager::reap_all(resource));
  const std::uint64_t after = resource.bytes_outstanding();
  tried_.retried = true;
  tried_.came_back = (before > after ? before - after : 0) + manager::trim_all(resource);
  const bool granted = try_again();
  record(PolicyStep::retried, steady_now() - begin, tried_.came_back, granted);
  return granted;
}

bool Recovery::by_reservation() {
  Sentinel& sentinel = core_->sentinel();
  // Memory outside the budget cannot help a budget.
  const bool could_help = sentinel.is_counted() || !short_of_own_budget();
  if (!core_->options().releases_on_oom || !could_help || can_never_fit()) return false;
  const auto begin = steady_now();
  std::uint64_t released = sentinel.release();
  if (released == 0) {
    if (!sentinel.existed()) return false;
    // Another request may have given it back since this one was refused, or be about to: what comes back helps whoever asks.
    sentinel.wait_for_release();
    if (sentinel.held() == 0) return try_again();
    // Held, since the device refused to take it, perhaps from another one: this one's turn.
    released = sentinel.release();
    if (released == 0) return false;
  }
  tried_.reservation = released;
  const bool granted = try_again();
  record(PolicyStep::reservation_given, steady_now() - begin, released, granted);
  return granted;
}

void Recovery::call_back() {
  const auto begin = steady_now();
  const Checkpoint::Outcome outcome = core_->checkpoint().run(checkpoint_mark_, core_->options().callback_limit,
                                                              [this] { record_begin(PolicyStep::checkpoint); });
  if (outcome == Checkpoint::Outcome::none) return;
  tried_.checkpoint = outcome;
  const bool own = outcome == Checkpoint::Outcome::ran || outcome == Checkpoint::Outcome::threw;
  if (own) core_->ledger().tallies().checkpoints.fetch_add(1, std::memory_order_relaxed);
  record(outcome == Checkpoint::Outcome::threw ? PolicyStep::checkpoint_failed
         : own                                 ? PolicyStep::checkpoint
                                               : PolicyStep::checkpoint_shared,
         steady_now() - begin, bytes(), false);
  // The callback may have had some of the reserve, and no request is tried again that would fill it up.
  core_->refill_reserve();
}

// ── ends ──

std::optional<Error> Recovery::recovered() {
  core_->ledger().tallies().recoveries[static_cast<std::size_t>(policy_.kind())].fetch_add(1, std::memory_order_relaxed);
  record(PolicyStep::recovered, steady_now() - started_, bytes(), true);
  return std::nullopt;
}

std::optional<Error> Recovery::gave_up() {
  if (tried_.anything()) {
    core_->ledger().tallies().gave_up.fetch_add(1, std::memory_order_relaxed);
    record(PolicyStep::gave_up, steady_now() - started_, bytes(), false);
    add_clause(first_, [this] { return tried_.to_string(); });
  }
  if (broken_) {
    add_clause(first_, [this] { return "a later try met another error: " + broken_->to_string(); });
  }
  manager::tell_of_failure(first_, core_->ledger(), request_.arguments.tag, site_);
  return std::move(first_);
}

void Recovery::record(PolicyStep step, std::chrono::nanoseconds duration, std::uint64_t bytes, bool granted) noexcept {
  const AllocTag tag = request_.arguments.tag;
  write_record(core_->ledger(), {.step = step,
                                 .policy = policy_,
                                 .duration = duration,
                                 .bytes = bytes,
                                 .tag = tag.is_default() ? flight::this_thread().scoped_tag : tag.id(),
                                 .refusal = granted ? nullptr : &first_});
}

// A process that dies in what may take long leaves a record that it was in it.
void Recovery::record_begin(PolicyStep begins) noexcept {
  const AllocTag tag = request_.arguments.tag;
  write_record(core_->ledger(), {.step = PolicyStep::begun,
                                 .begins = begins,
                                 .policy = policy_,
                                 .bytes = bytes(),
                                 .tag = tag.is_default() ? flight::this_thread().scoped_tag : tag.id(),
                                 .refusal = &first_});
}

bool Recovery::short_of_own_budget() const noexcept {
  return last_.kind == ErrorKind::over_budget && last_.layer == Layer::manager;
}

// Whatever comes back: the request is larger than all there is.
bool Recovery::can_never_fit() const noexcept {
  if (last_.kind == ErrorKind::over_budget) return last_.limit && bytes() > *last_.limit;
  const MemoryInfo memory = core_->route().resource().memory_info();
  return memory.total && bytes() > *memory.total;
}

bool Recovery::Tried::anything() const noexcept {
  return hook_runs + hook_skips + hooks_elsewhere != 0 || retried || waited || reservation != 0 || checkpoint;
}

std::string Recovery::Tried::to_string() const {
  std::string text;
  const auto add = [&](std::string const& clause) { text += (text.empty() ? "tried: " : ", ") + clause; };
  const auto counted = [](std::uint64_t count, const char* what) {
    return std::to_string(count) + ' ' + what + (count == 1 ? "" : "s");
  };
  if (hook_runs + hook_skips != 0) {
    add(counted(hook_runs, "hook run") + " that freed " + format_bytes_exact(hook_freed) + " and reported " +
        format_bytes_exact(hook_reported));
    if (hook_failures != 0) add(std::to_string(hook_failures) + " of them threw");
    if (hook_skips != 0) add(counted(hook_skips, "hook") + " passed over");
  }
  if (hooks_elsewhere != 0) add("a wait for " + counted(hooks_elsewhere, "hook run") + " on another thread");
  if (waited) {
    add("a wait of " + std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(*waited).count()) + " ms for room");
  }
  if (retried) add("one more try after " + format_bytes_exact(came_back) + " came back from pending frees and caches");
  if (reservation != 0) add("the reservation of " + format_bytes_exact(reservation) + " was released");
  if (checkpoint == Checkpoint::Outcome::ran) add("the checkpoint callback ran");
  if (checkpoint == Checkpoint::Outcome::threw) add("the checkpoint callback threw");
  if (checkpoint == Checkpoint::Outcome::shared) add("a run of the checkpoint callback was shared");
  if (checkpoint == Checkpoint::Outcome::busy) add("the checkpoint callback was still busy elsewhere");
  return text;
}

}  // namespace headroom::guard
