#include "samples.hpp"

#include <algorithm>

namespace headroom::exporter {
namespace {

constexpr std::uint64_t kNanosecondsPerSecond = 1'000'000'000;

/// A closed manager stays in the books until its cell is used again.
bool is_manager_at_work(flight::LedgerSnapshot const& ledger) noexcept {
  const bool is_over = ledger.state == flight::LedgerState::closed && ledger.claimed == 0;
  return !ledger.is_device_account && !is_over;
}

}  // namespace

Samples::Second& Samples::second_of(Track& track, std::uint64_t number, std::uint64_t allocated) {
  if (track.seconds.empty() || track.seconds.back().number != number) {
    track.seconds.push_back({.number = number, .low = allocated, .high = allocated});
    while (track.seconds.front().number + kSeconds <= number) track.seconds.pop_front();
  }
  return track.seconds.back();
}

void Samples::repeat(std::uint64_t monotonic_ns) {
  for (auto& [key, track] : tracks_) {
    Second& second = second_of(track, monotonic_ns / kNanosecondsPerSecond, track.allocated);
    second.low = std::min(second.low, track.allocated);
    second.high = std::max(second.high, track.allocated);
    second.limit = track.limit;
  }
}

void Samples::add(flight::LedgerSnapshot const& ledger, std::uint64_t number) {
  const Key key = key_of(ledger);
  if (!tracks_.contains(key) && tracks_.size() >= most_) {
    ++left_out_;
    return;
  }
  const auto [place, is_new] = tracks_.try_emplace(key);
  Track& track = place->second;
  track.is_there = true;
  // What happened before the first reading of all happened at an unknown time; whoever appears later began since the last one.
  // A manager that had no room before may be older, too.
  if (is_new && (!has_begun_ || had_left_out_)) {
    track.peak = ledger.peak;
    track.failures = ledger.failures();
  }
  Second& second = second_of(track, number, ledger.allocated);
  second.low = std::min(second.low, ledger.allocated);
  second.high = std::max(second.high, ledger.allocated);
  if (ledger.peak > track.peak) second.high = std::max(second.high, ledger.peak);
  second.limit = ledger.limit;
  // A figure of a file that lies may fall.
  const auto failures = ledger.failures();
  second.failures += failures > track.failures ? failures - track.failures : 0;
  track.allocated = ledger.allocated;
  track.peak = ledger.peak;
  track.limit = ledger.limit;
  track.failures = failures;
}

void Samples::add(std::span<flight::LedgerSnapshot const> ledgers, std::uint64_t monotonic_ns) {
  for (auto& [key, track] : tracks_) track.is_there = false;
  for (auto const& ledger : ledgers) {
    if (!is_manager_at_work(ledger)) continue;
    // Those that are gone make room first.
    if (const auto found = tracks_.find(key_of(ledger)); found != tracks_.end()) found->second.is_there = true;
  }
  std::erase_if(tracks_, [](auto const& entry) { return !entry.second.is_there; });
  had_left_out_ = left_out_ > 0;
  left_out_ = 0;
  for (auto const& ledger : ledgers) {
    if (is_manager_at_work(ledger)) add(ledger, monotonic_ns / kNanosecondsPerSecond);
  }
  has_begun_ = true;
}

std::map<Samples::Key, Samples::History> Samples::since(std::uint64_t number) const {
  std::map<Key, History> histories;
  for (auto const& [key, track] : tracks_) {
    const auto first = std::ranges::lower_bound(track.seconds, number, {}, &Second::number);
    histories.emplace(key, History{first, track.seconds.end()});
  }
  return histories;
}

}  // namespace headroom::exporter
