// A slot of the live table: published, freed and published again, beside readers and competing frees
// (lib/src/flight/slot_protocol.hpp).
#include "flight/slot_protocol.hpp"
#include "model.hpp"

namespace headroom::model {
namespace {

using flight::GuardedRead;
using flight::pack_slot;
using flight::slot_generation;
using flight::SlotProtocol;
using flight::SlotState;

using Word = RelacyAtomics::Word;

// ── Broken steps ──

/// Publishes without the `writing` mark. This alone breaks nothing: `clear` changed the state before, and new fields bring that along.
template <class Atomics>
struct Unmarked : SlotProtocol<Atomics> {
  template <class PutFields>
  static std::uint64_t publish(Word& state, PutFields&& put_fields) noexcept {
    const std::uint64_t generation = slot_generation(Atomics::load_relaxed(state)) + 1;
    put_fields();
    Atomics::store_release(state, pack_slot(generation, SlotState::live, false));
    return generation;
  }
};
/// Neither marks nor clears: the old state stands beside new fields.
template <class Atomics>
struct Uncleared : Unmarked<Atomics> {
  static void clear(Word& /*state*/) noexcept {}
};
/// Reads without the second look.
template <class Atomics>
struct ReadsOnce : SlotProtocol<Atomics> {
  template <class CopyFields>
  static GuardedRead read(Word const& state, CopyFields&& copy_fields) {
    const std::uint64_t before = Atomics::load_acquire(state);
    if (SlotProtocol<Atomics>::judge(before) != flight::GuardSays::readable) return GuardedRead::unwanted;
    copy_fields(before);
    return GuardedRead::whole;
  }
};
/// Looks and stores where two may free at once.
template <class Atomics>
struct MovesWithoutCas : SlotProtocol<Atomics> {
  static bool move(Word& state, std::uint64_t generation, SlotState from, SlotState to) noexcept {
    if (Atomics::load_acquire(state) != pack_slot(generation, from, false)) return false;
    Atomics::store_release(state, pack_slot(generation, to, false));
    return true;
  }
};
/// Takes a slot by looking and storing.
template <class Atomics>
struct TakesWithoutOr : SlotProtocol<Atomics> {
  static bool take(Word& bitmap, std::uint64_t bit, std::uint64_t& bits) noexcept {
    bits = Atomics::load_acquire(bitmap);
    if ((bits & bit) != 0) return false;
    Atomics::store_release(bitmap, bits | bit);
    return true;
  }
};

template <class Steps>
struct Slot {
  Word state{pack_slot(1, SlotState::live, false)};
  Word address{1 << 4};
  Word bytes{1 << 4};
  unsigned writers = 0;  // inside publish at this instant

  /// Both fields name the generation.
  std::uint64_t publish() {
    const std::uint64_t value = (slot_generation(now(state)) + 1) << 4;
    ++writers;
    const std::uint64_t generation = Steps::publish(state, [&] {
      require(writers == 1, "one writer at a time");
      Steps::put(address, value);
      Steps::put(bytes, value);
    });
    --writers;
    return generation;
  }
  GuardedRead read_checked() {
    std::uint64_t word = 0;
    std::uint64_t got_address = 0;
    std::uint64_t got_bytes = 0;
    const GuardedRead outcome = Steps::read(state, [&](std::uint64_t seen) {
      word = seen;
      got_address = Steps::get(address);
      got_bytes = Steps::get(bytes);
    });
    if (outcome == GuardedRead::whole) {
      require(got_address == got_bytes, "no two allocations are mixed");
      require(got_address == slot_generation(word) << 4, "the fields belong to the state's generation");
    }
    saw(outcome);
    return outcome;
  }
};

// ── Freed and published again by its owner, beside a reader ──

template <class Steps>
struct Republish : rl::test_suite<Republish<Steps>, 2> {
  static constexpr std::array<char const*, 2> kSeen{"whole", "free"};
  Slot<Steps> slot;

  void thread(unsigned index) {
    if (index == 1) {
      slot.read_checked();
      return;
    }
    require(Steps::move_by_owner(slot.state, 1), "the owner may free it");
    Steps::clear(slot.state);
    require(slot.publish() == 2, "the next generation");
  }
  void after() {
    require(slot.read_checked() == GuardedRead::whole, "at rest it can be read");
    require(now(slot.state) == pack_slot(2, SlotState::live, false), "and is the second allocation's");
  }
};

// ── Through the bitmap, by two threads, beside a reader ──

/// Whoever finds the slot free publishes in it, else frees what lies there: blocks are freed by another thread than took them.
template <class Steps>
struct Share : rl::test_suite<Share<Steps>, 3> {
  static constexpr std::array<char const*, 3> kSeen{"whole", "free", "busy"};
  Slot<Steps> slot;
  Word bitmap{0b10};            // a neighbour's bit, which must stay
  rl::var<unsigned> inside{0};  // no word of the format: Relacy reports it when two owners are not ordered
  unsigned published = 0;
  unsigned freed = 0;

