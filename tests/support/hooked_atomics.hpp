// What another thread may do right before a load.
#pragma once

#include <cstdint>
#include <functional>

#include "base/atomics.hpp"

namespace headroom::flight {

/// A policy of atomics that calls `before_load` with the address of every word that is about to be loaded.
struct Hooked {
  using Word = StdAtomics::Word;
  static inline std::function<void(Word const*)> before_load;

  static std::uint64_t load_acquire(Word const& word) { return tell(word), StdAtomics::load_acquire(word); }
  static std::uint64_t load_relaxed(Word const& word) { return tell(word), StdAtomics::load_relaxed(word); }
  static void tell(Word const& word) {
    if (before_load) before_load(&word);
  }
};

}  // namespace headroom::flight
