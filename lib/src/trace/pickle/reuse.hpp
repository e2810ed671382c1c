// What the first pass over a pickle finds out for the second: which memo entries are fetched again, and how lists and dicts leave the
// stack.
//
// Memory: two bits and a half for each list and dict, and a bit and a quarter for each memo entry up to the highest that is fetched.
// Each of these takes a byte of the pickle or more, so it is less than half of the pickle's size, and a few pages.
#pragma once

#include <cstdint>

#include "trace/pickle/bit_pages.hpp"
#include "trace/pickle/node.hpp"

namespace headroom::trace::pickle {

class Reuse {
public:
  Reuse() = default;

  [[nodiscard]] bool is_fetched(std::uint64_t memo_entry) const noexcept { return fetched_.test(memo_entry); }

  // For the two passes.

  /// How many fetched entries have lower numbers: the place of this one in a table of those alone.
  [[nodiscard]] std::uint64_t place(std::uint64_t memo_entry) const noexcept { return fetched_.count_below(memo_entry); }
  /// Of the `container`th list or dict, counted from 0 as they begin.
  [[nodiscard]] Fate fate(std::uint64_t container) const noexcept {
    return static_cast<Fate>((fate_low_.test(container) ? 1U : 0U) | (fate_high_.test(container) ? 2U : 0U));
  }

  void set_fetched(std::uint64_t memo_entry) { fetched_.set(memo_entry); }
  void set_fate(std::uint64_t container, Fate fate) {
    auto const bits = static_cast<std::uint8_t>(fate);
    if ((bits & 1U) != 0) fate_low_.set(container);
    if ((bits & 2U) != 0) fate_high_.set(container);
  }
  /// After the last set_fetched(): place() works from now on.
  void finish() { fetched_.count(); }

private:
  BitPages fetched_;
  BitPages fate_low_;
  BitPages fate_high_;
};

}  // namespace headroom::trace::pickle
