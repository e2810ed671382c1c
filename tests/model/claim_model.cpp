// Claims beside a changing limit, and claims beside each other (lib/src/ledger/protocol.hpp).
#include <algorithm>

#include "ledger/protocol.hpp"
#include "model.hpp"

namespace headroom::model {
namespace {

using flight::kBytesMask;
using flight::kNumberOne;
using ledger::ClaimOutcome;
using ledger::ClaimResult;
using ledger::pack_limit;
using ledger::Protocol;

using Word = RelacyAtomics::Word;

std::uint64_t bytes_of(Word const& word) { return now(word) & kBytesMask; }

// ── Broken steps ──

/// Stores the limit and leaves the claim word alone: a claim that was checked against the old limit still succeeds.
template <class Atomics>
struct LimitWithoutVersion : Protocol<Atomics> {
  static void set_limit(Word& limit_word, Word& /*claim_word*/, std::uint64_t limit) noexcept {
    Atomics::store_seq_cst(limit_word, limit);
  }
};

/// Refuses on the claim that it saw first, whatever happened since.
template <class Atomics>
struct RefusesAtFirstSight : Protocol<Atomics> {
  static ClaimResult claim(Word& claim_word, Word const& limit_word, std::uint64_t n) noexcept {
    std::uint64_t seen = Atomics::load_seq_cst(claim_word);
    for (;;) {
      const std::uint64_t limit = Atomics::load_seq_cst(limit_word);
      const std::uint64_t bytes = seen & kBytesMask;
      if (bytes + n > (limit & kBytesMask)) return {ClaimOutcome::refused, bytes, limit};
      if (Atomics::cas_seq_cst(claim_word, seen, seen + kNumberOne + n)) return {ClaimOutcome::granted, bytes, limit};
    }
  }
};

/// Adds first and checks after, as RMM and DuckDB do: two requests that both go over refuse each other.
template <class Atomics>
struct AddsFirst : Protocol<Atomics> {
  static ClaimResult claim(Word& claim_word, Word const& limit_word, std::uint64_t n) noexcept {
    const std::uint64_t bytes = Atomics::fetch_add_seq_cst(claim_word, kNumberOne + n) & kBytesMask;
    const std::uint64_t limit = Atomics::load_seq_cst(limit_word);
    if (bytes + n <= (limit & kBytesMask)) return {ClaimOutcome::granted, bytes, limit};
    Atomics::fetch_add_seq_cst(claim_word, kNumberOne - n);
    return {ClaimOutcome::refused, bytes, limit};
  }
};

// ── What is true at every instant ──

/// Looks at claim and limit after every step of every thread.
struct Watch {
  std::uint64_t bytes = 0;  ///< at the last look
  std::uint64_t limit_in_force =
      0;  ///< the largest that a claim may still be judged by: the old one too, until set_limit returned
  struct Call {
    bool running = false;
    bool did_not_fit = false;  ///< at one instant of the call at least
    std::uint64_t wanted = 0;
  };
  std::array<Call, 3> calls{};

  void look(Word const& claim, Word const& limit) {
    const std::uint64_t present = bytes_of(claim);
    if (present > bytes) require(present <= limit_in_force, "no claim is accepted above the limit in force");
    bytes = present;
    for (Call& call : calls) {
      if (call.running && present + call.wanted > (now(limit) & kBytesMask)) call.did_not_fit = true;
    }
  }
  template <class Steps>
  bool claim(unsigned thread, Word& claim_word, Word const& limit_word, std::uint64_t n) {
    Call& call = calls[thread];
    call = {.running = true, .wanted = n};
    const ClaimResult result = Steps::claim(claim_word, limit_word, n);
    if (result.outcome == ClaimOutcome::refused) require(call.did_not_fit, "refused only what did not fit at one instant");
    call.running = false;
    return result.outcome == ClaimOutcome::granted;
  }
  template <class Steps>
  void set_limit(Word& limit_word, Word& claim_word, std::uint64_t limit) {
    limit_in_force = std::max(now(limit_word) & kBytesMask, limit);
    Steps::set_limit(limit_word, claim_word, pack_limit(limit, true, false));
    limit_in_force = limit;
  }
};

enum class Seen : std::uint8_t { granted, refused };

// ── Requests, one that frees, one that lowers the limit (and, in the larger instance, raises it again) ──

template <class Steps, bool large = false>
struct ClaimAndLimit : rl::test_suite<ClaimAndLimit<Steps, large>, 3> {
  static constexpr std::array<char const*, 2> kSeen{"granted", "refused"};
  Word claim{8};
  Word limit{pack_limit(16, true, false)};
  Watch watch{.bytes = 8, .limit_in_force = 16};

