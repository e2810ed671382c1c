// EventReader over whole files: accounting over all rings, gaps, post-mortem, and the timeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flight_builder.hpp"

namespace headroom::flight {
namespace {

struct Polled {
  std::vector<Event> events;
  std::vector<Gap> gaps;
};

Polled poll(EventReader& reader, bool dead = false) {
  Polled polled;
  reader.poll(polled.events, polled.gaps, dead);
  return polled;
}

void write(FlightBuilder& file, std::uint32_t lane, Ring ring, std::uint64_t count) {
  auto const kind = ring == Ring::main ? EventKind::allocate : EventKind::mark;
  for (std::uint64_t i = 0; i < count; ++i) file.write(lane, ring, record(kind, 1000 + i, i));
}

TEST(EventReaderTest, reads_every_ring_of_every_lane) {
  FlightBuilder file;
  write(file, 0, Ring::main, 3);
  write(file, 0, Ring::journal, 2);
  write(file, 63, Ring::main, 1);  // a shared lane
  file.header().lanes_used = 1;
  EventReader reader{file.view()};
  auto const polled = poll(reader);
  ASSERT_EQ(polled.events.size(), 6U);
  EXPECT_TRUE(polled.gaps.empty());
  EXPECT_EQ(polled.events[2].number, 2U);
  EXPECT_EQ(polled.events[3].ring, Ring::journal);
  EXPECT_EQ(polled.events[3].kind, EventKind::mark);
  EXPECT_EQ(polled.events[5].lane, 63U);
  EXPECT_EQ(reader.accepted(), 6U);
  EXPECT_TRUE(poll(reader).events.empty());
  EXPECT_EQ(file.view().process().events_recorded, 6U);
}

TEST(EventReaderTest, from_zero_counts_what_was_overwritten_before_it_came) {
  FlightBuilder file;
  write(file, 2, Ring::main, 21);    // N 8, B 2: reserve 22, floor 14
  write(file, 2, Ring::journal, 9);  // N 4, B 1: reserve 9, floor 5
  EventReader from_zero{file.view(), EventReader::Start::zero};
  auto const polled = poll(from_zero);
  EXPECT_EQ(from_zero.accepted(), 7U + 4U);
  EXPECT_EQ(from_zero.lost(), 14U + 5U);
  ASSERT_EQ(polled.gaps.size(), 2U);
  EXPECT_EQ(polled.gaps[0].lane, 2U);
  EXPECT_EQ(polled.gaps[0].first_missing, 0U);
  EXPECT_EQ(polled.gaps[0].last_missing, 13U);
  EXPECT_EQ(polled.gaps[1].ring, Ring::journal);
  EXPECT_EQ(polled.gaps[1].last_missing, 4U);

  EventReader oldest{file.view(), EventReader::Start::oldest};
  EXPECT_EQ(poll(oldest).events.size(), 11U);
  EXPECT_EQ(oldest.lost(), 0U);
}

TEST(EventReaderTest, accounts_exactly_from_poll_to_poll) {
  FlightBuilder file;
  EventReader reader{file.view()};
  std::uint64_t written = 0;
  for (std::uint64_t const count : {3U, 8U, 1U, 50U, 7U, 0U, 9U, 1001U}) {
    write(file, 1, Ring::main, count);
    written += count;
    static_cast<void>(poll(reader));
    EXPECT_EQ(reader.accepted() + reader.lost(), written);
  }
}

TEST(EventReaderTest, a_first_poll_after_death_reads_what_a_living_ring_gives_up) {
  FlightBuilder file;
  write(file, 0, Ring::main, 20);
  file.ring_words(0, Ring::main).reserve = 27;  // as with B = 7: a living reader has 19 only
  EventReader reader{file.view()};
  auto const polled = poll(reader, true);
  ASSERT_EQ(polled.events.size(), 7U);
  EXPECT_EQ(polled.events.front().number, 13U);
  EXPECT_TRUE(polled.gaps.empty());
  EventReader living{file.view()};
  EXPECT_EQ(poll(living).events.size(), 1U);
}

TEST(EventReaderTest, an_uncommitted_record_is_shown_once_and_not_counted) {
  FlightBuilder file;
  write(file, 0, Ring::main, 9);
  file.ring_words(0, Ring::main).head = 8;  // killed between word 0 and head
  EventReader reader{file.view(), EventReader::Start::zero};
  auto const polled = poll(reader, true);
  ASSERT_EQ(polled.events.size(), 8U);  // 1–7 and the uncommitted one; record 0 lay in its slot
  EXPECT_TRUE(polled.events.back().uncommitted);
  EXPECT_EQ(polled.events.back().number, 8U);
  EXPECT_FALSE(polled.events.front().uncommitted);
  EXPECT_EQ(reader.accepted(), 7U);
  EXPECT_EQ(reader.lost(), 1U);
  EXPECT_TRUE(poll(reader, true).events.empty());
}

TEST(EventReaderTest, damaged_slots_are_one_gap) {
  FlightBuilder file;
  write(file, 0, Ring::main, 6);
  for (std::size_t i : {1U, 2U, 3U}) file.ring(0, Ring::main)[i * 8] = 0;
  EventReader reader{file.view()};
  auto const polled = poll(reader);
  EXPECT_EQ(reader.accepted(), 3U);
  EXPECT_EQ(reader.lost(), 3U);
  ASSERT_EQ(polled.gaps.size(), 1U);
  EXPECT_EQ(polled.gaps[0].first_missing, 1U);
  EXPECT_EQ(polled.gaps[0].last_missing, 3U);
}

TEST(EventReaderTest, hostile_heads_end) {
  FlightBuilder file;
  constexpr auto kMost = ~std::uint64_t{0};
  for (std::uint32_t lane = 0; lane < 64; ++lane) {
    file.ring_words(lane, Ring::main).head = lane % 2 == 0 ? kMost : 3;
    file.ring_words(lane, Ring::main).reserve = lane % 3 == 0 ? kMost : 0;
    file.ring_words(lane, Ring::journal).head = kMost - lane;
  }
  for (auto const start : {EventReader::Start::oldest, EventReader::Start::zero}) {
    for (bool const dead : {false, true}) {
      EventReader reader{file.view(), start};
      EXPECT_TRUE(poll(reader, dead).events.empty());
      EXPECT_TRUE(poll(reader, dead).events.empty());
    }
  }
}

TEST(EventReaderTest, decodes_the_shared_fields) {
  FlightBuilder file;
  auto values = record(EventKind::refusal, 5);
  values[0] |= kFlagContinues;
  values[3] = 4096 | (std::uint64_t{8} << 48);
  values[4] = 77 | (std::uint64_t{5} << 44);
  values[5] = 6 | (std::uint64_t{3} << 16) | (std::uint64_t{9} << 28) | (std::uint64_t{2 * 64 + 5} << 40);
  values[7] = (std::uint64_t{1500} << 32) | 42;
  file.write(0, Ring::journal, values);
  EventReader reader{file.view()};
  auto const event = poll(reader).events.at(0);
  EXPECT_EQ(event.flags(), kFlagContinues);
  EXPECT_EQ(event.bytes(), 4096U);
  EXPECT_EQ(event.allocated_after(), 77U);
  EXPECT_EQ(event.tag(), 6U);
  EXPECT_EQ(event.ledger(), 3U);
  EXPECT_EQ(event.hook(), 9U);
  EXPECT_EQ(event.error_kind(), ErrorKind::device_out_of_memory);
  EXPECT_EQ(event.error_layer(), Layer::driver);
  EXPECT_EQ(event.duration_ns(), 1500U);
  EXPECT_EQ(event.thread(), 42U);

  Event other;
  EXPECT_FALSE(other.error_kind().has_value());
  other.words[5] = std::uint64_t{16 * 64} << 40;  // kind 15 does not exist
  EXPECT_FALSE(other.error_kind().has_value());
  EXPECT_FALSE(other.error_layer().has_value());
  other.words[5] = std::uint64_t{15 * 64 + 7} << 40;  // nor layer 7
  EXPECT_EQ(other.error_kind(), ErrorKind::parse);
  EXPECT_FALSE(other.error_layer().has_value());
}

TEST(EventReaderTest, a_timeline_is_sorted_by_ticks_lane_ring_and_number) {
  auto const make = [](std::uint64_t ticks, std::uint32_t lane, Ring ring, std::uint64_t number) {
    Event event;
    event.ticks = ticks;
    event.lane = lane;
    event.ring = ring;
    event.number = number;
    return event;
  };
  std::vector<Event> events{make(9, 0, Ring::main, 5), make(7, 1, Ring::journal, 1), make(7, 1, Ring::main, 3),
                            make(7, 1, Ring::main, 2), make(7, 0, Ring::journal, 9)};
  sort_timeline(events);
  std::vector<std::uint64_t> numbers;
  for (auto const& event : events) numbers.push_back(event.number);
  EXPECT_THAT(numbers, ::testing::ElementsAre(9, 2, 3, 1, 5));
}

}  // namespace
}  // namespace headroom::flight
