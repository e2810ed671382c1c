#include <headroom/fit.hpp>

#include <algorithm>

#include <headroom/flight_format.hpp>

#include "trace/replay_steps.hpp"

namespace headroom {
namespace {

using trace::StepAction;

/// Largest first, in equal steps below `top`: top, top − top/n, … > 0. `top` is at most 2^44, so that no product wraps.
[[nodiscard]] std::vector<std::uint64_t> equal_steps(std::uint64_t top, std::size_t points) {
  constexpr std::size_t kMost = std::size_t{1} << 16U;  // more rows than anybody reads
  auto const steps = std::clamp<std::uint64_t>(points, 1, kMost);
  std::vector<std::uint64_t> budgets;
  budgets.reserve(steps);
  for (auto step = steps; step > 0; --step) budgets.push_back(top / steps * step + top % steps * step / steps);
  return budgets;
}

}  // namespace

BudgetOutcome outcome_under(TraceHistory const& history, std::uint64_t budget_bytes) {
  auto const& data = history.data();
  auto const most = std::min(budget_bytes, flight::kBytesMask);
  BudgetOutcome outcome;
  std::vector<bool> is_refused(data.slots);
  std::uint64_t live = 0;  // ≤ most < 2^44
  auto smallest_refused = UINT64_MAX;
  for (auto const& step : data.steps) {
    if (step.what() == StepAction::allocate) {
      // A manager knows no larger request, whatever the budget. An empty one holds nothing and fits always.
      auto const representable = step.bytes <= flight::kBytesMask;
      auto const sum = representable ? live + step.bytes : UINT64_MAX;
      auto const refused = sum > most && step.bytes != 0;
      is_refused[step.slot] = refused;
      if (refused) {
        ++outcome.refused;
        smallest_refused = std::min(smallest_refused, sum);
      } else {
        live = sum;
        outcome.peak_bytes = std::max(outcome.peak_bytes, sum);
      }
    } else if (step.what() == StepAction::free && !is_refused[step.slot]) {
      live -= step.bytes;
    }
  }
  if (smallest_refused <= flight::kBytesMask) outcome.next_budget_bytes = smallest_refused;
  return outcome;
}

Fit fit(TraceHistory const& history, FitOptions const& options) {
  auto looked_at = [&options, count = std::size_t{0}]() mutable {
    ++count;
    if (options.done != nullptr) options.done->store(count, std::memory_order_relaxed);
  };
  auto const best = outcome_under(history, flight::kBytesMask);
  looked_at();
  Fit fit;
  fit.refused_at_best = best.refused;
  if (best.refused == 0) fit.smallest_budget_bytes = best.peak_bytes;
  fit.curve.push_back({.budget_bytes = best.peak_bytes, .refused = best.refused});

  // Downwards: whatever lies above the last point was decided by it already.
  auto const look_at = [&](std::uint64_t budget) {
    if (budget >= fit.curve.back().budget_bytes) return;
    auto const outcome = outcome_under(history, budget);
    fit.curve.push_back({.budget_bytes = outcome.peak_bytes, .refused = outcome.refused});
  };
  auto budgets = equal_steps(best.peak_bytes, options.points);
  budgets.front() = best.peak_bytes == 0 ? 0 : best.peak_bytes - 1;
  for (auto const budget : budgets) {
    look_at(budget);
    looked_at();
  }
  std::ranges::reverse(fit.curve);
  return fit;
}

}  // namespace headroom
