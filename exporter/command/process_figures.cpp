#include "command/process_figures.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <utility>

namespace headroom::command {
namespace {

[[nodiscard]] std::string state_word(flight::Liveness liveness, flight::ProcessState state) {
  if (liveness == flight::Liveness::living) return "living";
  if (state == flight::ProcessState::closed) return "exited";
  return liveness == flight::Liveness::dead ? "killed" : "unknown";
}

[[nodiscard]] std::uint64_t now_realtime_ns() {
  auto const now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

/// `ledgers`: all of them.
[[nodiscard]] ProcessFigures sum_up(flight::ProcessInfo info, flight::Liveness liveness,
                                    std::vector<flight::LedgerSnapshot> ledgers, std::uint64_t now) {
  ProcessFigures figures;
  figures.info = std::move(info);
  figures.state = state_word(liveness, figures.info.state);
  // A clock that was set back must not make an age of 584 years.
  auto const start = std::min(figures.info.start_realtime_ns, now);
  figures.age_seconds = static_cast<double>(now - start) * 1e-9;
  figures.managers = std::move(ledgers);
  auto const is_dead = liveness == flight::Liveness::dead;
  std::erase_if(figures.managers, [is_dead](flight::LedgerSnapshot const& ledger) {
    // A program that ended well closed its managers first: their figures are still what it did.
    auto const is_gone = !is_dead && ledger.state == flight::LedgerState::closed && ledger.claimed == 0;
    return ledger.is_device_account || is_gone;
  });
  auto is_limited = !figures.managers.empty();
  std::uint64_t budget = 0;
  for (auto const& manager : figures.managers) {
    is_limited = is_limited && manager.limit.has_value();
    budget += manager.limit.value_or(0);
    figures.allocated_bytes += manager.allocated;
    figures.claimed_bytes += manager.claimed;
    figures.peak_bytes += manager.peak;
    figures.live_allocations += manager.live_allocations;
    figures.failures += manager.failures();
    figures.pressure = std::max(figures.pressure, manager.pressure);
  }
  if (is_limited) figures.budget_bytes = budget;
  return figures;
}

}  // namespace

ProcessFigures process_figures(flight::FlightView const& view) {
  return sum_up(view.process(), view.liveness(), view.all_ledgers(), now_realtime_ns());
}

ProcessFigures process_figures(follow::Source const& source) {
  auto info = source.process();
  auto const is_record = source.kind() == follow::SourceKind::dump;
  auto const now = is_record ? info.last_activity_realtime_ns : now_realtime_ns();
  auto figures = sum_up(std::move(info), source.liveness(), source.ledgers(), now);
  figures.is_record = is_record;
  return figures;
}

std::string word_of(flight::InFlight operation) {
  switch (operation) {
    case flight::InFlight::none: return "idle";
    case flight::InFlight::allocating: return "allocating";
    case flight::InFlight::freeing: return "freeing";
    case flight::InFlight::reserving: return "reserving";
    case flight::InFlight::spending: return "spending";
    case flight::InFlight::dropping: return "dropping";
  }
  return "unknown";
}

std::string format_utc(std::uint64_t realtime_ns) {
  auto const seconds = static_cast<std::time_t>(realtime_ns / 1'000'000'000);
  std::tm parts{};
  std::array<char, 40> text{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "an unknown time";
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

}  // namespace headroom::command