  void request(unsigned index, std::uint64_t n) {
    if (watch.claim<Steps>(index, claim, limit, n)) {
      saw(Seen::granted);
      if (large) Steps::give_back(claim, n);
    } else {
      saw(Seen::refused);
    }
  }
  void thread(unsigned index) {
    switch (index) {
      case 0:
        request(0, 4);
        if (large) request(0, 7);
        break;
      case 1:
        Steps::give_back(claim, 8);
        request(1, 5);
        break;
      default:
        watch.set_limit<Steps>(limit, claim, 6);
        if (large) watch.set_limit<Steps>(limit, claim, 11);
        break;
    }
  }
  void invariant() { watch.look(claim, limit); }
};

// ── Requests beside each other: the word is the sum of what is held, at every instant ──

template <class Steps>
struct Books : rl::test_suite<Books<Steps>, 3> {
  static constexpr std::array<char const*, 2> kSeen{"granted", "refused"};
  Word claim{0};
  Word limit{pack_limit(10, true, false)};
  Watch watch{.bytes = 0, .limit_in_force = 10};
  std::uint64_t held = 0;

  void thread(unsigned index) {
    const std::uint64_t n = 4 + index;  // 4, 5, 6: some pairs fit, three never do
    for (int i = 0; i < 2; ++i) {
      if (!watch.claim<Steps>(index, claim, limit, n)) {
        saw(Seen::refused);
        continue;
      }
      saw(Seen::granted);
      held += n;  // no step lies between the CAS and here
      Steps::give_back(claim, n);
      held -= n;
    }
  }
  void invariant() {
    watch.look(claim, limit);
    require(bytes_of(claim) <= 10, "claimed never exceeds the limit");
    require(bytes_of(claim) == held, "claimed is what is held");
  }
  void after() { require(bytes_of(claim) == 0, "all came back"); }
};

/// Load, look, store: loses what others did in between.
template <class Atomics>
struct ClaimsWithoutCas : Protocol<Atomics> {
  static ClaimResult claim(Word& claim_word, Word const& limit_word, std::uint64_t n) noexcept {
    const std::uint64_t seen = Atomics::load_seq_cst(claim_word);
    const std::uint64_t limit = Atomics::load_seq_cst(limit_word);
    const std::uint64_t bytes = seen & kBytesMask;
    if (bytes + n > (limit & kBytesMask) && Atomics::load_seq_cst(claim_word) == seen)
      return {ClaimOutcome::refused, bytes, limit};
    Atomics::store_seq_cst(claim_word, seen + kNumberOne + n);
    return {ClaimOutcome::granted, bytes, limit};
  }
};

using Shipped = Protocol<RelacyAtomics>;

constexpr std::array kCases{
    exhaustive<ClaimAndLimit<Shipped>>("claim_limit.exhaustive"),
    at_random<ClaimAndLimit<Shipped, true>>("claim_limit.large", 3'000'000),
    twin<ClaimAndLimit<LimitWithoutVersion<RelacyAtomics>>>("claim_limit.twin_no_version"),
    twin<ClaimAndLimit<RefusesAtFirstSight<RelacyAtomics>>>("claim_limit.twin_no_second_look"),
    twin<ClaimAndLimit<Protocol<RelaxedAtomics>>>("claim_limit.twin_no_order"),
    at_random<Books<Shipped>>("claim_books.random", 3'000'000),
    twin<Books<AddsFirst<RelacyAtomics>>>("claim_books.twin_adds_first"),
    twin<Books<ClaimsWithoutCas<RelacyAtomics>>>("claim_books.twin_no_cas"),
};
constexpr std::array kAudited{
    at_random<ClaimAndLimit<Protocol<AuditedAtomics>, true>>("claim_limit", 1'000'000),
    at_random<Books<Protocol<AuditedAtomics>>>("claim_books", 1'000'000),
};

}  // namespace
}  // namespace headroom::model

int main(int argc, char** argv) {
  return headroom::model::run_cases(headroom::model::kCases, headroom::model::kAudited, argc, argv);
}
