// What a history cannot mean, line by line; and reading on from where somebody else began.
#include <fcntl.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/trace_check.hpp>

#include "histories.hpp"

namespace headroom::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = TraceFinding::Kind;

[[nodiscard]] Result<TraceCheck> checked(std::string const& records, std::size_t most = kMostTraceFindings) {
  TempFolder const folder;
  auto reader = TraceReader::open(folder.write(std::string{kHeader} + records));
  if (!reader) return tl::unexpected{reader.error()};
  return check_trace(*reader, most);
}

TEST(TraceCheck, a_sound_history_has_no_findings) {
  auto const check = checked(
      "0,0,allocate,0xa,600,0\n"
      "0,1,allocate,(nil),0,0\n"
      "0,2,free,(nil),0,0\n"
      "0,3,allocate failure,(nil),9,0\n"
      "0,4,free,0xa,600,0\n"
      "0,5,allocate,0xa,7,0\n");
  ASSERT_TRUE(check.has_value());
  EXPECT_EQ(check->found(), 0U);
  EXPECT_THAT(check->findings, IsEmpty());
  EXPECT_EQ(check->summary.events, 6U);
  EXPECT_EQ(check->summary.live_bytes, 7U);
}

TEST(TraceCheck, names_the_line_and_what_was_expected) {
  auto const check = checked(
      "0,0,free,0xb,7,0\n"        // line 2: nothing live there
      "0,1,allocate,0xa,100,0\n"  // line 3
      "0,2,allocate,0xa,50,0\n"   // line 4: another is live there
      "0,3,free,0xa,50,0\n"       // takes the 50
      "0,4,free,0xa,99,0\n");     // line 6: the 100 of line 3
  ASSERT_TRUE(check.has_value());
  EXPECT_EQ(check->found(), 3U);
  EXPECT_THAT(
      check->findings,
      ElementsAre(
          TraceFinding{.kind = Kind::unmatched_free, .line = 2, .pointer = 0xb, .bytes = 7},
          TraceFinding{.kind = Kind::duplicate_allocation, .line = 4, .pointer = 0xa, .bytes = 50},
          TraceFinding{
              .kind = Kind::size_mismatch, .line = 6, .pointer = 0xa, .bytes = 99, .allocated_bytes = 100, .allocated_line = 3}));
  EXPECT_EQ(to_string(check->findings[0]), "free of 0xb (7 bytes) where nothing is live; expected its allocation before it");
  EXPECT_EQ(to_string(check->findings[1]),
            "allocation at 0xa (50 bytes) while another is live there; expected its free before it");
  EXPECT_EQ(to_string(check->findings[2]), "free of 0xa (99 bytes); expected the 100 bytes allocated on line 3");
}

TEST(TraceCheck, keeps_the_first_findings_and_counts_all) {
  std::string records;
  for (int i = 0; i < 10; ++i) records += "0,0,free,0xb,7,0\n";
  auto const check = checked(records, 3);
  ASSERT_TRUE(check.has_value());
  EXPECT_EQ(check->found(), 10U);
  EXPECT_EQ(check->findings.size(), 3U);
}

TEST(TraceCheck, what_cannot_be_read_is_an_error_with_its_line) {
  auto const check = checked("0,0,allocate,0xa,600,0\n0,1,grab,0xa,600,0\n");
  ASSERT_FALSE(check.has_value());
  EXPECT_EQ(check.error().kind, ErrorKind::parse);
  EXPECT_THAT(check.error().message, HasSubstr(":3:"));
}

class Pipe {
public:
  Pipe() { EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0); }
  Pipe(Pipe const&) = delete;
  Pipe& operator=(Pipe const&) = delete;
  ~Pipe() {
    ::close(ends_[0]);
    if (ends_[1] >= 0) ::close(ends_[1]);
  }
  void fill_and_close(std::string const& text) {
    EXPECT_EQ(::write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(ends_[1]);
    ends_[1] = -1;
  }
  [[nodiscard]] int reading() const { return ends_[0]; }

private:
  int ends_[2] = {-1, -1};
};

TEST(TraceReader, reads_on_from_what_somebody_looked_at) {
  auto const plain = std::string{kHeader} + "7,1,allocate,0xa,100,0\n";
  for (auto const& content : {plain, gzip(plain), xz(plain)}) {
    for (std::size_t const looked_at : {0U, 1U, 5U, 6U, 8U, 60U}) {
      SCOPED_TRACE(looked_at);
      Pipe pipe;
      pipe.fill_and_close(content);
      std::string first(looked_at, '\0');
      ASSERT_EQ(::read(pipe.reading(), first.data(), first.size()), static_cast<ssize_t>(looked_at));
      auto reader = TraceReader::resume(pipe.reading(), first, "the pipe");
      ASSERT_TRUE(reader.has_value()) << reader.error().message;
      EXPECT_EQ(reader->name(), "the pipe");
      TraceEvent event;
      ASSERT_TRUE(reader->next(event).value());
      EXPECT_EQ(event.bytes, 100U);
      EXPECT_FALSE(reader->next(event).value());
    }
  }
}

TEST(TraceReader, refuses_more_first_bytes_than_it_keeps) {
  Pipe pipe;
  pipe.fill_and_close("");
  auto const reader = TraceReader::resume(pipe.reading(), std::string(65, 'x'), "the pipe");
  ASSERT_FALSE(reader.has_value());
  EXPECT_EQ(reader.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(reader.error().message, "the pipe: 65 bytes read already; expected at most 64");
}

}  // namespace
}  // namespace headroom::test
