// The atomics policy of the models: the same functions as StdAtomics (lib/src/base/atomics.hpp), on Relacy's words. With it the model
// checker compiles the shipped headers, and at each of these calls it may switch threads and choose which stored value a load sees.
//
// `Orders` says which order each call really has. The shipped protocols run with AsNamed. A broken twin weakens some of them, and
// the checker must notice. Each call knows the line that made it (the default argument), so that the histories of found bugs name
// lines of the shipped headers, and ByLine can weaken exactly one of them.
//
// Relacy's macros (`new`, `free`, `assert`, memory_order_…) would rewrite our headers: its parts are included without them.
#pragma once

#include <cstdint>
#include <ostream>
#include <source_location>

#include <relacy/base.hpp>

#include <relacy/context.hpp>

#include <relacy/context_base_impl.hpp>

#include <relacy/atomic.hpp>
#include <relacy/backoff.hpp>
#include <relacy/dyn_thread.hpp>
#include <relacy/stdlib/condition_variable.hpp>
#include <relacy/stdlib/event.hpp>
#include <relacy/stdlib/mutex.hpp>
#include <relacy/stdlib/semaphore.hpp>
#include <relacy/test_suite.hpp>
#include <relacy/var.hpp>

namespace headroom::model {

using Where = std::source_location;
using Order = rl::memory_order;

[[nodiscard]] inline rl::debug_info info(Where const& where) { return {where.function_name(), where.file_name(), where.line()}; }

/// The model's own assertion: fails the execution, with the line in its history.
inline void require(bool holds, char const* what, Where where = Where::current()) {
  if (!holds) rl::ctx().fail_test(what, rl::test_result_user_assert_failed, info(where));
}

// ── Which order a call really has ──

struct AsNamed {
  static Order of(Order named, Where const& /*where*/) noexcept { return named; }
};
/// Twins that trust the machine to do things in the order written.
struct AllRelaxed {
  static Order of(Order /*named*/, Where const& /*where*/) noexcept { return rl::mo_relaxed; }
};
/// Twins that take release and acquire to be enough where one order over several words is needed.
struct NoSeqCst {
  static Order of(Order named, Where const& /*where*/) noexcept { return named == rl::mo_seq_cst ? rl::mo_acq_rel : named; }
};

// ── The policy ──

template <class Orders>
struct RelacyPolicy {
  using Word = rl::atomic<std::uint64_t>;

  static std::uint64_t load_relaxed(Word const& word, Where where = Where::current()) noexcept {
    return load(word, rl::mo_relaxed, where);
  }
  static std::uint64_t load_acquire(Word const& word, Where where = Where::current()) noexcept {
    return load(word, rl::mo_acquire, where);
  }
  static std::uint64_t load_seq_cst(Word const& word, Where where = Where::current()) noexcept {
    return load(word, rl::mo_seq_cst, where);
  }

  static void store_relaxed(Word& word, std::uint64_t value, Where where = Where::current()) noexcept {
    store(word, value, rl::mo_relaxed, where);
  }
  static void store_release(Word& word, std::uint64_t value, Where where = Where::current()) noexcept {
    store(word, value, rl::mo_release, where);
  }
  static void store_seq_cst(Word& word, std::uint64_t value, Where where = Where::current()) noexcept {
    store(word, value, rl::mo_seq_cst, where);
  }

  static std::uint64_t exchange_acquire(Word& word, std::uint64_t value, Where where = Where::current()) noexcept {
    return word.exchange(value, Orders::of(rl::mo_acquire, where), info(where));
  }
  static std::uint64_t exchange_seq_cst(Word& word, std::uint64_t value, Where where = Where::current()) noexcept {
    return word.exchange(value, Orders::of(rl::mo_seq_cst, where), info(where));
  }

  static bool cas_acquire(Word& word, std::uint64_t& expected, std::uint64_t desired, Where where = Where::current()) noexcept {
    return cas(word, expected, desired, rl::mo_acquire, rl::mo_relaxed, where);
  }
  static bool cas_acq_rel(Word& word, std::uint64_t& expected, std::uint64_t desired, Where where = Where::current()) noexcept {
    return cas(word, expected, desired, rl::mo_acq_rel, rl::mo_acquire, where);
  }
  static bool cas_seq_cst(Word& word, std::uint64_t& expected, std::uint64_t desired, Where where = Where::current()) noexcept {
    return cas(word, expected, desired, rl::mo_seq_cst, rl::mo_seq_cst, where);
  }

  static std::uint64_t fetch_add_relaxed(Word& word, std::uint64_t value, Where where = Where::current()) noexcept {
    return word.fetch_add(value, Orders::of(rl::mo_relaxed, where), info(where));
  }
  static std::uint64_t fetch_add_acq_rel(Word& word, std::uint64_t value, Where where = Where::current()) noexcept {
    return word.fetch_add(value, Orders::of(rl::mo_acq_rel, where), info(where));
  }
  static std::uint64_t fetch_add_seq_cst(Word& word, std::uint64_t value, Where where = Where::current()) noexcept {
    return word.fetch_add(value, Orders::of(rl::mo_seq_cst, where), info(where));
  }
  static std::uint64_t fetch_or_acquire(Word& word, std::uint64_t value, Where where = Where::current()) noexcept {
    return word.fetch_or(value, Orders::of(rl::mo_acquire, where), info(where));
  }
  static std::uint64_t fetch_and_release(Word& word, std::uint64_t value, Where where = Where::current()) noexcept {
    return word.fetch_and(value, Orders::of(rl::mo_release, where), info(where));
  }

private:
  static std::uint64_t load(Word const& word, Order named, Where const& where) {
    const Order order = Orders::of(named, where);
    return word.load(order == rl::mo_acq_rel ? rl::mo_acquire : order, info(where));
  }
  static void store(Word& word, std::uint64_t value, Order named, Where const& where) {
    const Order order = Orders::of(named, where);
    word.store(value, order == rl::mo_acq_rel ? rl::mo_release : order, info(where));
  }
  static bool cas(Word& word, std::uint64_t& expected, std::uint64_t desired, Order named, Order failed, Where const& where) {
    const Order order = Orders::of(named, where);
    // Relacy wants a failure order that is no stronger than the order of success.
    if (order == rl::mo_relaxed || order == rl::mo_release) failed = rl::mo_relaxed;
    if (order == rl::mo_acq_rel && failed == rl::mo_seq_cst) failed = rl::mo_acquire;
    return word.compare_exchange_strong(expected, desired, order, info(where), failed, info(where));
  }
};

/// What lies behind a word now, without being a step of the thread: for invariants and for the model's own bookkeeping.
[[nodiscard]] inline std::uint64_t now(rl::atomic<std::uint64_t> const& word) { return word.debug_value(); }

/// For the writer of words that nobody else writes: its relaxed loads can only find its own last store, whenever they run, so no
/// other thread needs a turn before them. Exhaustive searches get several times shorter, and lose nothing.
template <class Atomics>
struct SingleWriter : Atomics {
  using Word = typename Atomics::Word;
  static std::uint64_t load_relaxed(Word const& word, Where where = Where::current()) noexcept {
    rl::preemption_disabler const alone{rl::ctx()};
    return Atomics::load_relaxed(word, where);
  }
};

using RelacyAtomics = RelacyPolicy<AsNamed>;
using RelaxedAtomics = RelacyPolicy<AllRelaxed>;
using AcquireReleaseAtomics = RelacyPolicy<NoSeqCst>;

}  // namespace headroom::model
