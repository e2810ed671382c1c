// Where a snapshot may come from: files, packed or not, pipes, descriptors that somebody has begun to read.
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "histories.hpp"
#include "made_snapshots.hpp"

namespace headroom::test {
namespace {

using made::entry;
using made::snapshot;
using testing::HasSubstr;

/// Sets a variable of the environment for a test.
class Variable {
public:
  Variable(char const* name, std::string const& value) : name_{name} {
    if (auto const* const before = ::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  Variable(Variable const&) = delete;
  Variable& operator=(Variable const&) = delete;
  ~Variable() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }

private:
  char const* name_;
  std::optional<std::string> before_;
};

/// 5,000 blocks of 10 bytes each, of which the last 1,000 are freed.
[[nodiscard]] std::string large_snapshot() {
  std::vector<made::Opcodes> trace;
  for (std::uint64_t i = 0; i < 5'000; ++i) trace.push_back(entry("alloc", 16 * i + 16, 10, i));
  for (std::uint64_t i = 4'000; i < 5'000; ++i) trace.push_back(entry("free_completed", 16 * i + 16, 10, 5'000 + i));
  return snapshot({}, {trace});
}

void expect_large(Result<TraceReader> reader) {
  ASSERT_TRUE(reader) << reader.error().message;
  auto const summary = summarize_trace(*reader);
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(summary->events, 6'000U);
  EXPECT_EQ(summary->peak_bytes, 50'000U);
  EXPECT_EQ(summary->live_bytes, 40'000U);
  EXPECT_EQ(reader->next_batch()->size(), 0U) << "the end stays";
}

/// A pipe into which somebody writes `content`, and then ends.
class Pipe {
public:
  explicit Pipe(std::string content) {
    if (::pipe2(ends_, O_CLOEXEC) != 0) throw std::runtime_error{"no pipe"};
    writer_ = std::thread{[this, content = std::move(content)] {
      for (std::size_t done = 0; done < content.size();) {
        auto const count = ::write(ends_[1], content.data() + done, content.size() - done);
        if (count <= 0) break;
        done += static_cast<std::size_t>(count);
      }
      ::close(ends_[1]);
    }};
  }
  Pipe(Pipe const&) = delete;
  Pipe& operator=(Pipe const&) = delete;
  ~Pipe() {
    std::array<char, 4096> rest{};
    while (::read(ends_[0], rest.data(), rest.size()) > 0) {
    }  // so that the writer ends
    writer_.join();
    ::close(ends_[0]);
  }
  [[nodiscard]] int reading() const noexcept { return ends_[0]; }

private:
  int ends_[2]{};
  std::thread writer_;
};

class SnapshotFiles : public testing::Test {
protected:
  TempFolder folder_;
};

TEST_F(SnapshotFiles, may_be_packed) {
  auto const plain = large_snapshot();
  for (auto const& content : {plain, xz(plain), gzip(plain)}) expect_large(TraceReader::open(folder_.write(content)));
  EXPECT_EQ(TraceReader::open(folder_.write(gzip(plain)))->compression(), TraceCompression::gzip);
}

TEST_F(SnapshotFiles, that_are_written_to_between_two_passes_are_an_error_at_the_latest_at_the_end) {
  auto const path = folder_.write(large_snapshot());
  auto reader = TraceReader::open(path);
  ASSERT_TRUE(reader) << reader.error().message;
  std::ofstream{path, std::ios::app} << "x";
  auto const summary = summarize_trace(*reader);
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().kind, ErrorKind::io);
  EXPECT_EQ(summary.error().message,
            path + ": was changed while it was read; expected a snapshot that nobody writes to any more");
}

TEST_F(SnapshotFiles, may_come_through_a_pipe) {
  auto const plain = large_snapshot();
  for (auto const& content : {plain, xz(plain), gzip(plain)}) {
    Pipe const pipe{content};
    expect_large(TraceReader::resume(pipe.reading(), "", "pipe"));
  }
  Pipe const packed{xz(plain)};
  EXPECT_EQ(TraceReader::resume(packed.reading(), "", "pipe")->compression(), TraceCompression::xz);
}

TEST_F(SnapshotFiles, leave_nothing_behind_of_a_pipe) {
  auto const copies = folder_.path("copies");
  ASSERT_EQ(::mkdir(copies.c_str(), 0700), 0);
  Variable const folder{"TMPDIR", copies};
  Pipe const pipe{large_snapshot()};
  auto reader = TraceReader::resume(pipe.reading(), "", "pipe");
  EXPECT_TRUE(std::filesystem::is_empty(copies)) << "the copy has no name";
  expect_large(std::move(reader));
  EXPECT_TRUE(std::filesystem::is_empty(copies));
}

TEST_F(SnapshotFiles, of_a_pipe_are_copied_elsewhere_when_tmpdir_is_no_folder) {
  Variable const folder{"TMPDIR", folder_.path("nowhere")};
  Pipe const pipe{large_snapshot()};
  expect_large(TraceReader::resume(pipe.reading(), "", "pipe"));
}

TEST_F(SnapshotFiles, that_end_in_the_middle_of_a_pipe_are_an_error) {
  Pipe const pipe{large_snapshot().substr(0, 70'000)};
  auto const reader = TraceReader::resume(pipe.reading(), "", "pipe");
  ASSERT_FALSE(reader);
  EXPECT_THAT(reader.error().message, HasSubstr("pipe: byte "));
}

TEST_F(SnapshotFiles, are_resumed_where_somebody_began_to_read) {
  auto const plain = large_snapshot();
  for (auto const& content : {plain, xz(plain)}) {
    for (auto const taken : {std::size_t{0}, std::size_t{1}, std::size_t{8}, TraceReader::kMaxFirstBytes}) {
      // Something else stands before it, as in an archive: the history begins where it was begun.
      auto const path = folder_.write("before" + content);
      auto const file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      ASSERT_GE(file, 0);
      std::string first(taken, '\0');
      ASSERT_EQ(::lseek(file, 6, SEEK_SET), 6);
      ASSERT_EQ(::read(file, first.data(), taken), static_cast<ssize_t>(taken));
      expect_large(TraceReader::resume(file, first, "file"));
      EXPECT_NE(::fcntl(file, F_GETFD), -1) << "it was not the reader's to close";
      EXPECT_EQ(::lseek(file, 0, SEEK_CUR), static_cast<off_t>(6 + content.size())) << "for progress bars";
      ::close(file);

      Pipe const pipe{content};
      ASSERT_EQ(::read(pipe.reading(), first.data(), taken), static_cast<ssize_t>(taken));
      expect_large(TraceReader::resume(pipe.reading(), first, "pipe"));
    }
  }
}

}  // namespace
}  // namespace headroom::test
