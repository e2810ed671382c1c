// What the first pass over a pickle finds out for the second: how often each memo entry is fetched, and how lists and dicts leave the
// stack.
//
// Memory: two bits for each list and dict, and two for each memo entry up to the highest that is fetched. Each of these takes a byte of
// the pickle or more, so it is about a quarter of the pickle's size at most. Beside that a byte for each memo entry around those that
// are fetched more than once, in pages of 256 and at most kMaxFetchCounts: 64 MiB.
#pragma once

#include <cstdint>

#include "trace/pickle/bit_pages.hpp"
#include "trace/pickle/fetch_counts.hpp"
#include "trace/pickle/node.hpp"

namespace headroom::trace::pickle {

class Reuse {
public:
  Reuse() = default;
  /// For those who can afford less than kMaxFetchCounts.
  explicit Reuse(std::uint64_t max_fetch_counts) : fetches_{max_fetch_counts} {}

  /// Over the whole pickle, whatever is put there in between; FetchCounts::kMany = 255 or more.
  [[nodiscard]] std::uint8_t fetches(std::uint64_t memo_entry) const noexcept { return fetches_.of(memo_entry); }
  /// Of the `container`th list or dict, counted from 0 as they begin.
  [[nodiscard]] Fate fate(std::uint64_t container) const noexcept {
    return static_cast<Fate>((fate_low_.test(container) ? 1U : 0U) | (fate_high_.test(container) ? 2U : 0U));
  }

  // For the first pass.

  void add_fetch(std::uint64_t memo_entry) { fetches_.add(memo_entry); }
  void set_fate(std::uint64_t container, Fate fate) {
    auto const bits = static_cast<std::uint8_t>(fate);
    if ((bits & 1U) != 0) fate_low_.set(container);
    if ((bits & 2U) != 0) fate_high_.set(container);
  }

private:
  FetchCounts fetches_;
  BitPages fate_low_;
  BitPages fate_high_;
};

}  // namespace headroom::trace::pickle
