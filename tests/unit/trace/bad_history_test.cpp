// Every bad history ends in a message that names the file, the line, the value and what was expected; what stood before is read.
#include <ostream>

#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "histories.hpp"

namespace headroom::test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

struct BadLine {
  std::string name;
  std::string line;  // as written, with its line end if it has one
  std::string message;
  friend void PrintTo(BadLine const& bad, std::ostream* out) { *out << bad.name; }
};

class BadRecord : public testing::TestWithParam<BadLine> {};

TEST_P(BadRecord, is_named_with_file_line_value_and_expectation) {
  TempFolder const folder;
  auto const path = folder.write(std::string{kHeader} + "0,1,allocate,0xa,8,0\n0,2,free,0xa,8,0\n" + GetParam().line);
  auto const all = read_all(path);
  EXPECT_EQ(all.kind, ErrorKind::parse);
  EXPECT_EQ(all.error, path + ":4: " + GetParam().message);
  EXPECT_EQ(all.events.size(), 2U) << "the records before the bad one";
}

TEST_P(BadRecord, is_found_in_compressed_files_too) {
  TempFolder const folder;
  auto const text = std::string{kHeader} + "0,1,allocate,0xa,8,0\n0,2,free,0xa,8,0\n" + GetParam().line;
  EXPECT_THAT(read_all(folder.write(xz(text))).error, EndsWith(":4: " + GetParam().message));
  EXPECT_THAT(read_all(folder.write(gzip(text))).error, EndsWith(":4: " + GetParam().message));
}

constexpr auto kSix = "expected the six columns Thread,Time,Action,Pointer,Size,Stream";
std::string cut_off(std::string const& line) { return "the last line '" + line + "' is cut off; " + kSix + " and a line end"; }
constexpr auto kNumber = "expected a number, decimal or 0x-hexadecimal";
constexpr auto kTime = "expected microseconds since the start, or HH:MM:SS.micro, or HH:MM:SS:micro";
constexpr auto kAction = "expected allocate, allocate failure or free";
constexpr auto kPointer = "expected 0x and hexadecimal digits (at most 64 bits), or (nil)";
constexpr auto kSize = "expected bytes as a decimal number below 2^64";

