// The file that a CsvSink writes, byte by byte, and what it does when it cannot.
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <headroom/log_sink.hpp>

#include "histories.hpp"

namespace headroom::test {
namespace {

using ::testing::HasSubstr;
using Action = LogLine::Action;

std::string content_of(std::string const& path) {
  std::ostringstream text;
  text << std::ifstream{path, std::ios::binary}.rdbuf();
  return text.str();
}

LogLine line(Action action, std::uint64_t pointer, std::uint64_t bytes) {
  // 03:04:05.678901 on 2 January 1970
  return {.action = action, .thread = 77, .time_ns = 97'445'678'901'999, .pointer = pointer, .bytes = bytes};
}

class EnvironmentVariable {
public:
  explicit EnvironmentVariable(const char* value) {
    if (value != nullptr) {
      setenv(kName, value, 1);
    } else {
      unsetenv(kName);
    }
  }
  ~EnvironmentVariable() { unsetenv(kName); }
  EnvironmentVariable(EnvironmentVariable const&) = delete;
  EnvironmentVariable& operator=(EnvironmentVariable const&) = delete;

private:
  static constexpr const char* kName = "HEADROOM_LOG_FILE";
};

TEST(CsvSink, writes_rmms_header_and_columns) {
  const TempFolder folder;
  const auto path = folder.path("log.csv");
  const auto sink = CsvSink::create(path).value();
  EXPECT_EQ(content_of(path), "Thread,Time,Action,Pointer,Size,Stream\n") << "at once, whether lines come or not";
  auto streamed = line(Action::free, 0x7f3bf6000000, 1000);
  streamed.stream = 0x5581a0;
  const std::vector<LogLine> lines{line(Action::allocate, 0x7f3bf6000000, 1000), line(Action::allocate_failure, 0, 9'999'999),
                                   streamed, line(Action::free_failure, 0x10, 5), line(Action::allocate, 0, 0)};
  ASSERT_TRUE(sink->write(lines));
  EXPECT_EQ(content_of(path),
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "77,03:04:05.678901,allocate,0x7f3bf6000000,1000,0x0\n"
            "77,03:04:05.678901,allocate failure,0x0,9999999,0x0\n"
            "77,03:04:05.678901,free,0x7f3bf6000000,1000,0x5581a0\n"
            "77,03:04:05.678901,allocate,0x0,0,0x0\n");
  EXPECT_EQ(sink->lines(), 4U);
  EXPECT_EQ(sink->failed_frees(), 1U);
  EXPECT_EQ(sink->dropped(), 0U);
}

TEST(CsvSink, the_reader_finds_the_largest_numbers_again) {
  const TempFolder folder;
  const auto sink = CsvSink::create(folder.path("log.csv")).value();
  LogLine largest{.action = Action::allocate_failure,
                  .thread = UINT32_MAX,
                  .time_ns = 86'399'999'999'999,
                  .pointer = UINT64_MAX,
                  .bytes = UINT64_MAX,
                  .stream = UINT64_MAX};
  ASSERT_TRUE(sink->write({&largest, 1}));
  const auto all = read_all(folder.path("log.csv"));
  ASSERT_EQ(all.error, "");
  ASSERT_EQ(all.events.size(), 1U);
  EXPECT_EQ(all.events[0], (TraceEvent{.action = TraceEvent::Action::allocate_failure,
                                       .thread = 0,
                                       .time_us = 86'399'999'999,
                                       .pointer = UINT64_MAX,
                                       .bytes = UINT64_MAX,
                                       .stream = UINT64_MAX,
                                       .line = 2}));
  EXPECT_EQ(all.thread_ids.at(0), UINT32_MAX);
}

TEST(CsvSink, takes_the_name_from_the_environment_when_none_is_given) {
  const TempFolder folder;
  const auto path = folder.path("from-environment.csv");
  const EnvironmentVariable variable{path.c_str()};
  EXPECT_EQ(CsvSink::create({}).value()->path(), path);
  EXPECT_EQ(content_of(path), kHeader);
  EXPECT_EQ(CsvSink::create(folder.path("given.csv")).value()->path(), folder.path("given.csv")) << "what is given wins";
}

TEST(CsvSink, refuses_to_guess_a_name) {
  for (auto const* const value : {static_cast<const char*>(nullptr), ""}) {
    const EnvironmentVariable variable{value};
    const auto none = CsvSink::create({});
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().kind, ErrorKind::invalid_argument);
    EXPECT_THAT(none.error().message, HasSubstr("HEADROOM_LOG_FILE"));
  }
}

TEST(CsvSink, replaces_what_is_there) {
  const TempFolder folder;
  const auto path = folder.write("old, and longer than a header by far: the rest of it must not show behind\n");
  static_cast<void>(CsvSink::create(path).value());
  EXPECT_EQ(content_of(path), kHeader);
}

TEST(CsvSink, a_file_that_cannot_be_opened_or_written_is_named_with_the_reason) {
  const auto nowhere = CsvSink::create("/nowhere/at/all.csv");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().kind, ErrorKind::io);
  EXPECT_THAT(nowhere.error().message, HasSubstr("/nowhere/at/all.csv"));
  EXPECT_THAT(nowhere.error().message, HasSubstr("No such file"));
  const auto full = CsvSink::create("/dev/full");
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().kind, ErrorKind::io);
  EXPECT_THAT(full.error().message, HasSubstr("No space left"));
}

