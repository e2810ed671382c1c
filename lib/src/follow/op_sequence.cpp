#include "follow/op_sequence.hpp"

#include <algorithm>

namespace headroom::follow {

void OpSequence::add(std::uint64_t alloc_word, Step const& step) {
  auto const low = number_of(alloc_word);
  // Records that follow each other in time have numbers close to each other.
  auto number = has_reference_ ? reference_ + static_cast<std::uint64_t>(ahead(low, reference_ & (kNumbers - 1))) : kOrigin + low;
  if (has_reference_ && number <= furthest_ && is_later_lap(furthest_ - number, step.ticks)) {
    // Between the two more was overwritten than half the numbers there are: "back" is really far ahead.
    number += (furthest_ - number) / kNumbers * kNumbers + kNumbers;
  }
  if (!has_reference_ || number > furthest_) {
    furthest_ = number;
    furthest_ticks_ = step.ticks;
  }
  has_reference_ = true;
  reference_ = number;
  waiting_.push_back({.number = number, .alloc_word = alloc_word, .step = step});
}

/// Whether a record with a number that seems to be `back` behind the furthest one is of a later lap of the numbers. A record can be
/// stamped after one that follows it in the ledger, because its thread was put to sleep in between: then few others got ahead of it, and
/// a sleep that long is rare. No ledger is busy enough to use half of all numbers up in a twentieth of a second.
bool OpSequence::is_later_lap(std::uint64_t back, std::uint64_t ticks) const noexcept {
  auto const longest_sleep = back < kNumbers / 16 ? second_ : second_ / 20;
  return ticks > furthest_ticks_ && ticks - furthest_ticks_ > longest_sleep;
}

void OpSequence::sort() {
  if (std::ranges::is_sorted(waiting_, {}, &Waiting::number)) return;
  std::ranges::stable_sort(waiting_, {}, &Waiting::number);
}

std::size_t OpSequence::last_gap_in_waiting() const noexcept {
  auto at = waiting_.size();
  while (at > 1 && waiting_[at - 1].number <= waiting_[at - 2].number + 1) --at;
  return at == 0 ? 0 : at - 1;
}

}  // namespace headroom::follow