  Share() { slot.state.store(pack_slot(1, SlotState::free, false), rl::mo_relaxed, info(Where::current())); }

  void touch(Where where = Where::current()) { inside(info(where)) += 1U; }
  void allocate_or_free() {
    std::uint64_t bits = 0;
    if (Steps::take(bitmap, 1, bits)) {
      touch();
      const std::uint64_t generation = slot.publish();
      ++published;
      require(generation == 1 + published, "generations go on where the last owner stopped");
    } else if (Steps::move(slot.state, 1 + published, SlotState::live, SlotState::freeing)) {
      touch();
      Steps::clear(slot.state);
      ++freed;
      Steps::give(bitmap, 1);
    }
  }
  void thread(unsigned index) {
    for (int i = 0; i < 4; ++i) {
      if (index < 2) allocate_or_free();
      if (index == 2) slot.read_checked();
    }
  }
  void after() {
    require(published - freed <= 1, "one allocation at a time");
    require(now(bitmap) == (published == freed ? 0b10U : 0b11U), "only its own bit changed");
  }
};

// ── Two frees of one block, and a third thread that takes the slot afterwards ──

enum class FreeSeen : std::uint8_t { won, lost, reused };

template <class Steps>
struct DoubleFree : rl::test_suite<DoubleFree<Steps>, 3> {
  static constexpr std::array<char const*, 3> kSeen{"won", "lost", "taken again"};
  Slot<Steps> slot;
  Word bitmap{1};
  rl::var<unsigned> inside{0};
  unsigned won = 0;
  bool reused = false;

  void thread(unsigned index) {
    if (index == 2) {
      std::uint64_t bits = 0;
      if (Steps::take(bitmap, 1, bits)) {
        inside(info(Where::current())) += 1U;
        require(slot.publish() == 2, "the next generation");
        reused = true;
        saw(FreeSeen::reused);
      }
      return;
    }
    if (!Steps::move(slot.state, 1, SlotState::live, SlotState::freeing)) {
      saw(FreeSeen::lost);
      return;
    }
    saw(FreeSeen::won);
    ++won;
    inside(info(Where::current())) += 1U;
    Steps::clear(slot.state);
    Steps::give(bitmap, 1);
  }
  void after() {
    require(won == 1, "one of two frees wins");
    require(now(slot.state) == (reused ? pack_slot(2, SlotState::live, false) : pack_slot(1, SlotState::free, false)),
            "a stale free leaves the next allocation alone");
  }
};

using OneWriter = SlotProtocol<SingleWriter<RelacyAtomics>>;  // for models in which one thread writes the slot

constexpr std::array kCases{
    exhaustive<Republish<OneWriter>>("slot.exhaustive"),
    at_random<Share<SlotProtocol<RelacyAtomics>>>("slot.share", 4'000'000),
    exhaustive<DoubleFree<SlotProtocol<RelacyAtomics>>>("slot.double_free"),
    exhaustive<Republish<Unmarked<SingleWriter<RelacyAtomics>>>>("slot.cleared_is_marked"),
    twin<Republish<Uncleared<RelacyAtomics>>>("slot.twin_no_mark_no_clear"),
    twin<Republish<ReadsOnce<RelacyAtomics>>>("slot.twin_no_second_look"),
    twin<Republish<SlotProtocol<RelaxedAtomics>>>("slot.twin_no_order"),
    twin<DoubleFree<MovesWithoutCas<RelacyAtomics>>>("slot.twin_no_cas"),
    twin<Share<SlotProtocol<RelaxedAtomics>>>("slot.twin_share_no_order"),
    twin<Share<TakesWithoutOr<RelacyAtomics>>>("slot.twin_no_fetch_or"),
};
constexpr std::array kAudited{
    at_random<Republish<SlotProtocol<AuditedAtomics>>>("slot", 500'000),
    at_random<Share<SlotProtocol<AuditedAtomics>>>("slot, share", 500'000),
    at_random<DoubleFree<SlotProtocol<AuditedAtomics>>>("slot, double free", 500'000),
};

}  // namespace
}  // namespace headroom::model

int main(int argc, char** argv) {
  return headroom::model::run_cases(headroom::model::kCases, headroom::model::kAudited, argc, argv);
}
