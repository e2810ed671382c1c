// The writer's half of a ring: bounded, wait-free, one writer at a time. Proof in the format's design; the orders are:
//   reserve  relaxed  a reader that saw any word of the new block (release → acquire) then sees this store too
//   words    release  so that a word carries everything before it, `reserve` included
//   head     release  so that whoever sees head = n + 1 sees record n whole
#pragma once

#include <cstdint>

namespace headroom::flight {

template <class Atomics, std::size_t Words = 8>
struct RingWriter {
  using Word = typename Atomics::Word;

  /// Writes one record and returns its number. `words[0]` carries kind and flags; the number is added here.
  static std::uint64_t write(Word& head, Word& reserve, Word* slot_of_zero, std::uint64_t records, std::uint64_t block,
                             std::uint64_t const (&words)[Words]) noexcept {
    const std::uint64_t number = Atomics::load_relaxed(head);
    if (number == Atomics::load_relaxed(reserve)) {
      Atomics::store_relaxed(reserve, number + block);
    }
    Word* slot = slot_of_zero + (number & (records - 1)) * Words;
    for (std::size_t i = 1; i < Words; ++i) {
      Atomics::store_release(slot[i], words[i]);
    }
    Atomics::store_release(slot[0], words[0] | (number & kNumberMask));
    Atomics::store_release(head, number + 1);
    return number;
  }

  static constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << 48) - 1;
};

}  // namespace headroom::flight
