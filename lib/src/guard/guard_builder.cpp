#include <headroom/guard_builder.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include <headroom/guard.hpp>

#include "base/checked.hpp"
#include "base/thrown_error.hpp"
#include "guard/core.hpp"
#include "ledger/figures.hpp"

namespace headroom {
namespace {

// What the ledger would say about `bytes` if it had that budget now.
std::optional<Error> refusal_under(MemoryBudget budget, ledger::Ledger const& ledger, std::uint64_t bytes) noexcept {
  const auto limit = budget.limit_bytes();
  const ledger::Ledger::Words words = ledger.words();
  if (!limit || (words.claimed <= *limit && bytes <= *limit - words.claimed)) return std::nullopt;
  Error error = make_error(ErrorKind::over_budget, Layer::manager, {});
  error.requested = bytes;
  error.current = words.claimed;
  error.required = words.claimed + bytes;
  error.limit = limit;
  error.peak = words.peak;
  ledger::add_holders(error, ledger);
  return error;
}

}  // namespace

MemoryGuardBuilder::MemoryGuardBuilder(Device device) : device_{std::move(device)} {}
MemoryGuardBuilder::MemoryGuardBuilder(GpuMemoryManager manager) : manager_{std::move(manager)} {}

MemoryGuardBuilder& MemoryGuardBuilder::budget_bytes(std::uint64_t bytes) & {
  budget_bytes_ = bytes;
  return *this;
}
MemoryGuardBuilder& MemoryGuardBuilder::name(std::string_view name) & {
  name_ = name;
  return *this;
}
MemoryGuardBuilder& MemoryGuardBuilder::reserve_bytes(std::uint64_t bytes) & {
  reserve_bytes_ = bytes;
  return *this;
}
MemoryGuardBuilder& MemoryGuardBuilder::count_reservation_against_budget(bool counted) & {
  counts_reservation_ = counted;
  return *this;
}
MemoryGuardBuilder& MemoryGuardBuilder::release_reservation_on_oom(bool release) & {
  releases_on_oom_ = release;
  return *this;
}
MemoryGuardBuilder& MemoryGuardBuilder::oom_policy(OomPolicy policy) & {
  policy_ = policy;
  return *this;
}
MemoryGuardBuilder& MemoryGuardBuilder::emergency_reserve_bytes(std::uint64_t bytes) & {
  emergency_bytes_ = bytes;
  return *this;
}
MemoryGuardBuilder& MemoryGuardBuilder::hysteresis_margin_bytes(std::uint64_t bytes) & {
  margin_bytes_ = bytes;
  return *this;
}
MemoryGuardBuilder& MemoryGuardBuilder::callback_limit(std::chrono::nanoseconds limit) & {
  callback_limit_ = limit;
  return *this;
}
MemoryGuardBuilder& MemoryGuardBuilder::hook_rounds(std::uint32_t rounds) & {
  hook_rounds_ = std::max(rounds, std::uint32_t{1});
  return *this;
}

Result<MemoryGuard> MemoryGuardBuilder::build() const {
  if (callback_limit_ <= std::chrono::nanoseconds{0}) {
    return fail(ErrorKind::invalid_argument, Layer::guard, words([this] {
                  return "a callback limit of " + std::to_string(callback_limit_.count()) + " ns; expected more than 0";
                }));
  }
  const MemoryBudget wanted =
      budget_bytes_.value_or(0) == 0 ? MemoryBudget::unlimited() : MemoryBudget::with_limit(*budget_bytes_);
  auto manager = manager_ ? Result<GpuMemoryManager>{*manager_} : GpuMemoryManager::create(*device_, wanted, name_);
  if (!manager) return tl::unexpected{std::move(manager.error())};
  std::shared_ptr<guard::Core> core;
  try {
    core = std::make_shared<guard::Core>(*manager, guard::Core::Options{.policy = policy_,
                                                                        .releases_on_oom = releases_on_oom_,
                                                                        .callback_limit = callback_limit_,
                                                                        .hook_rounds = hook_rounds_});
  } catch (std::bad_alloc const&) {
    return fail(ErrorKind::io, Layer::guard, words([] { return std::string{"the system has no memory for a guard"}; }));
  }
  // The budget of a manager is changed last, when nothing can fail any more: others would be judged by it meanwhile. What the guard is to
  // claim is judged by it in advance, and claimed under the present one; only when that has no room the new one must come first.
  const MemoryBudget before = manager->budget();
  const bool changes_budget = manager_ && budget_bytes_;
  bool budget_first = false;
  const std::uint64_t claims =
      checked_add(emergency_bytes_, counts_reservation_ ? reserve_bytes_ : 0).value_or(~std::uint64_t{0});
  if (changes_budget && claims != 0 && claims <= ledger::kBytesMask) {
    ledger::Ledger const& ledger = core->ledger();
    if (auto refused = refusal_under(wanted, ledger, claims)) return tl::unexpected{std::move(*refused)};
    budget_first = ledger.look(claims).outcome == ledger::ClaimOutcome::refused;
  }
  if (budget_first) manager->set_budget(wanted);
  const std::source_location site = std::source_location::current();
  Result<void> taken = core->sentinel().take(core->route(), reserve_bytes_, counts_reservation_, site);
  if (taken) taken = core->reserve().take(*manager, emergency_bytes_, site);
  if (!taken) {
    core.reset();
    // Unless somebody else has changed it since.
    if (budget_first && manager->budget() == wanted) manager->set_budget(before);
    return tl::unexpected{std::move(taken.error())};
  }
  if (changes_budget && !budget_first) manager->set_budget(wanted);
  if (margin_bytes_) core->ledger().set_pressure_margin(margin_bytes_);
  return MemoryGuard{std::move(core)};
}

}  // namespace headroom
