// headroom: which budget a recorded history needs.
// Layer: trace
//
// fit() finds the smallest budget under which a history runs without a refusal, exact to the byte, and how many allocations smaller
// budgets refuse. Use it before a job is moved to a smaller GPU; replay() answers the same question for one budget, with a real
// manager, hooks and policies.
//
// Figures are those of replay() in file order, on a device that refuses nothing by itself: a request is refused when the bytes live
// then and its own exceed the budget, and the free of what was refused is skipped. Two facts make this fast and exact:
//
// * Let P be the most bytes live at once when everything is granted. Under a budget ≥ P nothing is ever refused: by induction, all
//   before was granted, so live + request ≤ P. Under one below P something is: up to the first request that takes the sum above it,
//   everything was granted, so it finds that sum, and is refused. So P is the smallest budget, and no other needs a look.
// * One pass under a budget tells how far the same decisions reach: down to the largest sum that it granted, which is the pass's
//   peak, and up to just below the smallest sum that it refused. No allocation is decided otherwise under a budget between.
//
// Fewer bytes do not always mean more refusals: a large request that a larger budget admits may crowd out several small ones. Each
// count is exact for its own budget, and says nothing of those beside it but what `next_budget_bytes` says.
//
// Thread safety: pure functions over a constant history; `done` may be read by other threads. Cost: one pass over the
// records, of some nanoseconds each, for every budget looked at; a bit for each slot of memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <headroom/replay.hpp>

namespace headroom {

/// What replay() in file order counts under one budget.
struct BudgetOutcome {
  std::uint64_t refused = 0;
  std::uint64_t peak_bytes = 0;  ///< also the smallest budget with the same decisions
  /// The smallest larger budget under which an allocation is decided otherwise. Absent: there is none.
  std::optional<std::uint64_t> next_budget_bytes;

  friend bool operator==(BudgetOutcome const&, BudgetOutcome const&) = default;
};

/// `budget_bytes` above flight::kBytesMask, the largest figure of a ledger, count as that: so does a budget without a limit.
[[nodiscard]] BudgetOutcome outcome_under(TraceHistory const& history, std::uint64_t budget_bytes);

struct FitPoint {
  std::uint64_t budget_bytes = 0;
  std::uint64_t refused = 0;

  friend bool operator==(FitPoint const&, FitPoint const&) = default;
};

struct FitOptions {
  std::size_t points = 32;                   ///< budgets looked at; the curve has at most two more
  std::atomic<std::size_t>* done = nullptr;  ///< budgets looked at so far; written relaxed, to be read relaxed
};

struct Fit {
  /// Absent when no budget is enough: a request, or what is live at once, is larger than a ledger's largest figure.
  std::optional<std::uint64_t> smallest_budget_bytes;
  std::uint64_t refused_at_best = 0;  ///< under the largest budget: not 0 only where no budget is enough
  /// By budget, smallest first, each the smallest one with its decisions: the run fills it to the byte. Budgets are looked at in equal
  /// steps up to what the history holds at most under the largest budget, which is the last point (the smallest budget that is enough,
  /// if one is); the point before it is what a byte less comes to.
  std::vector<FitPoint> curve;
};

[[nodiscard]] Fit fit(TraceHistory const& history, FitOptions const& options = {});

}  // namespace headroom
