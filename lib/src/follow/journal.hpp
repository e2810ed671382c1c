// headroom: the kept journal: budgets, pressure, reservations, hooks, marks. Rare events, whole, and what follows from them for a
// ledger at an instant. Bounded; the oldest are forgotten first. Thread safety: none.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include <headroom/flight_reader.hpp>

namespace headroom::follow {

class Journal {
public:
  explicit Journal(std::size_t most_events) : most_events_{most_events} {}

  /// In order of time. An event that is older than the last one takes its place among the others all the same.
  void add(flight::Event const& event);
  /// Records were lost somewhere before `ticks`.
  void note_loss(std::uint64_t ticks) noexcept { lost_until_ = std::max(lost_until_, ticks); }

  struct Limit {
    bool known = true;
    std::optional<std::uint64_t> bytes;
    bool enforcing = true;
  };
  // A ledger's cell may have had an owner before, whose records count no more: `since` is when the present one began, and the instants
  // asked about are not before it.

  /// The budget in force at `ticks`; `now` is that of the books.
  [[nodiscard]] Limit limit_at(std::uint32_t ledger, std::uint64_t ticks, Limit const& now, std::uint64_t since) const;

  struct Pressure {
    std::uint64_t ticks = 0;
    PressureLevel level = PressureLevel::none;
  };
  /// The last transition at or before `ticks`.
  [[nodiscard]] std::optional<Pressure> pressure_at(std::uint32_t ledger, std::uint64_t ticks, std::uint64_t since) const;
  /// No reservation was made or dropped after `ticks`, for certain.
  [[nodiscard]] bool reservations_stood_since(std::uint32_t ledger, std::uint64_t ticks) const;

  [[nodiscard]] std::deque<flight::Event> const& events() const noexcept { return events_; }
  [[nodiscard]] std::size_t memory() const noexcept { return events_.size() * sizeof(flight::Event); }

private:
  struct LimitChange {
    std::uint64_t ticks = 0, before = 0, after = 0;  // limit words
  };
  struct OfLedger {
    std::deque<LimitChange> limits;
    std::deque<Pressure> pressures;
    std::uint64_t reservation_ticks = 0;
  };
  static constexpr std::size_t kMostLimits = 1024;
  static constexpr std::size_t kMostPressures = 4096;

  std::size_t most_events_;
  std::deque<flight::Event> events_;
  std::map<std::uint32_t, OfLedger> ledgers_;
  std::uint64_t lost_until_ = 0;
};

}  // namespace headroom::follow
