// What is refused before anything of a file is used, and what the message says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flight_builder.hpp"

namespace headroom::flight {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void expect_error(FlightBuilder const& file, ErrorKind kind, std::string const& part, std::string const& more = {}) {
  auto const view = file.try_view();
  ASSERT_FALSE(view.has_value()) << "accepted, expected: " << part;
  EXPECT_EQ(view.error().kind, kind);
  EXPECT_THAT(view.error().message, AllOf(HasSubstr("test: "), HasSubstr(part), HasSubstr(more)));
}

TEST(FlightLayout, accepts_what_the_recorder_makes) {
  EXPECT_TRUE(FlightBuilder{}.try_view().has_value());
  EXPECT_TRUE(FlightBuilder{Sizes{}}.try_view().has_value());
  Sizes smallest;
  while (smallest.halve()) {
  }
  EXPECT_TRUE(FlightBuilder{smallest}.try_view().has_value());
}

TEST(FlightLayout, refuses_less_than_a_header) {
  FlightBuilder const file;
  for (auto const size : {std::size_t{0}, std::size_t{64}, std::size_t{4095}}) {
    auto const view = FlightView::over(file.bytes().first(size), "test");
    ASSERT_FALSE(view.has_value());
    EXPECT_EQ(view.error().kind, ErrorKind::parse);
    EXPECT_EQ(view.error().message, "test: not a flight file: " + std::to_string(size) + " bytes, its header alone has 4096");
  }
}

TEST(FlightLayout, refuses_bytes_that_are_not_aligned) {
  FlightBuilder const file;
  auto const view = FlightView::over(file.bytes().subspan(8), "test");
  ASSERT_FALSE(view.has_value());
  EXPECT_EQ(view.error().kind, ErrorKind::invalid_argument);
}

TEST(FlightLayout, names_magic_version_and_byte_order) {
  FlightBuilder file;
  file.header().magic = 0;
  expect_error(file, ErrorKind::parse, "not a finished flight file");
  file.header().magic = 0x1234;
  expect_error(file, ErrorKind::parse, "not a flight file: offset 0 holds 0x1234");
  file.header().magic = __builtin_bswap64(kMagic);
  expect_error(file, ErrorKind::unsupported, "byte order mark");
  file.header().magic = kMagic;
  file.header().endianness = 0x04030201;
  expect_error(file, ErrorKind::unsupported, "byte order mark 0x4030201", "0x1020304 (little-endian)");
  file.header().endianness = kEndianness;
  file.header().abi_major = 2;
  file.header().abi_minor = 7;
  expect_error(file, ErrorKind::unsupported, "flight format version 2.7, this headroom reads version 1");
  file.header().abi_major = 1;
  EXPECT_TRUE(file.try_view().has_value()) << "a later minor version only adds";
}

TEST(FlightLayout, refuses_a_size_that_is_not_there) {
  FlightBuilder file;
  auto const real = file.header().file_bytes;
  file.header().file_bytes = real + 1;
  expect_error(file, ErrorKind::parse, "the file size at offset 16 is " + std::to_string(real + 1), "cut off?");
  file.header().file_bytes = 4095;
  expect_error(file, ErrorKind::parse, "offset 16 is 4095", "4096 to 1073741824");
  file.header().file_bytes = ~std::uint64_t{0};
  expect_error(file, ErrorKind::parse, "offset 16 is 18446744073709551615");
}

TEST(FlightLayout, refuses_too_few_and_too_many_regions) {
  FlightBuilder file;
  for (std::uint32_t const count : {0U, 11U, 17U, 0xFFFF'FFFFU}) {
    file.header().region_count = count;
    expect_error(file, ErrorKind::parse, "the number of regions at offset 24 is " + std::to_string(count), "expected 12 to 16");
  }
  file.header().region_count = 16;
  EXPECT_TRUE(file.try_view().has_value());
}

class EveryRegion : public ::testing::TestWithParam<std::uint32_t> {
protected:
  [[nodiscard]] RegionEntry& entry() { return file.header().regions[GetParam()]; }
  [[nodiscard]] std::string at(std::size_t offset) const {
    return "at offset " + std::to_string(64 + 16 * GetParam() + offset) + " is ";
  }
  FlightBuilder file;
};

TEST_P(EveryRegion, refuses_offsets_outside_the_file) {
  auto const good = entry();
  for (std::uint64_t const offset :
       {std::uint64_t{0}, std::uint64_t{4032}, good.offset + 8, file.header().file_bytes + 64, ~std::uint64_t{63}}) {
    entry().offset = offset;
    expect_error(file, ErrorKind::parse, "the offset of region '", at(0) + std::to_string(offset));
  }
}

TEST_P(EveryRegion, refuses_hostile_counts) {
  entry().count = 0xFFFF'FFFF;
  expect_error(file, ErrorKind::parse, "the count of region '", at(8) + "4294967295");
}

TEST_P(EveryRegion, refuses_hostile_strides) {
  auto const good = entry();
  for (std::uint32_t const stride : {0U, 24U, good.stride + 4, good.stride - 1}) {
    entry().stride = stride;
    expect_error(file, ErrorKind::parse, "region '", at(12) + std::to_string(stride));
  }
}

TEST_P(EveryRegion, refuses_an_end_behind_the_file) {
  auto const good = entry();
  entry().offset = file.header().file_bytes;
  if (good.count != 0) expect_error(file, ErrorKind::parse, "the end of region '");
  entry() = good;
  entry().stride = 0xFFFF'FFC0;
  if (good.count != 0) expect_error(file, ErrorKind::parse, "the end of region '");
}

INSTANTIATE_TEST_SUITE_P(Regions, EveryRegion, ::testing::Range(0U, static_cast<std::uint32_t>(kRegionCount)));

TEST(FlightLayout, wants_tallies_and_bases_for_every_ledger) {
  FlightBuilder file;
  file.region(Region::tallies).count = 63;
  expect_error(file, ErrorKind::parse, "the count of region 'tallies' at offset 120 is 63", "64 as there are ledgers");
  file.region(Region::tallies).count = 64;
  file.region(Region::ledger_bases).count = 1;
  expect_error(file, ErrorKind::parse, "the count of region 'ledger bases' at offset 136 is 1");
}

TEST(FlightLayout, refuses_rings_that_break_the_protocol) {
  FlightBuilder file;
  auto& header = file.header();
  header.record_bytes = 128;
  expect_error(file, ErrorKind::parse, "the size of a record at offset 28 is 128", "expected 64");
  header.record_bytes = 64;
  for (std::uint32_t const records : {0U, 1U, 6U, 0x8000'0000U}) {
    header.main_records = records;
    expect_error(file, ErrorKind::parse, "the record count of the main ring at offset 32 is " + std::to_string(records));
  }
  header.main_records = 8;
  for (std::uint32_t const block : {0U, 3U, 8U, 16U}) {
    header.main_block = block;
    expect_error(file, ErrorKind::parse, "the block of the main ring at offset 36 is " + std::to_string(block),
                 "a divisor of 8 below it");
  }
  header.main_block = 2;
  header.journal_records = 5;
  expect_error(file, ErrorKind::parse, "the record count of the journal ring at offset 40 is 5");
  header.journal_records = 4;
  header.journal_block = 4;
  expect_error(file, ErrorKind::parse, "the block of the journal ring at offset 44 is 4");
}

TEST(FlightLayout, keeps_rings_inside_their_lane) {
  FlightBuilder file;
  auto& header = file.header();
  auto const good = header.lane_main_offset;
  auto const stride = file.region(Region::lanes).stride;
  for (std::uint32_t const offset : {0U, good - 64, good + 8, stride - 64, 0xFFFF'FFC0U}) {
    header.lane_main_offset = offset;
    expect_error(file, ErrorKind::parse, "the offset of the main ring at offset 48 is " + std::to_string(offset));
  }
  header.lane_main_offset = good;
  header.lane_journal_offset = good + 64;
  expect_error(file, ErrorKind::parse, "the journal ring at offset 52 is " + std::to_string(good + 64),
               "no overlap with the main ring");
}

TEST(FlightLayout, larger_entries_of_a_later_minor_version_are_read_by_their_stride) {
  FlightBuilder file;
  // Two ledgers of 1024 bytes each: the second one lies where the third one of 512 bytes did.
  file.region(Region::ledgers).stride = 1024;
  file.region(Region::ledgers).count = file.region(Region::tallies).count = file.region(Region::ledger_bases).count = 2;
  file.ledger(2).claim = 70;
  EXPECT_EQ(file.view().words(1).claimed, 70U);
  EXPECT_EQ(file.view().words(2).claimed, 0U) << "there is no third one";
}

}  // namespace
}  // namespace headroom::flight
