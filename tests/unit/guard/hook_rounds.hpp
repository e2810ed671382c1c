// A manager whose budget is full, hooks over it, and a request that does not fit.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "guard/hook_registry.hpp"
#include "ledgers.hpp"
#include "managers.hpp"

namespace headroom::test {

using guard::HookOutcome;
using guard::HookRegistry;
using guard::HookRound;
using guard::RoundEnd;
using guard::RoundResult;
using Bytes = TrackedBuffer<std::byte>;

inline constexpr std::chrono::minutes kForEver{10};  // a test that waits that long has failed

inline OomHook hook(std::string name, std::function<std::uint64_t()> run, std::int32_t priority = 0, std::uint64_t estimate = 0) {
  return {.name = std::move(name),
          .priority = priority,
          .estimated_free_bytes = estimate,
          .execution_overhead_bytes = 0,
          .callback = [run = std::move(run)](HookContext const&) { return run(); },
          .time_limit = kForEver};
}

class Hooks : public ::testing::Test {
protected:
  explicit Hooks(std::uint64_t budget = 2048) : manager{null_manager(MemoryBudget::with_limit(budget))} {}

  Bytes take(std::uint64_t bytes) { return manager.alloc<std::byte>(bytes).value(); }
  void add(OomHook hook) { ASSERT_TRUE(registry.add(std::move(hook))); }
  /// A hook that only says that it was called.
  void add_noting(std::string const& name, std::int32_t priority = 0, std::uint64_t estimate = 0) {
    add(hook(
        name,
        [this, name] {
          called.push_back(name);
          return 0;
        },
        priority, estimate));
  }
  /// A round for a request, which is kept when it succeeds.
  RoundResult round_for(std::uint64_t bytes) {
    HookRound round;
    round.context = {.requested_bytes = bytes, .shortfall_bytes = manager.claimed_bytes() + bytes - 2048};
    round.try_claim = [&] {
      auto buffer = manager.alloc<std::byte>(bytes);
      if (buffer) held.push_back(std::move(*buffer));
      return buffer.has_value();
    };
    return registry.run_round(round);
  }
  [[nodiscard]] std::vector<std::string> names(RoundResult const& result) const {
    std::vector<std::string> names;
    for (auto const& turn : result.turns) names.push_back(turn.name);
    return names;
  }
  [[nodiscard]] flight::HookSnapshot shown(std::string const& name) const {
    for (auto& hook : flight::FlightView::of_this_process().value().hooks()) {
      if (hook.name == name && hook.ledger_id == ledger.directory_id()) return hook;
    }
    ADD_FAILURE() << "no hook " << name << " in the flight memory";
    return {};
  }

  GpuMemoryManager manager;
  ledger::Ledger& ledger{ledger_of(manager)};
  HookRegistry registry{ledger};
  std::vector<std::string> called;
  std::vector<Bytes> held;
};

}  // namespace headroom::test
