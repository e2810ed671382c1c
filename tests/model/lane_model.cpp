// A lane: one writer, one reader (lib/src/flight/ring_writer.hpp, ring_reader.hpp), and the changes of its writer (lane_owner.hpp).
#include "flight/lane_owner.hpp"
#include "flight/ring_reader.hpp"
#include "flight/ring_writer.hpp"
#include "model.hpp"

namespace headroom::model {
namespace {

using flight::LaneOwner;
using flight::RingCursor;
using flight::RingRead;
using flight::RingReader;
using flight::RingWriter;

using Word = RelacyAtomics::Word;

/// Words 1… of a record say which one it is, so that a mixture shows. `writer` tells two writers of one lane apart.
constexpr std::uint64_t payload(std::uint64_t number, std::size_t word, std::uint64_t writer) {
  return (number << 8) | (word << 4) | writer;
}

template <class Writes, std::uint64_t records, std::uint64_t block, std::size_t words>
struct Ring {
  Word head{0};
  Word reserve{0};
  std::array<Word, records * words> slots;
  Word always_zero{0};  // what a reader that validates nothing looks at

  Ring() {
    for (Word& word : slots) word.store(0, rl::mo_relaxed, info(Where::current()));
  }

  std::uint64_t write(std::uint64_t number, std::uint64_t writer) {
    std::uint64_t draft[words];
    draft[0] = std::uint64_t{1} << 56;
    for (std::size_t i = 1; i < words; ++i) draft[i] = payload(number, i, writer);
    return RingWriter<Writes, words>::write(head, reserve, slots.data(), records, block, draft);
  }
};

enum class Seen : std::uint8_t { accepted, overtaken, nothing };

enum class Validate : std::uint8_t { against_reserve, against_head, never };

/// Reads one step and checks it: whole, the right number, and every record either accepted or counted as lost.
template <class Atomics, std::size_t words, class Reader>
RingRead read_checked(Reader const& reader, RingCursor& cursor, std::uint64_t& accepted) {
  std::array<std::uint64_t, words> record{};
  const std::uint64_t lost_before = cursor.lost;
  const RingRead outcome = reader.read(cursor, record);
  require(outcome != RingRead::damaged, "a sound writer leaves no damaged record");
  if (outcome == RingRead::accepted) {
    ++accepted;
    saw(Seen::accepted);
    const std::uint64_t writer = record[1] & 0xFU;
    for (std::size_t i = 1; i < words; ++i) require(record[i] == payload(cursor.next - 1, i, writer), "accepted record is whole");
  }
  if (outcome == RingRead::overtaken) {
    saw(Seen::overtaken);
    require(cursor.lost > lost_before, "an overtaken reader lost something");
  }
  if (outcome == RingRead::nothing) saw(Seen::nothing);
  require(accepted + cursor.lost == cursor.next, "accepted + lost = next");
  return outcome;
}

// ── One writer, one reader ──

template <class Atomics, std::uint64_t records, std::uint64_t block, std::size_t words, unsigned writes, unsigned reads,
          Validate validate = Validate::against_reserve>
struct Lane : rl::test_suite<Lane<Atomics, records, block, words, writes, reads, validate>, 2> {
  static constexpr std::array<char const*, 3> kSeen{"accepted", "overtaken", "nothing to read"};
  Ring<SingleWriter<Atomics>, records, block, words> ring;
  RingCursor cursor;
  std::uint64_t accepted = 0;

  auto reader() {
    Word const& reserve = validate == Validate::against_reserve ? ring.reserve
                          : validate == Validate::against_head  ? ring.head
                                                                : ring.always_zero;
    auto const slots = [this](std::uint64_t index) { return &ring.slots[index * words]; };
    return RingReader<Atomics, words, decltype(slots)>{ring.head, reserve, slots, records};
  }

  void thread(unsigned index) {
    if (index == 0) {
      for (unsigned i = 0; i < writes; ++i) require(ring.write(i, 0) == i, "records are numbered without a gap");
    } else {
      for (unsigned i = 0; i < reads; ++i) read_checked<Atomics, words>(reader(), cursor, accepted);
    }
  }

  void after() {
    while (read_checked<Atomics, words>(reader(), cursor, accepted) != RingRead::nothing) {
    }
    require(accepted + cursor.lost == writes, "accepted + lost = written");
  }
};

template <class Atomics, Validate validate = Validate::against_reserve>
using SmallLane = Lane<Atomics, 2, 1, 2, 3, 2, validate>;
template <class Atomics>
using WideLane = Lane<Atomics, 4, 2, 4, 14, 6>;
template <class Atomics>
using BlockLane = Lane<Atomics, 8, 4, 3, 30, 9>;

// ── Hand-over: two writers, one after the other, and a reader ──

template <class Atomics, class OwnerAtomics>
struct HandOver : rl::test_suite<HandOver<Atomics, OwnerAtomics>, 3> {
  static constexpr std::array<char const*, 5> kSeen{"accepted", "overtaken", "nothing to read", "lane taken", "lane not taken"};
  static constexpr unsigned kTaken = 3;
  static constexpr unsigned kNotTaken = 4;
  static constexpr std::size_t kWords = 2;
  using Owner = LaneOwner<OwnerAtomics>;

