#include "follow/op_sequence.hpp"

#include <algorithm>

namespace headroom::follow {

void OpSequence::add(std::uint64_t alloc_word, Step const& step) {
  auto const low = number_of(alloc_word);
  // Records that follow each other in time have numbers close to each other.
  auto number = !started_ && !has_reference_ ? kOrigin + low
                                             : reference_ + static_cast<std::uint64_t>(ahead(low, reference_ & (kNumbers - 1)));
  if (started_ && number < expected_ && step.ticks > newest_ticks_ + second_) {
    // More was lost than half the numbers there are: "back" is really far ahead.
    number += (expected_ - number + kNumbers - 1) / kNumbers * kNumbers;
  }
  has_reference_ = true;
  reference_ = number;
  waiting_.push_back({.number = number, .alloc_word = alloc_word, .step = step});
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
