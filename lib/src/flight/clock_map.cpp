// Ticks to nanoseconds: straight lines between the clock syncs of a file, on at the nominal rate before the first and after the
// last. Every number may be hostile: all products are made in 128 bits and every result stays within 64.
#include <algorithm>
#include <utility>

#include <headroom/flight_reader.hpp>

#include "base/checked.hpp"
#include "flight/clock_line.hpp"

namespace headroom::flight {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

std::uint64_t scale(std::uint64_t value, std::uint64_t numerator, std::uint64_t denominator) noexcept {
  auto const scaled = static_cast<uint128>(value) * numerator / denominator;
  return scaled > kMaxUint64 ? kMaxUint64 : static_cast<std::uint64_t>(scaled);
}

std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) noexcept { return checked_add(a, b).value_or(kMaxUint64); }
std::uint64_t saturating_sub(std::uint64_t a, std::uint64_t b) noexcept { return checked_sub(a, b).value_or(0); }

}  // namespace

std::uint64_t ClockLine::duration_ns(std::uint64_t ticks) const noexcept { return scale(ticks, kNsPerSecond, ticks_per_second); }

std::uint64_t ClockLine::convert(std::uint64_t ticks, std::uint64_t Sync::* clock) const noexcept {
  auto const next = std::ranges::upper_bound(syncs, ticks, {}, &Sync::ticks);
  if (next == syncs.begin()) return saturating_sub((*next).*clock, duration_ns(next->ticks - ticks));
  auto const& before = *std::prev(next);
  auto const since = ticks - before.ticks;
  if (next == syncs.end()) return saturating_add(before.*clock, duration_ns(since));
  auto const span = next->ticks - before.ticks;  // not 0: ticks are unique
  // Realtime may have been set back between the two: the line then falls.
  auto const from = before.*clock;
  auto const to = (*next).*clock;
  return to >= from ? from + scale(since, to - from, span) : from - scale(since, from - to, span);
}

std::size_t arrange_syncs(std::span<ClockMap::Sync> syncs) noexcept {
  // Insertion: they come as a ring has them, in at most two runs. Stable, so that of two with the same ticks the first one counts.
  for (std::size_t i = 1; i < syncs.size(); ++i) {
    auto const at = std::upper_bound(syncs.begin(), syncs.begin() + static_cast<std::ptrdiff_t>(i), syncs[i],
                                     [](auto const& a, auto const& b) { return a.ticks < b.ticks; });
    std::rotate(at, syncs.begin() + static_cast<std::ptrdiff_t>(i), syncs.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  auto const same_ticks = [](auto const& a, auto const& b) { return a.ticks == b.ticks; };
  auto const doubles = std::ranges::unique(syncs, same_ticks);
  return static_cast<std::size_t>(doubles.begin() - syncs.begin());
}

ClockMap::ClockMap(std::uint64_t ticks_per_second, std::vector<Sync> syncs)
    // A damaged header may say 0; a tick of a nanosecond is as good as any other then.
    : ticks_per_second_{ticks_per_second == 0 ? kNsPerSecond : ticks_per_second}, syncs_{std::move(syncs)} {
  // Stable, so that of two syncs with the same ticks the first one given counts. Not arrange_syncs: a file may have any number.
  std::ranges::stable_sort(syncs_, {}, &Sync::ticks);
  auto const same_ticks = [](Sync const& a, Sync const& b) { return a.ticks == b.ticks; };
  auto const doubles = std::ranges::unique(syncs_, same_ticks);
  syncs_.erase(doubles.begin(), doubles.end());
  if (syncs_.empty()) syncs_.push_back({});
}

std::uint64_t ClockMap::realtime_ns(std::uint64_t ticks) const noexcept { return convert(ticks, &Sync::realtime_ns); }
std::uint64_t ClockMap::monotonic_ns(std::uint64_t ticks) const noexcept { return convert(ticks, &Sync::monotonic_ns); }
std::uint64_t ClockMap::duration_ns(std::uint64_t ticks) const noexcept {
  return ClockLine{ticks_per_second_, syncs_}.duration_ns(ticks);
}
std::uint64_t ClockMap::convert(std::uint64_t ticks, std::uint64_t Sync::* clock) const noexcept {
  return ClockLine{ticks_per_second_, syncs_}.convert(ticks, clock);
}

}  // namespace headroom::flight
