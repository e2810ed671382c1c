// The atomics policy: every lock-free protocol of headroom is a template over a policy such as this one, so that a model checker
// compiles the shipped headers with words of its own. A policy names a word type and one function for each operation and order;
// spelling the order in the name keeps each use honest about what it relies on.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom {

struct StdAtomics {
  using Word = std::atomic<std::uint64_t>;

  static std::uint64_t load_relaxed(Word const& word) noexcept { return word.load(std::memory_order_relaxed); }
  static std::uint64_t load_acquire(Word const& word) noexcept { return word.load(std::memory_order_acquire); }
  static std::uint64_t load_seq_cst(Word const& word) noexcept { return word.load(std::memory_order_seq_cst); }

  static void store_relaxed(Word& word, std::uint64_t value) noexcept { word.store(value, std::memory_order_relaxed); }
  static void store_release(Word& word, std::uint64_t value) noexcept { word.store(value, std::memory_order_release); }
  static void store_seq_cst(Word& word, std::uint64_t value) noexcept { word.store(value, std::memory_order_seq_cst); }

  static std::uint64_t exchange_acquire(Word& word, std::uint64_t value) noexcept {
    return word.exchange(value, std::memory_order_acquire);
  }
  static std::uint64_t exchange_seq_cst(Word& word, std::uint64_t value) noexcept {
    return word.exchange(value, std::memory_order_seq_cst);
  }

  /// On failure `expected` becomes the word's present value.
  static bool cas_acquire(Word& word, std::uint64_t& expected, std::uint64_t desired) noexcept {
    return word.compare_exchange_strong(expected, desired, std::memory_order_acquire, std::memory_order_relaxed);
  }
  static bool cas_acq_rel(Word& word, std::uint64_t& expected, std::uint64_t desired) noexcept {
    return word.compare_exchange_strong(expected, desired, std::memory_order_acq_rel, std::memory_order_acquire);
  }
  static bool cas_seq_cst(Word& word, std::uint64_t& expected, std::uint64_t desired) noexcept {
    return word.compare_exchange_strong(expected, desired, std::memory_order_seq_cst, std::memory_order_seq_cst);
  }

  static std::uint64_t fetch_add_relaxed(Word& word, std::uint64_t value) noexcept {
    return word.fetch_add(value, std::memory_order_relaxed);
  }
  static std::uint64_t fetch_add_acq_rel(Word& word, std::uint64_t value) noexcept {
    return word.fetch_add(value, std::memory_order_acq_rel);
  }
  static std::uint64_t fetch_add_seq_cst(Word& word, std::uint64_t value) noexcept {
    return word.fetch_add(value, std::memory_order_seq_cst);
  }
  static std::uint64_t fetch_or_acquire(Word& word, std::uint64_t value) noexcept {
    return word.fetch_or(value, std::memory_order_acquire);
  }
  static std::uint64_t fetch_and_release(Word& word, std::uint64_t value) noexcept {
    return word.fetch_and(value, std::memory_order_release);
  }
};

}  // namespace headroom
