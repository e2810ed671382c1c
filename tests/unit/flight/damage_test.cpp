// Files that are damaged in one place: cut at every byte, each bit of the header flipped, each word of the books replaced. A reader
// must refuse them with a message or read them without believing a number. (tests/fuzz/flight_reader_fuzz.cpp damages many places.)
#include <array>
#include <cstring>

#include <gtest/gtest.h>

#include "compact_flight.hpp"
#include "read_everything.hpp"
#include "scale.hpp"

namespace headroom::flight {
namespace {

/// Of a file whose bytes end where an allocation ends, so that AddressSanitizer sees the first byte that is read behind them.
std::string read_cut(std::span<const std::byte> bytes, std::size_t count) {
  return ReadEverything::of(AlignedBytes{bytes.first(count)}.bytes());
}

TEST(FlightDamage, the_sound_file_reads_whole) {
  auto const file = compact_flight();
  EXPECT_EQ(ReadEverything::of(file.bytes()), "");
  auto const view = FlightView::over(file.bytes(), "compact").value();
  ASSERT_EQ(view.ledgers().size(), 2U);
  EXPECT_EQ(view.ledgers()[0].name, "weights");
  EXPECT_EQ(view.ledgers()[1].claimed, 4'000U);
  EXPECT_EQ(view.process().program, "trainer");
  EXPECT_EQ(view.first_failures().size(), 1U);
  EXPECT_EQ(view.in_flight().size(), 1U);
  std::size_t live = 0;
  view.for_each_live([&](LiveAllocation const&) { ++live; });
  EXPECT_EQ(live, 3U);  // live, freeing and failed
  EventReader reader{view, EventReader::Start::zero};
  std::vector<Event> events;
  std::vector<Gap> gaps;
  reader.poll(events, gaps, true);
  // Main rings of 8: 11 and 10 written, 7 read of each, one of them uncommitted on top; journals of 4: 3 written and read.
  EXPECT_EQ(reader.accepted(), 7U + 7U + 3U + 3U);
  EXPECT_EQ(reader.lost(), 4U + 3U);
  EXPECT_EQ(events.size(), reader.accepted() + 1);
}

TEST(FlightDamage, is_refused_when_it_is_cut_at_any_byte) {
  auto const file = compact_flight();
  auto const bytes = file.bytes();
  for (std::size_t count = 0; count < bytes.size(); ++count) {
    auto const view = FlightView::over(bytes.first(count), "damaged");
    ASSERT_FALSE(view.has_value()) << "cut after " << count << " bytes";
    ASSERT_EQ(view.error().kind, ErrorKind::parse) << "cut after " << count << " bytes: " << view.error().message;
  }
  // What the cut left is the same in memory that ends there.
  for (auto const count : {std::size_t{0}, std::size_t{1}, sizeof(FileHeader) - 1, sizeof(FileHeader), bytes.size() - 1}) {
    EXPECT_EQ(read_cut(bytes, count), "") << "cut after " << count << " bytes";
  }
}

TEST(FlightDamage, of_a_file_that_is_said_to_be_shorter_is_never_read_behind) {
  auto const file = compact_flight();
  // The header's size is lowered with the cut: then the regions must be what refuses it.
  for (std::size_t count = sizeof(FileHeader); count < file.bytes().size(); count += 64) {
    AlignedBytes cut{file.bytes().first(count)};
    auto const said = std::uint64_t{count};
    std::memcpy(cut.data() + offsetof(FileHeader, file_bytes), &said, sizeof said);
    ASSERT_FALSE(FlightView::over(cut.bytes(), "damaged").has_value()) << "cut after " << count << " bytes";
  }
}

TEST(FlightDamage, of_any_bit_of_the_header_is_survived) {
  auto file = compact_flight();
  std::size_t refused = 0;
  std::size_t accepted = 0;
  for (std::size_t bit = 0; bit < sizeof(FileHeader) * 8; ++bit) {
    auto const byte = bit / 8;
    // The spare bytes are many and nobody looks at them: one bit of each is enough.
    auto const is_spare =
        byte >= offsetof(FileHeader, spare2) || (byte >= offsetof(FileHeader, spare1) && byte < offsetof(FileHeader, state));
    if (is_spare && bit % 64 != 0) continue;
    auto const flip = static_cast<std::byte>(1U << (bit % 8));
    file.data()[byte] ^= flip;
    ASSERT_EQ(ReadEverything::of(file.bytes()), "") << "bit " << bit % 8 << " of byte " << byte;
    (FlightView::over(file.bytes(), "damaged").has_value() ? accepted : refused) += 1;
    file.data()[byte] ^= flip;
  }
  EXPECT_GT(refused, 500U) << "magic, versions, sizes, offsets, counts and strides";
  EXPECT_GT(accepted, 2'000U) << "texts, figures and counters";
  EXPECT_EQ(ReadEverything::of(file.bytes()), "");
}

TEST(FlightDamage, of_any_word_of_the_books_is_survived) {
  auto file = compact_flight();
  constexpr std::array<std::uint64_t, 4> kHostile{~std::uint64_t{0}, std::uint64_t{1} << 63, 0x80'80'80'80'80'80'80'80, 1};
  auto const words = (file.bytes().size() - sizeof(FileHeader)) / sizeof(std::uint64_t);
  // Some 20,000 words, four reads each: a part of them here, all of them with HEADROOM_TEST_SCALE=10.
  auto const step = std::max<std::size_t>(1, 11 / test::scaled(1));
  for (std::size_t index = 0; index < words; index += step) {
    auto* const at = file.data() + sizeof(FileHeader) + index * sizeof(std::uint64_t);
    std::uint64_t before = 0;
    std::memcpy(&before, at, sizeof before);
    for (auto const value : kHostile) {
      std::memcpy(at, &value, sizeof value);
      ASSERT_EQ(ReadEverything::of(file.bytes()), "") << "word " << index << " of the books";
    }
    std::memcpy(at, &before, sizeof before);
  }
}

}  // namespace
}  // namespace headroom::flight