/// Files of this process end at so many bytes, as if the disk were full.
class FileSizeLimit {
public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }
  FileSizeLimit(FileSizeLimit const&) = delete;
  FileSizeLimit& operator=(FileSizeLimit const&) = delete;

private:
  rlimit before_{};
};

TEST(CsvSink, a_full_disk_cuts_no_line_once_there_is_room_again) {
  const TempFolder folder;
  const auto path = folder.path("log.csv");
  const auto sink = CsvSink::create(path).value();
  const std::vector<LogLine> two{line(Action::allocate, 0xa, 1), line(Action::allocate, 0xb, 2)};
  {
    const FileSizeLimit limit{50};  // the header has 39 bytes: 11 bytes of the first line get out
    const auto refused = sink->write(two);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::io);
    EXPECT_THAT(refused.error().message, HasSubstr("File too large"));
    EXPECT_EQ(content_of(path).size(), 50U);
    EXPECT_FALSE(sink->flush());
  }
  ASSERT_TRUE(sink->flush());
  EXPECT_EQ(content_of(path),
            std::string{kHeader} + "77,03:04:05.678901,allocate,0xa,1,0x0\n" + "77,03:04:05.678901,allocate,0xb,2,0x0\n");
  EXPECT_EQ(sink->dropped(), 0U);
}

TEST(CsvSink, a_disk_that_stays_full_costs_whole_lines_and_no_more_memory) {
  const TempFolder folder;
  const auto path = folder.path("log.csv");
  const auto sink = CsvSink::create(path).value();
  const std::vector<LogLine> lines(1000, line(Action::allocate, 0xa, 1));
  constexpr std::uint64_t kRounds = 10;
  {
    const FileSizeLimit limit{50};
    for (std::uint64_t i = 0; i < kRounds; ++i) EXPECT_FALSE(sink->write(lines));
  }
  EXPECT_GT(sink->dropped(), 0U) << "10,000 lines of 38 bytes do not fit 64 KiB";
  EXPECT_EQ(sink->lines() + sink->dropped(), kRounds * 1000);
  ASSERT_TRUE(sink->flush());
  const auto all = read_all(path);
  EXPECT_EQ(all.error, "");
  EXPECT_EQ(all.events.size(), sink->lines());
}

TEST(MemorySink, keeps_the_newest_and_says_how_many_it_dropped) {
  MemorySink sink{3};
  for (std::uint64_t i = 1; i <= 5; ++i) {
    const auto one = line(Action::allocate, 0, i);
    ASSERT_TRUE(sink.write({&one, 1}));
  }
  const auto lines = sink.lines();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].bytes, 3U);
  EXPECT_EQ(lines[1].bytes, 4U);
  EXPECT_EQ(lines[2].bytes, 5U);
  EXPECT_EQ(sink.dropped(), 2U);

  MemorySink nothing{0};
  ASSERT_TRUE(nothing.write(lines));
  EXPECT_TRUE(nothing.lines().empty());
  EXPECT_EQ(nothing.dropped(), 3U);
}

TEST(CallbackSink, without_a_function_says_so) {
  CallbackSink sink{{}};
  const auto one = line(Action::free, 1, 1);
  const auto refused = sink.write({&one, 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace headroom::test
