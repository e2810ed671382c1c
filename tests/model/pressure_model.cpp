// The pressure word beside claims, give-backs and changes of the limit (lib/src/ledger/protocol.hpp).
#include "ledger/protocol.hpp"
#include "model.hpp"

namespace headroom::model {
namespace {

using flight::kBytesMask;
using ledger::ClaimOutcome;
using ledger::pack_limit;
using ledger::Protocol;

using Word = RelacyAtomics::Word;

/// Judges by the figures of the operation that it belongs to, and not by what the ledger says now.
template <class Atomics>
struct JudgesByOwnResult : Protocol<Atomics> {
  using Base = Protocol<Atomics>;
  template <class Told>
  static void judge(Word& pressure, std::uint64_t own_used, Word const& /*claim*/, Word const& limit, Word const& margin,
                    Told&& told) {
    std::uint64_t state = Atomics::load_seq_cst(pressure);
    for (;;) {
      const auto from = static_cast<PressureLevel>(state & 0xFF);
      const PressureLevel to = Base::next_level(from, own_used, Atomics::load_seq_cst(limit), Atomics::load_relaxed(margin));
      if (to == from) return;
      const std::uint64_t desired = ((state >> 8) + 1) << 8 | static_cast<std::uint8_t>(to);
      if (Atomics::cas_seq_cst(pressure, state, desired)) {
        told(typename Base::Transition{from, to, desired >> 8});
        return;
      }
    }
  }
};

/// Looks at the ledger, but goes home after its own change: what happened between look and change stays unjudged.
template <class Atomics>
struct JudgesOnce : Protocol<Atomics> {
  using Base = Protocol<Atomics>;
  template <class Told>
  static void judge(Word& pressure, std::uint64_t /*own_used*/, Word const& claim, Word const& limit, Word const& margin,
                    Told&& told) {
    std::uint64_t state = Atomics::load_seq_cst(pressure);
    for (;;) {
      const std::uint64_t used = Atomics::load_seq_cst(claim) & kBytesMask;
      const auto from = static_cast<PressureLevel>(state & 0xFF);
      const PressureLevel to = Base::next_level(from, used, Atomics::load_seq_cst(limit), Atomics::load_relaxed(margin));
      if (to == from) return;
      const std::uint64_t desired = ((state >> 8) + 1) << 8 | static_cast<std::uint8_t>(to);
      if (Atomics::cas_seq_cst(pressure, state, desired)) {
        told(typename Base::Transition{from, to, desired >> 8});
        return;
      }
    }
  }
};

template <class Atomics>
struct AsShipped : Protocol<Atomics> {
  template <class Told>
  static void judge(Word& pressure, std::uint64_t /*own_used*/, Word const& claim, Word const& limit, Word const& margin,
                    Told&& told) {
    Protocol<Atomics>::judge_pressure(pressure, claim, limit, margin, told);
  }
};

enum class Seen : std::uint8_t { quiet, up, down };

template <class Steps, bool large = false>
struct Pressure : rl::test_suite<Pressure<Steps, large>, large ? 3 : 2> {
  static constexpr std::array<char const*, 3> kSeen{"judged without a change", "up", "down"};
  Word claim{large ? 0U : 40U};
  Word limit{pack_limit(100, true, false)};
  Word margin{0};  // the default: 1 % of the budget
  Word pressure{0};

  struct Change {
    bool told = false;
    PressureLevel from{};
    PressureLevel to{};
  };
  std::array<Change, 32> changes{};  // by sequence

  void judge(std::uint64_t own_used) {
    bool changed = false;
    Steps::judge(pressure, own_used, claim, limit, margin, [&](auto const& transition) {
      changed = true;
      require(transition.sequence < changes.size() && !changes[transition.sequence].told, "each sequence number is told once");
      changes[transition.sequence] = {true, transition.from, transition.to};
      saw(transition.to > transition.from ? Seen::up : Seen::down);
    });
    if (!changed) saw(Seen::quiet);
  }
  void allocate_and_free(std::uint64_t n, bool free_again) {
    const auto result = Steps::claim(claim, limit, n);
    if (result.outcome != ClaimOutcome::granted) return;
    judge(result.claimed_before + n);
    if (!free_again) return;
    Steps::give_back(claim, n);
    judge(result.claimed_before);
  }

  // Up to 69 of 100 is none, 85 low, 95 high, and more than 100 does not fit. In the small instance 85 is an instant, 45 the rest.
  void thread(unsigned index) {
    switch (index) {
      case 0: allocate_and_free(large ? 75 : 45, large); break;
      case 1:
        if (large) {
          allocate_and_free(20, true);
          allocate_and_free(15, false);
        } else {
          Steps::give_back(claim, 40);
          judge(0);
        }
        break;
      default:
        Steps::set_limit(limit, claim, pack_limit(20, true, false));
        judge(now(claim) & kBytesMask);
        break;
    }
  }

  void after() {
    const std::uint64_t word = now(pressure);
    const auto level = static_cast<PressureLevel>(word & 0xFF);
    require(Steps::next_level(level, now(claim) & kBytesMask, now(limit), now(margin)) == level, "the state at rest is right");
    auto last = PressureLevel::none;
    for (std::uint64_t sequence = 1; sequence <= word >> 8; ++sequence) {
      require(changes[sequence].told, "sequence numbers are consecutive");
      require(changes[sequence].from == last && changes[sequence].to != last, "each change begins where the one before ended");
      last = changes[sequence].to;
    }
    require(last == level, "the last change led to the present state");
  }
};

// The margin is a word that nobody writes here: its relaxed load needs no turns of others before it.
using Shipped = AsShipped<SingleWriter<RelacyAtomics>>;

constexpr std::array kCases{
    exhaustive<Pressure<Shipped>>("pressure.exhaustive"),
    at_random<Pressure<Shipped, true>>("pressure.large", 4'000'000),
    twin<Pressure<JudgesByOwnResult<RelacyAtomics>>>("pressure.twin_own_result"),
    twin<Pressure<JudgesOnce<RelacyAtomics>>>("pressure.twin_no_second_look"),
    twin<Pressure<AsShipped<AcquireReleaseAtomics>>>("pressure.twin_acquire_release"),
    twin<Pressure<AsShipped<RelaxedAtomics>>>("pressure.twin_no_order"),
};
constexpr std::array kAudited{
    at_random<Pressure<AsShipped<AuditedAtomics>, true>>("pressure", 1'000'000),
};

}  // namespace
}  // namespace headroom::model

int main(int argc, char** argv) {
  return headroom::model::run_cases(headroom::model::kCases, headroom::model::kAudited, argc, argv);
}
