// The reader's protocol of one ring, step by step: a policy with hooks lets the writer act exactly between two loads.
#include <functional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/atomics.hpp"
#include "flight/ring_reader.hpp"
#include "flight/ring_writer.hpp"
#include "hooked_atomics.hpp"

namespace headroom::flight {
namespace {

using Word = StdAtomics::Word;
constexpr std::uint64_t kKind = std::uint64_t{1} << 56;

/// A ring of 8 records in blocks of 2. Words 1…7 of record n are n + start.
template <class Policy>
struct TestRing {
  static constexpr std::uint64_t kSlots = 8, kBlock = 2;
  struct Slots {
    Word const* first;
    Word const* operator()(std::uint64_t index) const { return first + index * 8; }
  };
  using Reader = RingReader<Policy, 8, Slots>;

  Word head{0}, reserve{0};
  Word words[kSlots * 8]{};
  Word zero{0};

  void write(std::uint64_t count = 1) {
    for (std::uint64_t i = 0; i < count; ++i) {
      auto const n = head.load();
      std::uint64_t const values[8]{kKind, n, n, n, n, n, n, n};
      RingWriter<StdAtomics>::write(head, reserve, words, kSlots, kBlock, values);
    }
  }
  /// The first half of the next record, as a writer leaves it that was stopped there.
  void write_half() {
    auto const n = head.load();
    if (reserve == n) reserve = n + kBlock;
    for (std::size_t i = 1; i < 5; ++i) slot(n)[i] = n;
  }
  [[nodiscard]] Word* slot(std::uint64_t number) { return words + number % kSlots * 8; }
  [[nodiscard]] Reader reader() { return {head, reserve, Slots{words}, kSlots}; }
  /// The two broken twins: the shipped reader, given the wrong word to validate against.
  [[nodiscard]] Reader validates_against_head() { return {head, head, Slots{words}, kSlots}; }
  [[nodiscard]] Reader validates_nothing() { return {head, zero, Slots{words}, kSlots}; }
};

template <class Words>
bool is_whole(Words const& words, std::uint64_t number) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] != number) return false;
  }
  return (words[0] & ((std::uint64_t{1} << 48) - 1)) == number;
}

class RingReaderTest : public ::testing::Test {
protected:
  ~RingReaderTest() override { Hooked::before_load = nullptr; }
  /// Acts once, right before the nth load (from 1) of `word`.
  static void before_load(Word const* word, int nth, std::function<void()> act) {
    Hooked::before_load = [word, nth, act = std::move(act), seen = 0](Word const* loaded) mutable {
      if (loaded == word && ++seen == nth) act();
    };
  }
  TestRing<Hooked> ring;
  RingCursor cursor;
  decltype(ring)::Reader::Words words{};
};

TEST_F(RingReaderTest, an_empty_ring_has_nothing) {
  EXPECT_EQ(ring.reader().read(cursor, words), RingRead::nothing);
  EXPECT_EQ(cursor.next, 0U);
  EXPECT_EQ(cursor.lost, 0U);
}

TEST_F(RingReaderTest, reads_every_record_in_order) {
  ring.write(6);
  for (std::uint64_t n = 0; n < 6; ++n) {
    ASSERT_EQ(ring.reader().read(cursor, words), RingRead::accepted);
    EXPECT_TRUE(is_whole(words, n));
  }
  EXPECT_EQ(ring.reader().read(cursor, words), RingRead::nothing);
  EXPECT_EQ(cursor.lost, 0U);
}

TEST_F(RingReaderTest, counts_exactly_what_was_overwritten_over_laps) {
  // head after the writing, records accepted, records lost in all; reserve is the next even number.
  struct Step {
    std::uint64_t write, accepted, lost;
  };
  std::uint64_t accepted = 0;
  for (auto const& step : std::vector<Step>{{5, 5, 0},      // 0–4
                                            {8, 7, 1},      // head 13, reserve 14: floor 6, lost 5
                                            {100, 7, 94},   // head 113, reserve 114: floor 106, lost 13–105 = 93 more
                                            {1, 1, 94},     // head 114, reserve 114
                                            {9, 7, 96}}) {  // head 123, reserve 124: floor 116, lost 114 and 115
    ring.write(step.write);
    auto const before = accepted;
    for (;;) {
      auto const outcome = ring.reader().read(cursor, words);
      if (outcome == RingRead::nothing) break;
      ASSERT_EQ(outcome, RingRead::accepted);
      ++accepted;
      ASSERT_TRUE(is_whole(words, cursor.next - 1));
    }
    EXPECT_EQ(accepted - before, step.accepted);
    EXPECT_EQ(cursor.lost, step.lost);
    EXPECT_EQ(accepted + cursor.lost, ring.head.load());
  }
}

