// The peak beside allocations that raise it and a reset, and the reader of a ledger's three words (lib/src/ledger/protocol.hpp,
// lib/src/flight/book_readers.hpp).
#include "flight/book_readers.hpp"
#include "ledger/protocol.hpp"
#include "model.hpp"

namespace headroom::model {
namespace {

using flight::kBytesMask;
using flight::LedgerBytes;
using ledger::ClaimOutcome;
using ledger::pack_limit;
using ledger::Protocol;

using Word = RelacyAtomics::Word;

std::uint64_t bytes_of(Word const& word) { return now(word) & kBytesMask; }

// ── reset_peak ──

/// Exchanges and trusts that nothing came between.
template <class Atomics>
struct ResetsAtFirstSight : Protocol<Atomics> {
  static void reset_peak(Word& peak_word, Word const& alloc_word) noexcept {
    Atomics::exchange_seq_cst(peak_word, Atomics::load_seq_cst(alloc_word));
  }
};

enum class PeakSeen : std::uint8_t { raised, not_raised };

template <class Steps, bool large = false>
struct ResetPeak : rl::test_suite<ResetPeak<Steps, large>, 3> {
  static constexpr std::array<char const*, 2> kSeen{"raised", "not raised"};
  Word alloc{2};
  Word peak{9};  // an old high: an allocation that sees it has nothing to raise

  void allocate(std::uint64_t n) {
    saw(Steps::raise_peak(peak, Steps::admit(alloc, n)) ? PeakSeen::raised : PeakSeen::not_raised);
  }

  void thread(unsigned index) {
    if (index == 0) {
      Steps::reset_peak(peak, alloc);
      if (large) Steps::reset_peak(peak, alloc);
      return;
    }
    allocate(2 + index);
    if (large && index == 1) {
      Steps::retire(alloc, 2);
      allocate(1);
    }
  }
  void after() { require(bytes_of(peak) >= bytes_of(alloc), "the peak is at least what is allocated"); }
};

// ── Readers of claim, alloc and peak ──

/// As a reader would do it who thinks that one look each is enough.
enum class Look : std::uint8_t { as_shipped, claim_then_alloc, alloc_then_claim };

enum class ReadSeen : std::uint8_t { more_claimed, as_held };

template <class Atomics, Look look, bool large = false>
struct BooksReader : rl::test_suite<BooksReader<Atomics, look, large>, large ? 3 : 2> {
  static constexpr std::array<char const*, 2> kSeen{"claims in flight", "none in flight"};
  using Steps = Protocol<Atomics>;

  // An unspent reservation of 1 is claimed all the time: a reader who has to fall back on max(claimed, allocated) shows it lost.
  static constexpr std::uint64_t kHeld = 1;
  Word claim{kHeld};
  Word alloc{0};
  Word peak{0};
  Word limit{pack_limit(kBytesMask, true, false)};

  void allocate_and_free(std::uint64_t n) {
    require(Steps::claim(claim, limit, n).outcome == ClaimOutcome::granted, "there is room");
    Steps::raise_peak(peak, Steps::admit(alloc, n));
    Steps::retire(alloc, n);
    Steps::give_back(claim, n);
  }
  LedgerBytes read() {
    if (look == Look::as_shipped) return flight::read_ledger_bytes<Atomics>(claim, alloc, peak);
    LedgerBytes bytes;
    if (look == Look::claim_then_alloc) bytes.claimed = Atomics::load_acquire(claim) & kBytesMask;
    bytes.allocated = Atomics::load_acquire(alloc) & kBytesMask;
    if (look == Look::alloc_then_claim) bytes.claimed = Atomics::load_acquire(claim) & kBytesMask;
    bytes.peak = bytes.allocated;
    return bytes;
  }
  void read_checked() {
    const LedgerBytes bytes = read();
    require(bytes.claimed >= bytes.allocated + kHeld, "claimed covers what is allocated and what is held");
    require(bytes.peak >= bytes.allocated, "peak covers what is allocated");
    saw(bytes.claimed > bytes.allocated + kHeld ? ReadSeen::more_claimed : ReadSeen::as_held);
  }

  void thread(unsigned index) {
    if (index == 0) {
      read_checked();
      if (large) read_checked();
      return;
    }
    allocate_and_free(2 + index);
    if (large) allocate_and_free(1 + index);
  }
  void after() {
    require(bytes_of(claim) == kHeld && bytes_of(alloc) == 0, "all came back");
    require(bytes_of(peak) != 0, "the peak stays");
  }
};

constexpr std::array kCases{
    exhaustive<ResetPeak<Protocol<RelacyAtomics>>>("reset_peak.exhaustive"),
    at_random<ResetPeak<Protocol<RelacyAtomics>, true>>("reset_peak.large", 3'000'000),
    twin<ResetPeak<ResetsAtFirstSight<RelacyAtomics>>>("reset_peak.twin_no_second_look"),
    twin<ResetPeak<Protocol<AcquireReleaseAtomics>>>("reset_peak.twin_acquire_release"),
    twin<ResetPeak<Protocol<RelaxedAtomics>>>("reset_peak.twin_no_order"),
    exhaustive<BooksReader<RelacyAtomics, Look::as_shipped>>("books_reader.exhaustive"),
    at_random<BooksReader<RelacyAtomics, Look::as_shipped, true>>("books_reader.large", 3'000'000),
    twin<BooksReader<RelacyAtomics, Look::claim_then_alloc>>("books_reader.twin_claim_then_alloc"),
    twin<BooksReader<RelacyAtomics, Look::alloc_then_claim>>("books_reader.twin_alloc_then_claim"),
    twin<BooksReader<RelaxedAtomics, Look::as_shipped>>("books_reader.twin_no_order"),
};
constexpr std::array kAudited{
    at_random<ResetPeak<Protocol<AuditedAtomics>, true>>("reset_peak", 1'000'000),
    at_random<BooksReader<AuditedAtomics, Look::as_shipped, true>>("books_reader", 1'000'000),
};

}  // namespace
}  // namespace headroom::model

int main(int argc, char** argv) {
  return headroom::model::run_cases(headroom::model::kCases, headroom::model::kAudited, argc, argv);
}