  Ring<Atomics, 2, 1, kWords> ring;
  Word owner{0};
  Word counter{0};              // a counter of the lane: plain load and store by its owner
  rl::var<unsigned> inside{0};  // no word of the format: Relacy reports it when two owners are not ordered
  unsigned written = 0;
  RingCursor cursor;
  std::uint64_t accepted = 0;

  auto reader() {
    auto const slots = [this](std::uint64_t index) { return &ring.slots[index * kWords]; };
    return RingReader<Atomics, kWords, decltype(slots)>{ring.head, ring.reserve, slots, 2};
  }

  void write_as(std::uint64_t thread_id) {
    for (unsigned tries = 0; tries < 3; ++tries) {
      if (!Owner::take(owner, thread_id)) {
        saw(kNotTaken);
        continue;
      }
      saw(kTaken);
      inside(info(Where::current())) += 1U;
      for (unsigned i = 0; i < 2; ++i) {
        // The writer's number is the head that it sees: a writer that sees an old one repeats numbers.
        require(ring.write(written, thread_id) == written, "numbers go on where the last owner stopped");
        ++written;
        Atomics::store_release(counter, Atomics::load_relaxed(counter) + 1);
      }
      Owner::give_back(owner);
      return;
    }
  }

  void thread(unsigned index) {
    if (index < 2) {
      write_as(index + 1);
    } else {
      for (unsigned i = 0; i < 4; ++i) read_checked<Atomics, kWords>(reader(), cursor, accepted);
    }
  }

  void after() {
    while (read_checked<Atomics, kWords>(reader(), cursor, accepted) != RingRead::nothing) {
    }
    require(accepted + cursor.lost == written, "accepted + lost = written");
    require(now(counter) == written, "no count was lost");
  }
};

// ── A shared lane: each record behind the try-flag ──

template <class Atomics>
struct NoTryFlag : LaneOwner<Atomics> {
  static bool try_enter(Word& owner) noexcept {
    if (Atomics::load_acquire(owner) != 0) return false;
    Atomics::store_release(owner, 1);  // looked, and then took: another may have looked as well
    return true;
  }
};

template <class Atomics, class Owner>
struct SharedLane : rl::test_suite<SharedLane<Atomics, Owner>, 3> {
  static constexpr std::array<char const*, 5> kSeen{"accepted", "overtaken", "nothing to read", "entered", "busy"};
  static constexpr unsigned kEntered = 3;
  static constexpr unsigned kBusy = 4;
  static constexpr std::size_t kWords = 2;

  Ring<Atomics, 2, 1, kWords> ring;
  Word owner{0};
  rl::var<unsigned> inside{0};
  unsigned written = 0;
  unsigned refused = 0;
  RingCursor cursor;
  std::uint64_t accepted = 0;

  auto reader() {
    auto const slots = [this](std::uint64_t index) { return &ring.slots[index * kWords]; };
    return RingReader<Atomics, kWords, decltype(slots)>{ring.head, ring.reserve, slots, 2};
  }

  void thread(unsigned index) {
    if (index == 2) {
      for (unsigned i = 0; i < 3; ++i) read_checked<Atomics, kWords>(reader(), cursor, accepted);
      return;
    }
    for (unsigned i = 0; i < 2; ++i) {
      if (!Owner::try_enter(owner)) {
        ++refused;
        saw(kBusy);
        continue;
      }
      saw(kEntered);
      inside(info(Where::current())) += 1U;
      require(ring.write(written, index) == written, "numbers go on where the last one inside stopped");
      ++written;
      Owner::leave(owner);
    }
  }

  void after() {
    while (read_checked<Atomics, kWords>(reader(), cursor, accepted) != RingRead::nothing) {
    }
    require(written + refused == 4, "every event is written or counted as refused");
    require(accepted + cursor.lost == written, "accepted + lost = written");
  }
};

constexpr std::array kCases{
    exhaustive<SmallLane<RelacyAtomics>>("lane.exhaustive"),
    at_random<WideLane<RelacyAtomics>>("lane.wide", 2'000'000),
    at_random<BlockLane<RelacyAtomics>>("lane.block", 1'000'000),
    twin<SmallLane<RelaxedAtomics>>("lane.twin_no_order"),
    twin<SmallLane<RelacyAtomics, Validate::against_head>>("lane.twin_validates_head"),
    twin<SmallLane<RelacyAtomics, Validate::never>>("lane.twin_validates_nothing"),
    every_order<SmallLane<AuditedAtomics>>("lane.every_order"),
    at_random<HandOver<RelacyAtomics, RelacyAtomics>>("hand_over.random", 2'000'000),
    twin<HandOver<RelacyAtomics, RelaxedAtomics>>("hand_over.twin_no_order"),
    every_order<HandOver<AuditedAtomics, AuditedAtomics>>("hand_over.every_order"),
    at_random<SharedLane<RelacyAtomics, LaneOwner<RelacyAtomics>>>("shared_lane.random", 2'000'000),
    twin<SharedLane<RelacyAtomics, LaneOwner<RelaxedAtomics>>>("shared_lane.twin_no_order"),
    twin<SharedLane<RelacyAtomics, NoTryFlag<RelacyAtomics>>>("shared_lane.twin_no_exchange"),
    every_order<SharedLane<AuditedAtomics, LaneOwner<AuditedAtomics>>>("shared_lane.every_order"),
};

}  // namespace
}  // namespace headroom::model

int main(int argc, char** argv) { return headroom::model::run_cases(headroom::model::kCases, {}, argc, argv); }
