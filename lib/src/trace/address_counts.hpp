// headroom: a small number for each of many addresses.
//
// An open hash table without removal, 16 bytes a place: what a walk over a history needs to know of every address that it has seen is
// several times smaller than in a map of nodes. Each table has a seed of its own, so that a file cannot choose addresses that all belong
// in one place. Thread safety: none. Memory: 16 to 64 bytes for each different address.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom::trace {

class AddressCounts {
public:
  /// The count of `address`; null: it was never added. Valid until the next add().
  [[nodiscard]] std::uint32_t* find(std::uint64_t address) noexcept {
    if (used_ == 0) return nullptr;
    auto& place = place_of(address);
    return place.is_used ? &place.count : nullptr;
  }

  /// The count of `address`, 0 if it is new.
  [[nodiscard]] std::uint32_t& add(std::uint64_t address) {
    if ((used_ + 1) * 2 > places_.size()) grow();
    auto& place = place_of(address);
    if (!place.is_used) {
      place = {.address = address, .count = 0, .is_used = true};
      ++used_;
    }
    return place.count;
  }

  [[nodiscard]] std::size_t size() const noexcept { return used_; }

  /// Most places in a row that are used, which is the longest search, for tests. Linear.
  [[nodiscard]] std::size_t longest_run() const noexcept {
    std::size_t longest = 0;
    std::size_t run = 0;
    for (auto const& place : places_) {
      run = place.is_used ? run + 1 : 0;
      longest = std::max(longest, run);
    }
    return longest;
  }

private:
  struct Place {
    std::uint64_t address = 0;
    std::uint32_t count = 0;
    bool is_used = false;
  };

  /// The one with `address`, or where it belongs.
  [[nodiscard]] Place& place_of(std::uint64_t address) noexcept {
    auto const mask = places_.size() - 1;
    // The finaliser of MurmurHash3: without the seed nobody can tell which addresses it brings together.
    auto hash = address ^ seed_;
    hash = (hash ^ hash >> 33U) * 0xFF51'AFD7'ED55'8CCDU;
    hash = (hash ^ hash >> 33U) * 0xC4CE'B9FE'1A85'EC53U;
    auto at = static_cast<std::size_t>(hash ^ hash >> 33U) & mask;
    while (places_[at].is_used && places_[at].address != address) at = (at + 1) & mask;
    return places_[at];
  }

  void grow() {
    std::vector<Place> old(places_.empty() ? 64 : places_.size() * 2);
    old.swap(places_);
    // Of where the system put the table, and when: both change from run to run, and from table to table.
    auto const when = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    seed_ = (seed_ ^ reinterpret_cast<std::uintptr_t>(places_.data())) * 0x9E37'79B9'7F4A'7C15U + when;
    for (auto const& place : old) {
      if (place.is_used) place_of(place.address) = place;
    }
  }

  std::vector<Place> places_;  // a power of two of them, at most half of them used
  std::size_t used_ = 0;
  std::uint64_t seed_ = 0;
};

}  // namespace headroom::trace
