// What every model is made of, and the little main that runs one.
//
// A model is a Relacy test suite (before, thread, invariant, after) that drives a shipped protocol through a policy of
// relacy_atomics.hpp. A case is a model and what is expected of it:
//
//   exhaustive   no execution fails, and all of them are tried: every interleaving, every value a load may see
//   at_random    no execution fails, of as many as are asked for (HEADROOM_TEST_SCALE multiplies them)
//   twin         a broken protocol: some execution *must* fail. A twin that holds means that the model is blind
//   every_order  the shipped protocol with the order of one call weakened, each call in turn: each *must* fail
//
// A model that holds because nothing ever happened in it proves nothing: each names what must have been seen in some execution
// (kSeen), counts it with saw(), and does not pass without.
//
// What Relacy does not know is listed in README.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "burst_scheduler.hpp"
#include "relacy_atomics.hpp"

namespace headroom::model {

// ── What was seen ──

inline constexpr std::size_t kMostSeen = 8;
/// Counts over all executions. The only state that outlives one; nothing in a model may depend on it.
inline std::array<std::uint64_t, kMostSeen> seen_counts{};

template <class Seen>
void saw(Seen what) noexcept {
  ++seen_counts[static_cast<std::size_t>(what)];
}

// ── Cases ──

enum class Expect : std::uint8_t { holds_exhaustively, holds_at_random, fails, fails_with_each_weaker_order };

struct Case {
  std::string_view name;
  Expect expect;
  std::uint64_t executions;  ///< at most
  void (*search)(rl::test_params&);
  std::span<char const* const> seen;
};

// What rl::simulate does, with one scheduler instead of all three: they are most of what a model costs to compile.
template <class Model, class Scheduler>
void search(rl::test_params& params) {
  rl::ostringstream state;
  if (rl::run_test<Model, Scheduler>(params, state, false) == rl::test_result_success) return;
  // Once more from the state that failed, for its history.
  params.initial_state = state.str();
  params.collect_history = true;
  rl::run_test<Model, Scheduler>(params, state, true);
}
template <class Model>
void search_all(rl::test_params& params) {
  search<Model, rl::full_search_scheduler<Model::params::thread_count>>(params);
}
template <class Model>
void search_randomly(rl::test_params& params) {
  search<Model, BurstScheduler<Model::params::thread_count>>(params);
}

template <class Model>
[[nodiscard]] constexpr Case exhaustive(std::string_view name) {
  return {name, Expect::holds_exhaustively, 0, search_all<Model>, Model::kSeen};
}
template <class Model>
[[nodiscard]] constexpr Case at_random(std::string_view name, std::uint64_t executions) {
  return {name, Expect::holds_at_random, executions, search_randomly<Model>, Model::kSeen};
}
/// Enough executions that a seed which finds nothing is not to be expected; they are never scaled.
template <class Twin>
[[nodiscard]] constexpr Case twin(std::string_view name, std::uint64_t executions = 5'000'000) {
  return {name, Expect::fails, executions, search_randomly<Twin>, {}};
}

/// A model of AuditedAtomics; `executions` for each call, never scaled.
template <class Model>
[[nodiscard]] constexpr Case every_order(std::string_view name, std::uint64_t executions = 2'000'000) {
  return {name, Expect::fails_with_each_weaker_order, executions, search_randomly<Model>, {}};
}

/// `NAME…` runs these cases (all of them without names), `--history` prints the history of what a twin did wrong, `--expect NAME…`
/// only checks that these are all the cases there are, `--audit` weakens the order of one line after the other (`audited`).
int run_cases(std::span<Case const> cases, std::span<Case const> audited, int argc, char** argv);

// ── Audit: is each order as strong as it must be, and no stronger? ──

/// The calls that a model makes, by line of the shipped header. One of them at a time gets a weaker order.
struct Audit {
  struct Site {
    char const* file;
    std::uint32_t line;
    std::uint32_t column;
    Order named;
  };
  std::array<Site, 64> sites{};
  std::size_t used = 0;
  std::size_t weakened = 64;  // index into sites: none
  Order order = rl::mo_relaxed;

  [[nodiscard]] std::size_t find(Order named, Where const& where) noexcept;
};
inline Audit audit;

struct ByLine {
  static Order of(Order named, Where const& where) noexcept {
    return audit.find(named, where) == audit.weakened ? audit.order : named;
  }
};
using AuditedAtomics = RelacyPolicy<ByLine>;

}  // namespace headroom::model
