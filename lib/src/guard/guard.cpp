#include <headroom/guard.hpp>

#include <ostream>
#include <utility>

#include <headroom/byte_size.hpp>

#include "base/clock.hpp"
#include "base/thrown_error.hpp"
#include "guard/attempt.hpp"
#include "guard/core.hpp"
#include "guard/operation.hpp"
#include "guard/recovery.hpp"
#include "manager/core.hpp"
#include "manager/errors.hpp"

namespace headroom {

namespace guard {

std::optional<Error> allocate(Core& core, Request const& request, std::source_location const& site,
                              manager::Allocation& allocation) {
  // The first try itself may call a listener.
  const Operation operation{core};
  // Of the budget that requests share, not of the emergency reserve: what hooks had of it, and freed, is claimed back first.
  core.refill_reserve();
  std::optional<Error> error = attempt(core.route(), request, request.arguments, site, allocation);
  if (!error || !manager::is_shortage(*error)) [[likely]]
    return error;
  return Recovery{core, request, site, allocation, std::move(*error)}.run();
}

Result<void> free_allocation(Core& core, manager::Allocation& allocation) {
  if (allocation.route == nullptr) return success();
  ledger::Ledger& ledger = core.ledger();
  if (&allocation.route->ledger() != &ledger) {
    // Misuse of this guard: counted here, and the books of the ledger that owns the block hear nothing.
    const std::uint64_t now = ticks_now();
    const flight::LaneSection section{flight::this_thread()};
    ledger.book_misuse(section,
                       {.bytes = allocation.bytes,
                        .alignment = std::uint64_t{1} << allocation.alignment_log2,
                        .address = reinterpret_cast<std::uintptr_t>(allocation.pointer),
                        .stream = allocation.stream,
                        .start_ticks = now,
                        .end_ticks = now},
                       ErrorKind::wrong_owner, Layer::guard);
    return fail(ErrorKind::wrong_owner, Layer::guard, words([&] {
                  return "the buffer of " + format_bytes_exact(allocation.bytes) + " stands in the books of '" +
                         allocation.route->core().name() + "', this guard frees those of '" + core.manager().name() + "'";
                }));
  }
  if (!core.reserve().exists()) [[likely]]
    return manager::release_or_keep(allocation);
  // What is freed may call a listener, and the reserve is the guard's.
  const Operation operation{core};
  Result<void> freed = manager::release_or_keep(allocation);
  core.refill_reserve();
  return freed;
}

}  // namespace guard

MemoryGuard::MemoryGuard(std::shared_ptr<guard::Core> core) noexcept : core_{std::move(core)} {}
MemoryGuard& MemoryGuard::operator=(MemoryGuard const& other) noexcept {
  MemoryGuard copy{other};
  core_.swap(copy.core_);  // what it was goes as any other handle does
  return *this;
}
MemoryGuard::~MemoryGuard() { guard::Operation::leave_share(core_); }

// In what follows the handle may be gone before the call is over, and nothing of it is touched after the core's own work began.
void MemoryGuard::set_budget(std::uint64_t bytes) const {
  const guard::Operation operation{*core_};
  core_->set_budget(bytes);
}
std::uint64_t MemoryGuard::budget() const noexcept { return core_->manager().budget_limit_bytes().value_or(0); }
PressureLevel MemoryGuard::pressure_level() const noexcept { return core_->manager().pressure_level(); }
Result<ListenerId> MemoryGuard::add_pressure_listener(PressureListener listener) const {
  const guard::Operation operation{*core_};
  return core_->add_listener(std::move(listener));
}
bool MemoryGuard::remove_pressure_listener(ListenerId id) const {
  const guard::Operation operation{*core_};
  return core_->remove_listener(id);
}

Result<void> MemoryGuard::register_hook(OomHook hook) const {
  const guard::Operation operation{*core_};
  return core_->hooks().add(std::move(hook)).map([](guard::HookId) {});
}
bool MemoryGuard::remove_hook(std::string_view name) const {
  const guard::Operation operation{*core_};
  return core_->hooks().remove(name);
}
Result<void> MemoryGuard::on_oom(std::function<void()> callback) const {
  const guard::Operation operation{*core_};
  return core_->checkpoint().set(std::move(callback));
}
void MemoryGuard::set_oom_policy(OomPolicy policy) const { core_->set_policy(policy); }
OomPolicy MemoryGuard::oom_policy() const noexcept { return core_->policy(); }

std::uint64_t MemoryGuard::release_reservation() const {
  const guard::Operation operation{*core_};
  return core_->sentinel().release();
}
bool MemoryGuard::has_reservation() const noexcept { return core_->sentinel().held() != 0; }

GuardStats MemoryGuard::stats() const {
  const ManagerStats books = core_->manager().stats();
  flight::LedgerTallies const& tallies = core_->ledger().tallies();
  const auto count = [](flight::Word const& word) { return word.load(std::memory_order_relaxed); };
  const MemoryInfo memory = device().memory_info();
  std::uint64_t recoveries = 0;
  for (auto const& of_policy : tallies.recoveries) recoveries += count(of_policy);
  return {.used = books.allocated,
          .claimed = books.claimed,
          .peak = books.peak,
          .budget = books.limit.value_or(0),
          .device_free = memory.free,
          .device_total = memory.total,
          .live_allocations = books.live_allocations,
          .refusals = books.refusals,
          .recoveries = recoveries,
          .failures_after_help = count(tallies.gave_up),
          .waits = count(tallies.policy_waits),
          .checkpoints = count(tallies.checkpoints),
          .hooks_run = count(tallies.hook_runs),
          .bytes_freed_by_hooks = count(tallies.hook_freed_bytes),
          .reservation = core_->sentinel().held(),
          .pressure = books.limit ? headroom::pressure_level(books.claimed, *books.limit) : PressureLevel::none};
}

void MemoryGuard::reset_peak_stats() const noexcept { core_->ledger().reset_peak(); }
Device const& MemoryGuard::device() const noexcept { return core_->manager().device(); }
Device MemoryGuard::shared_device() const { return core_->manager().device(); }
GpuMemoryManager MemoryGuard::manager() const { return core_->manager(); }

}  // namespace headroom
