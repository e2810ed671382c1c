// What a history may look like, and what is read from it.
#include <cstdio>
#include <thread>

#include <fcntl.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "histories.hpp"

namespace headroom::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using enum TraceEvent::Action;

class TraceReading : public testing::Test {
protected:
  [[nodiscard]] ReadAll read(std::string const& records) const { return read_all(folder_.write(std::string{kHeader} + records)); }

  TempFolder folder_;
};

TEST_F(TraceReading, gives_every_column_of_every_action) {
  auto const all = read(
      "7,12,allocate,0x7f3bF6000000,154389504,3\n"
      "9,15,allocate failure,(nil),18446744073709551615,0x55d0c0ffee\n"
      "7,20,free,0x7f3bf6000000,154389504,(nil)\n");
  EXPECT_EQ(all.error, "");
  ASSERT_EQ(all.events.size(), 3U);
  EXPECT_EQ(all.events[0], (TraceEvent{allocate, 0, 12, 0x7f3bf6000000, 154'389'504, 3, 2}));
  EXPECT_EQ(all.events[1], (TraceEvent{allocate_failure, 1, 15, 0, 18'446'744'073'709'551'615U, 0x55d0c0ffee, 3}));
  EXPECT_EQ(all.events[2], (TraceEvent{free, 0, 20, 0x7f3bf6000000, 154'389'504, 0, 4}));
  EXPECT_THAT(all.thread_ids, ElementsAre(7, 9));
}