std::vector<BadLine> bad_lines() {
  std::string const six = kSix;
  return {
      {"cut_in_the_middle", "0,3,alloc\n0,4,free,0xa,8,0\n", "the line '0,3,alloc' has 3 columns; " + six + " (is it cut off?)"},
      {"one_word", "hello\n", "the line 'hello' has 1 column; " + six + " (is it cut off?)"},
      {"five_columns", "0,3,free,0xa,8\n", "the line '0,3,free,0xa,8' has 5 columns; " + six + " (is it cut off?)"},
      {"seven_columns", "0,3,free,0xa,8,0,\n", "the line '0,3,free,0xa,8,0,' has 7 columns; " + six},
      {"two_lines_in_one", "0,3,alloc0,4,free,0xa,8,0\n", "the line '0,3,alloc0,4,free,0xa,8,0' has 8 columns; " + six},
      {"thousand_columns", std::string(1'000, ',') + "\n",
       "the line '" + std::string(60, ',') + "…' has more than 100 columns; " + six},
      {"last_line_ends_in_action", "0,3,alloc", cut_off("0,3,alloc")},
      {"last_line_ends_after_size", "0,3,allocate,0xa,8", cut_off("0,3,allocate,0xa,8")},
      {"last_line_ends_at_a_comma", "0,3,allocate,0xa,8,", cut_off("0,3,allocate,0xa,8,")},
      {"last_line_ends_in_stream", "0,3,allocate,0xa,8,0x", cut_off("0,3,allocate,0xa,8,0x")},
      {"last_line_has_another_fault", "0,3,alloc,0xa,8,0", std::string{"unknown action 'alloc'; "} + kAction},
      {"unknown_action", "0,3,realloc,0xa,8,0\n", std::string{"unknown action 'realloc'; "} + kAction},
      {"action_in_capitals", "0,3,Allocate,0xa,8,0\n", std::string{"unknown action 'Allocate'; "} + kAction},
      {"action_with_a_tail", "0,3,allocated,0xa,8,0\n", std::string{"unknown action 'allocated'; "} + kAction},
      {"action_with_two_blanks", "0,3,allocate  failure,0xa,8,0\n",
       std::string{"unknown action 'allocate  failure'; "} + kAction},
      {"empty_action", "0,3,,0xa,8,0\n", std::string{"action '' is empty; "} + kAction},
      {"size_beyond_64_bits", "0,3,allocate,0xa,18446744073709551616,0\n",
       std::string{"size '18446744073709551616' does not fit 64 bits; "} + kSize},
      {"size_far_beyond_64_bits", "0,3,allocate,0xa,184467440737095516150,0\n",
       std::string{"size '184467440737095516150' does not fit 64 bits; "} + kSize},
      {"negative_size", "0,3,allocate,0xa,-8,0\n", std::string{"size '-8' is negative; "} + kSize},
      {"size_with_unit", "0,3,allocate,0xa,8k,0\n", std::string{"size '8k'; "} + kSize},
      {"fractional_size", "0,3,allocate,0xa,8.5,0\n", std::string{"size '8.5'; "} + kSize},
      {"hexadecimal_size", "0,3,allocate,0xa,0x8,0\n", std::string{"size '0x8'; "} + kSize},
      {"empty_size", "0,3,allocate,0xa,,0\n", std::string{"size '' is empty; "} + kSize},
      {"blank_before_size", "0,3,allocate,0xa, 8,0\n", std::string{"size ' 8'; "} + kSize},
      {"negative_thread", "-1,3,free,0xa,8,0\n", std::string{"thread '-1' is negative; "} + kNumber},
      {"thread_by_name", "main,3,free,0xa,8,0\n", std::string{"thread 'main'; "} + kNumber},
      {"negative_stream", "0,3,free,0xa,8,-1\n", std::string{"stream '-1' is negative; "} + kNumber + ", or (nil)"},
      {"stream_beyond_64_bits", "0,3,free,0xa,8,0x10000000000000000\n",
       std::string{"stream '0x10000000000000000' does not fit 64 bits; "} + kNumber + ", or (nil)"},
      {"negative_time", "0,-3,free,0xa,8,0\n", std::string{"time '-3' is negative; "} + kTime},
      {"time_beyond_64_bits", "0,99999999999999999999,free,0xa,8,0\n",
       std::string{"time '99999999999999999999' does not fit 64 bits; "} + kTime},
      {"hour_24", "0,24:00:00.0,free,0xa,8,0\n", std::string{"time '24:00:00.0'; "} + kTime},
      {"minute_60", "0,23:60:00.0,free,0xa,8,0\n", std::string{"time '23:60:00.0'; "} + kTime},
      {"second_61", "0,23:59:61.0,free,0xa,8,0\n", std::string{"time '23:59:61.0'; "} + kTime},
      {"seven_digits_of_micros", "0,23:59:59:1000000,free,0xa,8,0\n", std::string{"time '23:59:59:1000000'; "} + kTime},
      {"time_without_micros", "0,23:59:59,free,0xa,8,0\n", std::string{"time '23:59:59'; "} + kTime},
      {"time_in_seconds", "0,1.5,free,0xa,8,0\n", std::string{"time '1.5'; "} + kTime},
      {"pointer_without_prefix", "0,3,free,7f3b,8,0\n", std::string{"pointer '7f3b'; "} + kPointer},
      {"pointer_without_digits", "0,3,free,0x,8,0\n", std::string{"pointer '0x'; "} + kPointer},
      {"pointer_with_a_letter", "0,3,free,0xg,8,0\n", std::string{"pointer '0xg'; "} + kPointer},
      {"pointer_beyond_64_bits", "0,3,free,0x10000000000000000,8,0\n",
       std::string{"pointer '0x10000000000000000' does not fit 64 bits; "} + kPointer},
      {"null_by_another_name", "0,3,free,null,8,0\n", std::string{"pointer 'null'; "} + kPointer},
      {"negative_pointer", "0,3,free,-0x1,8,0\n", std::string{"pointer '-0x1' is negative; "} + kPointer},
      {"nul_byte", std::string{"0,3,free,0xa,8\0,0\n", 18}, std::string{"size '8\\x00'; "} + kSize},
      {"second_header", "Thread,Time,Action,Pointer,Size,Stream\n", std::string{"thread 'Thread'; "} + kNumber},
      {"line_beyond_64_KiB", "0,3,free,0xa," + std::string(65'536, '0') + "8,0\n", "a line longer than 65,536 bytes"},
      {"line_without_end_beyond_64_KiB", std::string(70'000, 'x'), "a line longer than 65,536 bytes"},
      {"line_without_end_beyond_the_window", std::string(3'000'000, 'x'), "a line longer than 65,536 bytes"},
  };
}

INSTANTIATE_TEST_SUITE_P(all, BadRecord, testing::ValuesIn(bad_lines()),
                         [](testing::TestParamInfo<BadLine> const& test) { return test.param.name; });

constexpr auto kKnown =
    "expected RMM's CSV log (first line Thread,Time,Action,Pointer,Size,Stream) or a memory snapshot of PyTorch (a pickle of "
    "protocol 2 to 5), plain, .xz or .gz";

class BadFile : public testing::Test {
protected:
  [[nodiscard]] std::string parse_error_of(std::string_view content) const {
    auto const all = read_all(folder_.write(content));
    EXPECT_EQ(all.kind, ErrorKind::parse);
    return all.error;
  }

  TempFolder folder_;
  std::string path_ = folder_.path("history.csv");
};

TEST_F(BadFile, missing_is_an_io_error_with_the_systems_reason) {
  auto const all = read_all(folder_.path("nowhere.csv"));
  EXPECT_EQ(all.kind, ErrorKind::io);
  EXPECT_EQ(all.error, folder_.path("nowhere.csv") + ": cannot be opened: No such file or directory");
}

TEST_F(BadFile, folder_cannot_be_read) {
  auto const all = read_all(folder_.path(""));
  EXPECT_EQ(all.kind, ErrorKind::io);
  EXPECT_THAT(all.error, HasSubstr("cannot be read: Is a directory"));
}

TEST_F(BadFile, without_permission_is_an_io_error) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  auto const path = folder_.write(kHeader);
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  auto const all = read_all(path);
  EXPECT_EQ(all.kind, ErrorKind::io);
  EXPECT_THAT(all.error, HasSubstr("cannot be opened: Permission denied"));
}

TEST_F(BadFile, name_with_a_nul_opens_nothing) {
  auto const path = folder_.write(kHeader);
  EXPECT_EQ(read_all(path + std::string(1, '\0') + "x").kind, ErrorKind::io);
}

TEST_F(BadFile, empty_is_said_with_the_known_kinds) {
  auto const expected = path_ + ": the history is empty; " + kKnown;
  EXPECT_EQ(parse_error_of(""), expected);
  EXPECT_EQ(parse_error_of(xz("")), expected);
  EXPECT_EQ(parse_error_of(gzip("")), expected);
}

TEST_F(BadFile, without_header_says_which) {
  auto const expected =
      path_ + ":1: the header line is missing; expected Thread,Time,Action,Pointer,Size,Stream before the first record";
  EXPECT_EQ(parse_error_of("0,1,allocate,0xa,8,0\n"), expected);
  EXPECT_EQ(parse_error_of("0,1,allocate failure,0xa,8,0"), expected);
  EXPECT_EQ(parse_error_of("\n0,1,allocate,0xa,8,0\n"), expected);
}

TEST_F(BadFile, header_in_another_order_or_cut) {
  EXPECT_EQ(
      parse_error_of("Time,Thread,Action,Pointer,Size,Stream\n"),
      path_ +
          ":1: header line 'Time,Thread,Action,Pointer,Size,Stream'; expected exactly Thread,Time,Action,Pointer,Size,Stream");
  EXPECT_THAT(parse_error_of("Thread,Time,Action,Pointer,Size,Stream,Device\n"), HasSubstr("; expected exactly Thread,Time,"));
  EXPECT_EQ(parse_error_of("Thread,Time,Act"),
            path_ + ":1: the header line 'Thread,Time,Act' is cut off; expected Thread,Time,Action,Pointer,Size,Stream");
}

TEST_F(BadFile, of_no_known_kind_names_its_beginning_and_the_known_kinds) {
  std::string const known = kKnown;
  EXPECT_EQ(parse_error_of("{\"a\": 1}\n"), path_ + ": byte 0: a file of no known kind: it begins with '{\"a\": 1}'; " + known);
  EXPECT_THAT(parse_error_of("PK\x03\x04zip"),
              AllOf(HasSubstr("no known kind: it begins with 'PK\\x03\\x04zip'"), HasSubstr(known)));
  EXPECT_THAT(parse_error_of(std::string(200'000, '\0')), AllOf(HasSubstr("no known kind"), HasSubstr(known)));
  EXPECT_THAT(parse_error_of("\xFD"
                             "7zX"),
              HasSubstr("no known kind"));  // less than a whole magic
}

std::string long_history() {
  std::string text{kHeader};
  for (std::uint64_t i = 0; i < 100'000; ++i) text += "0," + std::to_string(i) + ",free,0x" + std::to_string(i * i) + ",1,0\n";
  return text;
}

TEST_F(BadFile, truncated_compression_is_found_and_never_taken_for_the_end) {
  auto const text = long_history();
  for (auto const& [packed, name] : {std::pair{xz(text), "xz"}, std::pair{gzip(text), "gzip"}}) {
    for (auto const size : {packed.size() - 1, packed.size() - 8, packed.size() / 2, std::size_t{40}, std::size_t{7}}) {
      auto const all = read_all(folder_.write(packed.substr(0, size)));
      EXPECT_EQ(all.kind, ErrorKind::parse);
      EXPECT_THAT(all.error, StartsWith(path_ + ": the " + name + " data end in the middle after ")) << size;
      EXPECT_LE(all.events.size(), 100'000U);
    }
    EXPECT_GT(read_all(folder_.write(packed.substr(0, packed.size() / 2))).events.size(), 1'000U) << "what came before";
  }
}

TEST_F(BadFile, corrupt_compression_is_found) {
  auto const text = long_history();
  for (auto const& [whole, name] : {std::pair{xz(text), "xz"}, std::pair{gzip(text), "gzip"}}) {
    for (auto const place : {whole.size() / 2, whole.size() - 5}) {
      auto packed = whole;
      packed[place] = static_cast<char>(packed[place] ^ 0x55);
      auto const error = parse_error_of(packed);
      EXPECT_FALSE(error.empty()) << name << " at " << place;
    }
  }
  EXPECT_THAT(parse_error_of(xz(text) + "garbage of some length"), HasSubstr("the xz data are corrupt after "));
  EXPECT_THAT(parse_error_of(gzip(text) + "garbage!"), HasSubstr("the gzip data are corrupt after "));
  EXPECT_THAT(parse_error_of("\x1F\x8B garbage of some length"), HasSubstr("the gzip data are corrupt after "));
}

TEST_F(BadFile, more_than_a_million_threads_is_an_error) {
  std::string text{kHeader};
  for (std::size_t i = 0; i <= TraceReader::kMaxThreads; ++i) text += std::to_string(i) + ",1,free,0x1,1,0\n";
  auto const all = read_all(folder_.write(text));
  EXPECT_EQ(all.error, path_ + ":1048578: expected at most 1,048,576 different threads");
  EXPECT_EQ(all.events.size(), TraceReader::kMaxThreads);
}

}  // namespace
}  // namespace headroom::test
