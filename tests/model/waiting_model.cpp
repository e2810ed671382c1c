// Waiting for room, without losing a wake-up (lib/src/ledger/waiting.hpp with protocol.hpp). A waiter that sleeps for ever is found as
// a deadlock. The futex is the kernel's: it compares and goes to sleep in one step, and it never wakes by itself here.
#include "ledger/protocol.hpp"
#include "ledger/waiting.hpp"
#include "model.hpp"

namespace headroom::model {
namespace {

using flight::kBytesMask;
using ledger::ClaimOutcome;
using ledger::pack_limit;
using ledger::Protocol;
using ledger::WaitProtocol;

using Word = RelacyAtomics::Word;

struct Futex {
  /// FUTEX_WAIT: sleeps if the word, as it is now, holds `seen`.
  static bool sleep(Word& word, std::uint64_t seen, Where where = Where::current()) {
    rl::ctx().sched();
    if (static_cast<std::uint32_t>(now(word)) != static_cast<std::uint32_t>(seen)) return false;
    word.wait(rl::ctx(), false, false, info(where));
    return true;
  }
  static void wake_all(Word& word, Where where = Where::current()) {
    rl::ctx().sched();
    word.wake(rl::ctx(), 16, info(where));
  }
};

/// The order in which a waiter and one who gives back do things. All but the first are wrong.
enum class How : std::uint8_t { as_designed, claims_before_announcing, reads_epoch_after_claiming, looks_before_giving_back };

enum class Seen : std::uint8_t { at_once, slept, changed_before_sleep, woke_somebody };

template <class Atomics, How how, bool large = false>
struct Waiting : rl::test_suite<Waiting<Atomics, how, large>, large ? 4 : 2> {
  static constexpr std::array<char const*, 4> kSeen{"granted at once", "slept", "epoch moved before the sleep",
                                                    "somebody awaited it"};
  using Steps = Protocol<Atomics>;
  using Wait = WaitProtocol<Atomics>;

  Word claim{4};
  Word limit{pack_limit(4, true, false)};
  Word waiters{0};
  Word epoch{0};
  unsigned granted = 0;

  bool try_claim() { return Steps::claim(claim, limit, 4).outcome == ClaimOutcome::granted; }

  void wait_for_room() {
    if (how == How::claims_before_announcing) {
      while (!try_claim()) {
        Wait::announce(waiters);
        Futex::sleep(epoch, Wait::epoch(epoch));
        Wait::leave(waiters);
      }
      ++granted;
      return;
    }
    Wait::announce(waiters);
    for (bool first = true;; first = false) {
      std::uint64_t seen = 0;
      if (how != How::reads_epoch_after_claiming) seen = Wait::epoch(epoch);
      if (try_claim()) {
        if (first) saw(Seen::at_once);
        break;
      }
      if (how == How::reads_epoch_after_claiming) seen = Wait::epoch(epoch);
      saw(Futex::sleep(epoch, seen) ? Seen::slept : Seen::changed_before_sleep);
    }
    ++granted;
    Wait::leave(waiters);
  }

  template <class Change>
  void change_and_wake(Change&& change) {
    if (how == How::looks_before_giving_back) {
      const bool awaited = Wait::bump_if_awaited(waiters, epoch);
      change();
      if (awaited) Futex::wake_all(epoch);
      return;
    }
    change();
    if (Wait::bump_if_awaited(waiters, epoch)) {
      saw(Seen::woke_somebody);
      Futex::wake_all(epoch);
    }
  }

  void thread(unsigned index) {
    if (index == 0) {
      change_and_wake([&] { Steps::give_back(claim, 4); });
    } else if (index == 3) {
      change_and_wake([&] { Steps::set_limit(limit, claim, pack_limit(8, true, false)); });
    } else {
      wait_for_room();
      if (large) change_and_wake([&] { Steps::give_back(claim, 4); });
    }
  }
  void after() {
    require(granted == (large ? 2 : 1) && (now(claim) & kBytesMask) == (large ? 0 : 4), "everybody got room");
    require(now(waiters) == 0, "nobody is left waiting");
  }
};

constexpr std::array kCases{
    exhaustive<Waiting<RelacyAtomics, How::as_designed>>("waiting.exhaustive"),
    at_random<Waiting<RelacyAtomics, How::as_designed, true>>("waiting.large", 4'000'000),
    twin<Waiting<RelacyAtomics, How::claims_before_announcing>>("waiting.twin_claims_before_announcing"),
    twin<Waiting<RelacyAtomics, How::reads_epoch_after_claiming>>("waiting.twin_reads_epoch_late"),
    twin<Waiting<RelacyAtomics, How::looks_before_giving_back>>("waiting.twin_looks_before_giving_back"),
    twin<Waiting<AcquireReleaseAtomics, How::as_designed>>("waiting.twin_acquire_release"),
    twin<Waiting<RelaxedAtomics, How::as_designed>>("waiting.twin_no_order"),
};
constexpr std::array kAudited{
    at_random<Waiting<AuditedAtomics, How::as_designed>>("waiting", 1'000'000),
    at_random<Waiting<AuditedAtomics, How::as_designed, true>>("waiting, large", 1'000'000),
};

}  // namespace
}  // namespace headroom::model

int main(int argc, char** argv) {
  return headroom::model::run_cases(headroom::model::kCases, headroom::model::kAudited, argc, argv);
}