TEST_F(TraceReading, accepts_the_three_forms_of_time) {
  auto const all = read(
      "0,1234567,free,0x1,1,0\n"
      "0,01:02:03.000004,free,0x1,1,0\n"  // 3723 s
      "0,01:02:03:4,free,0x1,1,0\n"
      "0,01:02:03:000004,free,0x1,1,0\n"
      "0,01:02:03.5,free,0x1,1,0\n");  // half a second
  EXPECT_EQ(all.error, "");
  ASSERT_EQ(all.events.size(), 5U);
  EXPECT_EQ(all.events[0].time_us, 1'234'567U);
  EXPECT_EQ(all.events[1].time_us, 3'723'000'004U);
  EXPECT_EQ(all.events[2].time_us, 3'723'000'004U);
  EXPECT_EQ(all.events[3].time_us, 3'723'000'004U);
  EXPECT_EQ(all.events[4].time_us, 3'723'500'000U);
}

TEST_F(TraceReading, goes_on_past_midnight) {
  auto const all = read(
      "0,23:59:59.999999,free,0x1,1,0\n"
      "0,00:00:00.000001,free,0x1,1,0\n"
      "1,23:59:59.999998,free,0x1,1,0\n"  // a thread that logged late: still the day before
      "0,00:00:00.000002,free,0x1,1,0\n"
      "0,14:00:00.0,free,0x1,1,0\n"  // a pause is no straggler
      "0,02:00:00.0,free,0x1,1,0\n");
  EXPECT_EQ(all.error, "");
  ASSERT_EQ(all.events.size(), 6U);
  EXPECT_EQ(all.events[0].time_us, 86'399'999'999U);
  EXPECT_EQ(all.events[1].time_us, 86'400'000'001U);
  EXPECT_EQ(all.events[2].time_us, 86'399'999'998U);
  EXPECT_EQ(all.events[3].time_us, 86'400'000'002U);
  EXPECT_EQ(all.events[4].time_us, 136'800'000'000U);  // 38 h
  EXPECT_EQ(all.events[5].time_us, 180'000'000'000U);  // 50 h
}

TEST_F(TraceReading, accepts_windows_line_ends_empty_lines_and_a_byte_order_mark) {
  auto const all =
      read_all(folder_.write("\xEF\xBB\xBFThread,Time,Action,Pointer,Size,Stream\r\n"
                             "0,1,allocate,0xa,8,0\r\n\r\n\n"
                             "0,2,free,0xa,8,0\r\n\r\n"));
  EXPECT_EQ(all.error, "");
  ASSERT_EQ(all.events.size(), 2U);
  EXPECT_EQ(all.events[0].line, 2U);
  EXPECT_EQ(all.events[1].line, 5U);  // empty lines count
  EXPECT_EQ(all.events[1].bytes, 8U);
}

TEST_F(TraceReading, accepts_a_complete_last_line_without_line_end) {
  for (auto const* const records : {"0,1,allocate,0xa,8,0", "0,1,allocate,0xa,8,0\r", "0,1,allocate,0xa,8,(nil)"}) {
    auto const all = read(records);
    EXPECT_EQ(all.error, "") << records;
    EXPECT_EQ(all.events.size(), 1U) << records;
  }
}

TEST_F(TraceReading, accepts_null_pointers_in_all_three_spellings) {
  auto const all = read("0,1,free,(nil),0,0\n0,1,free,0x0,0,0\n0,1,free,0,0,0\n");
  EXPECT_EQ(all.error, "");
  ASSERT_EQ(all.events.size(), 3U);
  for (auto const& event : all.events) EXPECT_EQ(event.pointer, 0U);
}

TEST_F(TraceReading, accepts_a_header_and_nothing_else) {
  EXPECT_EQ(read("").error, "");
  EXPECT_EQ(read("").events.size(), 0U);
  EXPECT_EQ(read_all(folder_.write("Thread,Time,Action,Pointer,Size,Stream")).error, "");
}

TEST_F(TraceReading, numbers_threads_in_order_of_appearance_even_many) {
  std::string records;
  for (int i = 0; i < 20'000; ++i) records += std::to_string((i * 7) % 5'000 + 1'000'000'007) + ",1,free,0x1,1,0\n";
  auto const all = read(records);
  EXPECT_EQ(all.error, "");
  ASSERT_EQ(all.events.size(), 20'000U);
  ASSERT_EQ(all.thread_ids.size(), 5'000U);
  for (std::size_t i = 0; i < 20'000; ++i) {
    ASSERT_EQ(all.events[i].thread, i % 5'000);  // 7 and 5000 have no common divisor: a full round
    ASSERT_EQ(all.thread_ids[all.events[i].thread], (i * 7) % 5'000 + 1'000'000'007);
  }
}

TEST_F(TraceReading, kind_is_told_by_content_and_not_by_name) {
  auto const text = std::string{kHeader} + "0,1,allocate,0xa,8,0\n";
  auto const as_xz = read_all(folder_.write(xz(text), "history.csv"));
  auto const as_gzip = read_all(folder_.write(gzip(text), "history.xz"));
  auto const as_text = read_all(folder_.write(text, "history.gz"));
  EXPECT_EQ(as_xz.compression, TraceCompression::xz);
  EXPECT_EQ(as_gzip.compression, TraceCompression::gzip);
  EXPECT_EQ(as_text.compression, TraceCompression::none);
  for (auto const* const all : {&as_xz, &as_gzip, &as_text}) {
    EXPECT_EQ(all->error, "");
    EXPECT_EQ(all->events.size(), 1U);
  }
}

TEST_F(TraceReading, joins_the_parts_of_concatenated_files) {
  auto const first = std::string{kHeader} + "0,1,allocate,0xa,8,0\n0,2,fr";
  auto const second = std::string{"ee,0xa,8,0\n"};
  EXPECT_EQ(read_all(folder_.write(xz(first) + xz(second))).events.size(), 2U);
  EXPECT_EQ(read_all(folder_.write(gzip(first) + gzip(second))).events.size(), 2U);
  auto const padded = read_all(folder_.write(gzip(first + second) + std::string(512, '\0')));
  EXPECT_EQ(padded.error, "");
  EXPECT_EQ(padded.events.size(), 2U);
}

TEST_F(TraceReading, is_the_same_across_window_borders) {
  // 3 MB of lines of every length: they straddle the 1 MiB window in many places.
  std::string records;
  for (std::uint64_t i = 0; i < 60'000; ++i) {
    records +=
        "0," + std::to_string(i) + ",allocate,0x" + std::string(1 + i % 15, '1') + ',' + std::to_string(i * 1'000'003) + ",0\n";
  }
  for (auto const& content :
       {std::string{kHeader} + records, xz(std::string{kHeader} + records), gzip(std::string{kHeader} + records)}) {
    auto const all = read_all(folder_.write(content));
    EXPECT_EQ(all.error, "");
    ASSERT_EQ(all.events.size(), 60'000U);
    for (std::uint64_t i = 0; i < 60'000; ++i) {
      ASSERT_EQ(all.events[i].time_us, i);
      ASSERT_EQ(all.events[i].bytes, i * 1'000'003);
      ASSERT_EQ(all.events[i].line, i + 2);
    }
  }
}

TEST_F(TraceReading, one_by_one_and_in_batches_give_the_same_and_mix) {
  std::string records;
  for (int i = 0; i < 3'000; ++i) records += "0," + std::to_string(i) + ",free,0x1,1,0\n";
  auto reader = TraceReader::open(folder_.write(std::string{kHeader} + records));
  ASSERT_TRUE(reader.has_value());
  TraceEvent event;
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_EQ(reader->next(event), true);
    ASSERT_EQ(event.time_us, i);
  }
  std::uint64_t expected = 10;
  auto const batch = reader->next_batch();
  ASSERT_TRUE(batch.has_value());
  for (auto const& one : *batch) ASSERT_EQ(one.time_us, expected++);
  while (*reader->next(event)) ASSERT_EQ(event.time_us, expected++);
  EXPECT_EQ(expected, 3'000U);
  EXPECT_EQ(reader->next(event), false);
  EXPECT_TRUE(reader->next_batch()->empty());
}

TEST_F(TraceReading, shows_a_line_as_soon_as_it_is_whole) {
  // A recording that goes on: the pipe stays open, and what has arrived is readable.
  auto const path = folder_.path("fifo");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  int writer = -1;
  std::thread other{[&] {
    writer = ::open(path.c_str(), O_WRONLY);
    auto const text = std::string{kHeader} + "0,1,allocate,0xa,8,0\n0,2,fr";
    EXPECT_EQ(::write(writer, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }};
  auto reader = TraceReader::open(path);
  other.join();
  ASSERT_TRUE(reader.has_value()) << reader.error().to_string();
  EXPECT_EQ(reader->next_batch()->size(), 1U);
  ASSERT_EQ(::write(writer, "ee,0xa,8,0\n", 11), 11);
  ::close(writer);
  EXPECT_EQ(reader->next_batch()->size(), 1U);
  EXPECT_TRUE(reader->next_batch()->empty());
}

TEST_F(TraceReading, dash_is_standard_input) {
  auto const path = folder_.write(xz(std::string{kHeader} + "0,1,allocate,0xa,8,0\n0,1,allocate,0xa,8\n"));
  auto const saved = ::dup(STDIN_FILENO);
  auto const file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::dup2(file, STDIN_FILENO), STDIN_FILENO);
  auto const all = read_all("-");
  EXPECT_NE(::fcntl(STDIN_FILENO, F_GETFD), -1);  // it was not ours to close
  if (saved >= 0) ::dup2(saved, STDIN_FILENO);
  ::close(file);
  ::close(saved);
  EXPECT_EQ(all.events.size(), 1U);
  EXPECT_EQ(all.compression, TraceCompression::xz);
  EXPECT_THAT(all.error, HasSubstr("standard input:3: "));
}

}  // namespace
}  // namespace headroom::test
