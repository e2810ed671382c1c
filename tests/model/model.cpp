#include "model.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "scale.hpp"

namespace headroom::model {
namespace {

using std::chrono::steady_clock;

struct Outcome {
  bool failed = false;
  bool genuine = false;  ///< by the protocol, not by the model (an access to a word that was never initialised, say)
  std::uint64_t executions = 0;
  std::uint64_t failing_execution = 0;  ///< its number, which is also its seed
  double seconds = 0;
  std::string what;
  std::string history;
};

bool is_genuine(rl::test_result_e result) {
  return result == rl::test_result_user_assert_failed || result == rl::test_result_user_invariant_failed ||
         result == rl::test_result_data_race || result == rl::test_result_deadlock;
}

// Random executions are numbered, and the number is the seed: a run starts at some number and goes on from there.
std::uint64_t first_execution() {
  if (char const* text = std::getenv("HEADROOM_MODEL_SEED"); text != nullptr) return std::strtoull(text, nullptr, 10);
  std::random_device device;
  return (std::uint64_t{device() & 0xFFFFU} << 32) | device() | 1U;
}

Outcome simulate(Case const& wanted, std::uint64_t first, std::uint64_t executions) {
  std::ostream nowhere{nullptr};
  rl::ostringstream output;  // by malloc: Relacy replaces `new`, and what is written below outlives its context
  rl::test_params params;
  params.output_stream = &output;
  params.progress_stream = &nowhere;
  const bool full = wanted.expect == Expect::holds_exhaustively;
  params.search_type = full ? rl::fair_full_search_scheduler_type : rl::random_scheduler_type;
  if (!full) {
    params.iteration_count = first + executions - 1;
    const std::string state = std::to_string(first) + " ";
    params.initial_state.assign(state.begin(), state.end());  // a string of another allocator
  }
  const auto start = steady_clock::now();
  wanted.search(params);
  Outcome outcome;
  outcome.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  outcome.failed = params.test_result != rl::test_result_success;
  outcome.genuine = is_genuine(params.test_result);
  outcome.failing_execution = params.stop_iteration;
  outcome.executions = params.stop_iteration - (full ? 0 : first - 1);
  if (outcome.failed) {
    outcome.history = std::string_view{output.str()};
    outcome.what = outcome.history.substr(0, outcome.history.find('\n'));  // its first line says it
  }
  return outcome;
}

bool print_seen(Case const& wanted) {
  bool all = true;
  for (std::size_t i = 0; i < wanted.seen.size(); ++i) {
    std::printf("%s %s %llu", i == 0 ? "  seen:" : ",", wanted.seen[i], static_cast<unsigned long long>(seen_counts[i]));
    all = all && seen_counts[i] != 0;
  }
  std::printf("\n");
  if (!all) std::printf("FAILED: something that must be possible was never seen\n");
  return all;
}

// ── Audit ──

char const* name_of(Order order) {
  switch (order) {
    case rl::mo_relaxed: return "relaxed";
    case rl::mo_acquire: return "acquire";
    case rl::mo_release: return "release";
    case rl::mo_acq_rel: return "acq_rel";
    default: return "seq_cst";
  }
}

std::vector<Order> weaker_than(Order order) {
  if (order == rl::mo_seq_cst) return {rl::mo_acq_rel, rl::mo_relaxed};
  if (order == rl::mo_acq_rel) return {rl::mo_acquire, rl::mo_release, rl::mo_relaxed};
  if (order == rl::mo_relaxed) return {};
  return {rl::mo_relaxed};
}

/// Weakens one call of the shipped headers after the other. True when the model noticed each time.
bool audit_case(Case const& wanted, std::uint64_t executions) {
  std::printf("%.*s\n", static_cast<int>(wanted.name.size()), wanted.name.data());
  audit = {};
  const std::uint64_t first = first_execution();
  simulate(wanted, first, 10'000);  // finds the calls
  const std::vector<Audit::Site> sites{audit.sites.begin(), audit.sites.begin() + static_cast<std::ptrdiff_t>(audit.used)};
  bool all_needed = !sites.empty();
  for (std::size_t i = 0; i < sites.size(); ++i) {
    std::string_view file = sites[i].file;
    if (file.ends_with("_model.cpp")) continue;
    file.remove_prefix(file.rfind('/') + 1);
    std::printf("  %.*s:%u:%u %s", static_cast<int>(file.size()), file.data(), sites[i].line, sites[i].column,
                name_of(sites[i].named));
    for (Order const order : weaker_than(sites[i].named)) {
      audit.weakened = i;
      audit.order = order;
      Outcome const outcome = simulate(wanted, first, executions);
      if (outcome.failed && outcome.genuine) {
        std::printf(" · %s fails after %llu", name_of(order), static_cast<unsigned long long>(outcome.executions));
      } else {
        std::printf(" · %s holds", name_of(order));
        all_needed = false;
      }
      std::fflush(stdout);
    }
    std::printf("\n");
  }
  audit.weakened = audit.sites.size();
  return all_needed;
}

// ── One case ──

bool run_case(Case const& wanted, std::string_view program, bool show_history) {
  seen_counts.fill(0);
  if (wanted.expect == Expect::fails_with_each_weaker_order) {
    const bool all_needed = audit_case(wanted, wanted.executions);
    if (!all_needed) std::printf("FAILED: an order can be weakened, and the model does not notice\n");
    return all_needed;
  }
  const bool full = wanted.expect == Expect::holds_exhaustively;
  const std::uint64_t first = first_execution();
  const std::uint64_t executions = wanted.expect == Expect::holds_at_random ? test::scaled(wanted.executions) : wanted.executions;
  Outcome const outcome = simulate(wanted, first, executions);
  std::printf("%.*s: %llu executions, %s, %.1f s", static_cast<int>(wanted.name.size()), wanted.name.data(),
              static_cast<unsigned long long>(outcome.executions), full ? "all there are" : "at random", outcome.seconds);
  if (!full) std::printf(", seed %llu", static_cast<unsigned long long>(first));
  std::printf("\n");

  if (wanted.expect == Expect::fails) {
    if (outcome.failed && outcome.genuine) {
      std::printf("  found as it must be: %s\n", outcome.what.c_str());
      if (show_history) std::printf("%s\n", outcome.history.c_str());
      return true;
    }
    std::printf("FAILED: %s\n%s\n",
                outcome.failed ? "the twin failed in another way than a broken protocol does"
                               : "the model did not notice that its protocol is broken",
                outcome.history.c_str());
    return false;
  }
  if (outcome.failed) {
    std::printf("FAILED: %s\n%s\n", outcome.what.c_str(), outcome.history.c_str());
    if (!full) {
      std::printf("To see it again: HEADROOM_MODEL_SEED=%llu %.*s %.*s\n",
                  static_cast<unsigned long long>(outcome.failing_execution), static_cast<int>(program.size()), program.data(),
                  static_cast<int>(wanted.name.size()), wanted.name.data());
    }
    return false;
  }
  return print_seen(wanted);
}

}  // namespace

std::size_t Audit::find(Order named, Where const& where) noexcept {
  for (std::size_t i = 0; i < used; ++i) {
    if (sites[i].line == where.line() && sites[i].column == where.column() && sites[i].file == where.file_name()) return i;
  }
  if (used == sites.size()) std::abort();
  sites[used] = {where.file_name(), where.line(), where.column(), named};
  return used++;
}

int run_cases(std::span<Case const> cases, std::span<Case const> audited, int argc, char** argv) {
  std::vector<std::string_view> names(argv + 1, argv + argc);
  auto const option = [&](std::string_view wanted) { return std::erase(names, wanted) != 0; };
  const bool show_history = option("--history");
  const bool expect = option("--expect");
  if (option("--audit")) {
    for (Case const& wanted : audited) audit_case(wanted, test::scaled(wanted.executions));
    return 0;
  }
  bool good = true;
  for (std::string_view name : names) {
    if (std::ranges::find(cases, name, &Case::name) == cases.end()) {
      std::printf("there is no case %.*s\n", static_cast<int>(name.size()), name.data());
      good = false;
    }
  }
  for (Case const& wanted : cases) {
    const bool named = std::ranges::find(names, wanted.name) != names.end();
    if (expect) {
      if (!named) std::printf("not run by ctest: %.*s\n", static_cast<int>(wanted.name.size()), wanted.name.data());
      good = good && named;
    } else if (named || names.empty()) {
      good = run_case(wanted, argv[0], show_history) && good;
      std::fflush(stdout);
    }
  }
  return good ? 0 : 1;
}

}  // namespace headroom::model
