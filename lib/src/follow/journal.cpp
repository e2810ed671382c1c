#include "follow/journal.hpp"

#include <algorithm>
#include <tuple>

namespace headroom::follow {
namespace {

using flight::EventKind;

Journal::Limit limit_of(std::uint64_t word) noexcept {
  Journal::Limit limit;
  if ((word & flight::kLimitNone) == 0) limit.bytes = word & flight::kBytesMask;
  limit.enforcing = !limit.bytes || (word & flight::kLimitEnforcing) != 0;
  return limit;
}

bool same(Journal::Limit const& a, Journal::Limit const& b) noexcept { return a.bytes == b.bytes && a.enforcing == b.enforcing; }

/// Keeps the order by ticks; nearly always that is the end.
template <class Entry>
void insert_by_ticks(std::deque<Entry>& entries, Entry const& entry) {
  auto const place = std::ranges::upper_bound(entries, entry.ticks, {}, &Entry::ticks);
  entries.insert(place, entry);
}

template <class Entry>
void bound(std::deque<Entry>& entries, std::size_t most) {
  if (entries.size() > most) entries.pop_front();
}

}  // namespace

void Journal::add(flight::Event const& event) {
  insert_by_ticks(events_, event);
  bound(events_, most_events_);
  switch (event.kind) {
    case EventKind::budget: {
      auto& limits = ledgers_[event.ledger()].limits;
      insert_by_ticks(limits, {event.ticks, event.words[2], event.words[3]});
      bound(limits, kMostLimits);
      break;
    }
    case EventKind::pressure: {
      auto& pressures = ledgers_[event.ledger()].pressures;
      auto const to = std::min<std::uint64_t>((event.words[2] >> 8U) & 0xFFU, 4);
      insert_by_ticks(pressures, {event.ticks, static_cast<PressureLevel>(to)});
      bound(pressures, kMostPressures);
      break;
    }
    case EventKind::reserve:
    case EventKind::reserve_drop: {
      auto& ticks = ledgers_[event.ledger()].reservation_ticks;
      ticks = std::max(ticks, event.ticks);
      break;
    }
    default: break;
  }
}

Journal::Limit Journal::limit_at(std::uint32_t ledger, std::uint64_t ticks, Limit const& now, std::uint64_t since) const {
  auto const found = ledgers_.find(ledger);
  if (found == ledgers_.end() || found->second.limits.empty() || found->second.limits.back().ticks < since) {
    auto limit = now;
    limit.known = now.known && ticks >= lost_until_;
    return limit;
  }
  auto const& limits = found->second.limits;
  auto const first = std::ranges::lower_bound(limits, since, {}, &LimitChange::ticks);
  auto const after = std::ranges::upper_bound(first, limits.end(), ticks, {}, &LimitChange::ticks);
  auto const later = after == limits.end() ? now : limit_of(after->before);
  if (after == first) {
    // Nothing kept before it: what the first change found, unless another one was lost in between.
    auto limit = later;
    limit.known = ticks >= lost_until_;
    return limit;
  }
  auto earlier = limit_of(std::prev(after)->after);
  // Two changes that do not fit together: one between them was lost, before or after this instant.
  if (!same(earlier, later)) return {.known = false, .bytes = {}, .enforcing = true};
  return earlier;
}

std::optional<Journal::Pressure> Journal::pressure_at(std::uint32_t ledger, std::uint64_t ticks, std::uint64_t since) const {
  auto const found = ledgers_.find(ledger);
  if (found == ledgers_.end()) return std::nullopt;
  auto const after = std::ranges::upper_bound(found->second.pressures, ticks, {}, &Pressure::ticks);
  if (after == found->second.pressures.begin() || std::prev(after)->ticks < since) return std::nullopt;
  return *std::prev(after);
}

bool Journal::reservations_stood_since(std::uint32_t ledger, std::uint64_t ticks) const {
  if (ticks < lost_until_) return false;
  auto const found = ledgers_.find(ledger);
  return found == ledgers_.end() || found->second.reservation_ticks <= ticks;
}

}  // namespace headroom::follow