TEST_F(RingReaderTest, a_stopped_reader_learns_exactly_what_it_missed) {
  ring.write(1'000'001);  // reserve 1,000,002
  ASSERT_EQ(ring.reader().read(cursor, words), RingRead::accepted);
  EXPECT_EQ(cursor.lost, 999'994U);
  EXPECT_TRUE(is_whole(words, 999'994));
}

TEST_F(RingReaderTest, overtaken_between_the_head_load_and_the_first_reserve_load) {
  ring.write(4);
  before_load(&ring.reserve, 1, [&] { ring.write(20); });  // head 24, reserve 24, floor 16; the head that was read is 4
  EXPECT_EQ(ring.reader().read(cursor, words), RingRead::overtaken);
  EXPECT_EQ(cursor.next, 16U);
  EXPECT_EQ(cursor.lost, 16U);
}

TEST_F(RingReaderTest, overtaken_between_the_head_load_and_the_second_reserve_load) {
  ring.write(4);
  before_load(&ring.reserve, 2, [&] { ring.write(5); });  // head 9, reserve 10: record 0 was overwritten after the copy
  EXPECT_EQ(ring.reader().read(cursor, words), RingRead::overtaken);
  EXPECT_EQ(cursor.next, 2U);
  EXPECT_EQ(cursor.lost, 2U);
  ASSERT_EQ(ring.reader().read(cursor, words), RingRead::accepted);
  EXPECT_TRUE(is_whole(words, 2));
}

TEST_F(RingReaderTest, not_overtaken_while_the_writer_stays_off_its_slot) {
  ring.write(4);
  before_load(&ring.reserve, 2, [&] { ring.write(4); });  // head 8, reserve 8: slot 0 is not announced
  ASSERT_EQ(ring.reader().read(cursor, words), RingRead::accepted);
  EXPECT_TRUE(is_whole(words, 0));
}

TEST_F(RingReaderTest, overtaken_within_the_copy_at_every_word) {
  for (std::size_t word = 0; word < 8; ++word) {
    ring.write(4);
    auto const first = cursor.next;
    before_load(&ring.slot(first)[word], 1, [&] { ring.write(7); });
    EXPECT_EQ(ring.reader().read(cursor, words), RingRead::overtaken) << "before word " << word;
    Hooked::before_load = nullptr;
    std::uint64_t accepted = 0;
    while (ring.reader().read(cursor, words) == RingRead::accepted) ++accepted;
    EXPECT_EQ(cursor.next, ring.head.load());
    EXPECT_LE(accepted, 8U);
  }
}

TEST_F(RingReaderTest, a_half_written_record_is_refused_and_the_broken_twins_take_it) {
  // Record 0 is read while the writer is in the middle of record 8, which lies in the same slot: head says 8, reserve says 10.
  auto const interleave = [&](auto const& reader) {
    before_load(&ring.slot(0)[1], 1, [&] { ring.write_half(); });
    cursor = {};
    return reader.read(cursor, words);
  };
  ring.write(8);
  EXPECT_EQ(interleave(ring.reader()), RingRead::overtaken);
  EXPECT_EQ(cursor.lost, 2U);

  for (auto const& twin : {ring.validates_against_head(), ring.validates_nothing()}) {
    ASSERT_EQ(interleave(twin), RingRead::accepted) << "the twin must be wrong, or this test proves nothing";
    EXPECT_FALSE(is_whole(words, 0)) << "half of record 8";
  }
}

TEST_F(RingReaderTest, record_numbers_start_again_after_48_bits) {
  constexpr auto kWrap = std::uint64_t{1} << 48;
  ring.head = ring.reserve = kWrap - 2;
  cursor.next = kWrap - 2;
  ring.write(4);  // stored as …FFFE, …FFFF, 0, 1
  for (std::uint64_t n = kWrap - 2; n < kWrap + 2; ++n) {
    ASSERT_EQ(ring.reader().read(cursor, words), RingRead::accepted);
    EXPECT_EQ(words[1], n);
    EXPECT_EQ(words[0] & (kWrap - 1), n & (kWrap - 1));
  }
  EXPECT_EQ(cursor.lost, 0U);
}

TEST_F(RingReaderTest, a_wrong_number_is_damage_and_counts_as_lost) {
  ring.write(3);
  ring.slot(1)[0] = kKind | 9;
  EXPECT_EQ(ring.reader().read(cursor, words), RingRead::accepted);
  EXPECT_EQ(ring.reader().read(cursor, words), RingRead::damaged);
  EXPECT_EQ(ring.reader().read(cursor, words), RingRead::accepted);
  EXPECT_EQ(cursor.next, 3U);
  EXPECT_EQ(cursor.lost, 1U);
}

TEST_F(RingReaderTest, zeroed_memory_is_no_record_number_zero) {
  ring.head = 1;
  ring.reserve = 2;
  EXPECT_EQ(ring.reader().read(cursor, words), RingRead::damaged);
}

TEST_F(RingReaderTest, hostile_words_end_in_a_bounded_number_of_steps) {
  constexpr auto kMost = ~std::uint64_t{0};
  struct Words {
    std::uint64_t head, reserve;
  };
  for (auto const& hostile : {Words{kMost, 0}, Words{kMost, kMost}, Words{5, kMost}, Words{kMost, 5}, Words{kMost - 3, kMost}}) {
    ring.head = hostile.head;
    ring.reserve = hostile.reserve;
    cursor = {};
    int steps = 0;
    while (ring.reader().read(cursor, words) != RingRead::nothing) ASSERT_LE(++steps, 9);
    EXPECT_EQ(cursor.next, cursor.lost) << "nothing was accepted";
    cursor = {};
    steps = 0;
    while (ring.reader().read_quiet(cursor, words) != RingRead::nothing) ASSERT_LE(++steps, 9);
    EXPECT_FALSE(ring.reader().read_uncommitted(words));
  }
}

TEST_F(RingReaderTest, post_mortem_recovers_the_block_that_a_living_reader_gives_up) {
  ring.write(13);  // reserve 14: a living reader has 6–12, the dead ring 6–12; slot 5 = head mod 8 may be torn
  EXPECT_EQ(ring.reader().oldest(), 6U);
  EXPECT_EQ(ring.reader().oldest_quiet(), 6U);
  ring.reserve = 20;  // as with B = 8
  EXPECT_EQ(ring.reader().oldest(), 12U);
  std::uint64_t accepted = 0;
  while (ring.reader().read_quiet(cursor, words) == RingRead::accepted) {
    ++accepted;
    EXPECT_TRUE(is_whole(words, cursor.next - 1));
  }
  EXPECT_EQ(accepted, 7U);
  EXPECT_EQ(cursor.lost, 6U);
}

TEST_F(RingReaderTest, post_mortem_of_a_ring_that_never_lapped_has_all) {
  ring.write(7);
  std::uint64_t accepted = 0;
  while (ring.reader().read_quiet(cursor, words) == RingRead::accepted) ++accepted;
  EXPECT_EQ(accepted, 7U);
  EXPECT_EQ(cursor.lost, 0U);
  cursor = {};
  ring.write(1);  // head 8: record 0 lies in the slot that can be torn
  ASSERT_EQ(ring.reader().read_quiet(cursor, words), RingRead::accepted);
  EXPECT_TRUE(is_whole(words, 1));
  EXPECT_EQ(cursor.lost, 1U);
}

TEST_F(RingReaderTest, post_mortem_drops_a_torn_record_and_shows_a_complete_one) {
  EXPECT_FALSE(ring.reader().read_uncommitted(words)) << "an empty ring";
  ring.write(8);
  EXPECT_FALSE(ring.reader().read_uncommitted(words)) << "slot 0 still holds record 0";
  ring.write_half();
  EXPECT_FALSE(ring.reader().read_uncommitted(words)) << "torn";
  ring.write(1);
  ring.head = 8;  // everything was stored but head
  ASSERT_TRUE(ring.reader().read_uncommitted(words));
  EXPECT_TRUE(is_whole(words, 8));
}

TEST(RingReaderThreads, a_real_writer_tears_nothing_and_every_record_is_accounted_for) {
  TestRing<StdAtomics> ring;
  constexpr std::uint64_t kRecords = 400'000;
  std::thread writer{[&] { ring.write(kRecords); }};
  RingCursor cursor;
  TestRing<StdAtomics>::Reader::Words words{};
  std::uint64_t accepted = 0, torn = 0, damaged = 0;
  while (cursor.next < kRecords) {
    auto const outcome = ring.reader().read(cursor, words);
    if (outcome == RingRead::accepted) {
      ++accepted;
      if (!is_whole(words, cursor.next - 1)) ++torn;
    } else if (outcome == RingRead::damaged) {
      ++damaged;
    }
  }
  writer.join();
  EXPECT_EQ(torn, 0U);
  EXPECT_EQ(damaged, 0U);
  EXPECT_EQ(accepted + cursor.lost, kRecords);
  EXPECT_GT(accepted, 0U);
}

}  // namespace
}  // namespace headroom::flight
