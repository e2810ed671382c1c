// headroom: the last ten minutes of each manager, second by second.
//
// A second keeps the least and the most that was allocated in it, by several readings of the books and by the high-water mark, which
// no reading misses; so a short spike is seen however seldom somebody looks. Failures come from the books' counters: none is missed.
//
// Bounded: kSeconds seconds of at most kMostManagers managers, some 2 MiB at the most; whoever watches many processes may allow fewer.
// Managers beyond that have figures but no past, and those that the books no longer have lose theirs.
//
// Thread safety: none. Cost: a microsecond for each manager and reading.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include <headroom/flight_reader.hpp>

namespace headroom::exporter {

class Samples {
public:
  static constexpr std::size_t kSeconds = 600;
  static constexpr std::size_t kMostManagers = 64;

  /// What was the case within one second of the machine's monotonic clock.
  struct Second {
    std::uint64_t number = 0;  ///< of the second, since the machine started
    std::uint64_t low = 0, high = 0;
    std::optional<std::uint64_t> limit{};  ///< the last one; absent: unlimited
    std::uint64_t failures = 0;            ///< requests that failed in it
    friend bool operator==(Second const&, Second const&) = default;
  };
  /// Of one manager, oldest first; seconds without a reading are left out.
  using History = std::vector<Second>;

  /// A cell of the books is used again by later managers.
  struct Key {
    std::uint32_t cell = 0;
    std::uint64_t generation = 0;
    friend auto operator<=>(Key const&, Key const&) = default;
  };
  [[nodiscard]] static Key key_of(flight::LedgerSnapshot const& ledger) noexcept { return {ledger.cell, ledger.generation}; }

  /// One reading: all ledgers of the books. Device accounts are left out. `monotonic_ns` never falls from one to the next.
  void add(std::span<flight::LedgerSnapshot const> ledgers, std::uint64_t monotonic_ns);

  /// A reading that would have found everything as at the last one.
  void repeat(std::uint64_t monotonic_ns);

  /// How many managers may have a past from here on; those that have one keep it. At most kMostManagers.
  void allow(std::size_t managers) noexcept { most_ = std::min(managers, kMostManagers); }
  /// Managers that have a past, and those that had no room for one at the last reading.
  [[nodiscard]] std::size_t managers() const noexcept { return tracks_.size(); }
  [[nodiscard]] std::size_t left_out() const noexcept { return left_out_; }

  /// From the second with that number on.
  [[nodiscard]] std::map<Key, History> since(std::uint64_t number) const;

private:
  struct Track {
    std::deque<Second> seconds;
    std::uint64_t allocated = 0, peak = 0, failures = 0;  // at the last reading
    std::optional<std::uint64_t> limit{};                 // likewise
    bool is_there = false;                                // in the present one
  };
  void add(flight::LedgerSnapshot const& ledger, std::uint64_t number);
  static Second& second_of(Track& track, std::uint64_t number, std::uint64_t allocated);

  std::map<Key, Track> tracks_;
  std::size_t most_ = kMostManagers, left_out_ = 0;
  bool has_begun_ = false, had_left_out_ = false;
};

}  // namespace headroom::exporter
