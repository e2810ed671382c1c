// What is written down about hooks: totals in the hook's cell, and events. Nothing here decides anything.
#pragma once

#include <chrono>
#include <cstdint>

#include <headroom/flight_format.hpp>

#include "flight/hook_cells.hpp"
#include "ledger/ledger.hpp"

namespace headroom::guard {

/// What is asked of a hook, as its records have it.
struct HookAsk {
  std::uint64_t requested = 0;
  std::uint64_t shortfall = 0;
  std::uint64_t estimate = 0;
  std::uint64_t overhead = 0;
  std::uint64_t headroom = 0;
  std::uint64_t limit_ns = 0;
};

/// What came of a run.
struct HookRunFigures {
  std::uint64_t reported = 0;
  std::uint64_t freed = 0;
  std::int64_t ledger_fell = 0;
  std::uint64_t ns = 0;
  bool threw = false;
  bool overran = false;
};

class HookTelemetry {
public:
  HookTelemetry(flight::HookPlace const& place, ledger::Ledger& ledger) noexcept : place_{place}, ledger_{ledger} {}

  /// From here on every reader sees that the hook runs. Returns whether end() must take that back: of the hooks that share `other` one
  /// is shown.
  [[nodiscard]] bool begin(HookAsk const& ask, std::uint64_t start_ticks) const noexcept;
  void end(HookAsk const& ask, HookRunFigures const& run, bool shown) const noexcept;
  /// `waited`: for a run on another thread. One that ended counts as no skip.
  void skip(HookAsk const& ask, flight::HookSkip reason, std::chrono::nanoseconds waited) const noexcept;
  /// Once for each run.
  void overrun(std::uint64_t limit_ns, std::uint64_t ns_so_far, std::uint64_t start_ticks,
               std::uint32_t running_thread) const noexcept;

private:
  [[nodiscard]] std::uint64_t subject() const noexcept;

  flight::HookPlace place_;
  ledger::Ledger& ledger_;
};

}  // namespace headroom::guard
