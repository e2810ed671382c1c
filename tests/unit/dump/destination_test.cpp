// Where a post-mortem on call goes: a new file, over an old one, through links, into pipes and devices; never over what is no file.
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compact_flight.hpp"
#include "flight_builder.hpp"
#include "post_mortems.hpp"

namespace headroom::test {
namespace {

namespace fs = std::filesystem;

class Destination : public ::testing::Test {
protected:
  void SetUp() override { flight::fill_with_a_story(file_); }
  [[nodiscard]] Result<void> write(std::string const& name) const {
    return write_post_mortem(file_.view(), (folder_.path() / name).string(), "a test");
  }
  [[nodiscard]] std::string at(std::string const& name) const { return (folder_.path() / name).string(); }
  void link(std::string const& target, std::string const& name) const { ASSERT_EQ(symlink(target.c_str(), at(name).c_str()), 0); }
  void expect_whole(std::string const& name) const {
    const auto dump = load_post_mortem(at(name));
    ASSERT_TRUE(dump) << dump.error().message;
    EXPECT_TRUE(dump->complete);
  }
  flight::FlightBuilder file_;
  TemporaryFolder folder_;
};

TEST_F(Destination, a_device_behind_a_link_is_written_into_and_both_stay) {
  link("/dev/null", "null");
  EXPECT_TRUE(write("null"));
  EXPECT_TRUE(fs::is_symlink(fs::symlink_status(at("null"))));
  link("/dev/full", "full");
  const auto refused = write("full");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, at("full") + ": No space left on device");
  EXPECT_TRUE(fs::is_symlink(fs::symlink_status(at("full"))));
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"full", "null"}));
}

TEST_F(Destination, a_pipe_with_a_name_carries_it_and_stays) {
  ASSERT_EQ(mkfifo(at("pipe").c_str(), 0600), 0);
  std::string text;
  std::thread reader{[&] {
    std::ifstream pipe{at("pipe"), std::ios::binary};
    text.assign(std::istreambuf_iterator<char>{pipe}, {});
  }};
  const auto written = write("pipe");
  if (!fs::is_fifo(at("pipe"))) {  // replaced: whoever waits for a writer would wait for ever
    fs::remove(at("pipe"));
    reader.detach();
    FAIL() << "the pipe is gone";
  }
  reader.join();
  EXPECT_TRUE(written);
  const auto dump = read_post_mortem(text, "pipe");
  ASSERT_TRUE(dump) << dump.error().message;
  EXPECT_TRUE(dump->complete);
}

TEST_F(Destination, a_pipe_whose_reader_goes_is_an_error_and_ends_nobody) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  const auto refused = write_post_mortem(file_.view(), ends[1], "a test");
  close(ends[1]);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("Broken pipe"), std::string::npos);
  sigset_t pending;
  ASSERT_EQ(sigpending(&pending), 0);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

TEST_F(Destination, links_are_followed_to_the_file_and_stay) {
  fs::create_directory(at("real"));
  std::ofstream{at("real/old.json")} << "old";
  link("real/old.json", "one");
  link("one", "two");
  ASSERT_TRUE(write("two"));
  EXPECT_TRUE(fs::is_symlink(fs::symlink_status(at("one"))));
  EXPECT_TRUE(fs::is_symlink(fs::symlink_status(at("two"))));
  expect_whole("real/old.json");
  EXPECT_EQ(folder_.names("real"), (std::vector<std::string>{"old.json"}));

  link(at("real/new.json"), "to nothing yet");
  ASSERT_TRUE(write("to nothing yet"));
  EXPECT_TRUE(fs::is_symlink(fs::symlink_status(at("to nothing yet"))));
  expect_whole("real/new.json");
}

TEST_F(Destination, what_cannot_be_written_is_named) {
  fs::create_directory(at("folder"));
  EXPECT_EQ(write("folder").error().message, at("folder") + ": Is a directory");
  link("round", "round");
  EXPECT_EQ(write("round").error().message, at("round") + ": Too many levels of symbolic links");
  EXPECT_EQ(write("no/such").error().message, at("no/such") + ": No such file or directory");
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"folder", "round"}));
}

// As a container's first process leaves them, whose number is 1 each time.
TEST_F(Destination, what_a_killed_writer_left_is_in_nobodys_way) {
  const auto left = at("d.json") + '.' + std::to_string(getpid()) + '.';
  constexpr int kLeft = 300;
  for (int i = 0; i < kLeft; ++i) std::ofstream{left + std::to_string(i) + ".tmp"} << "half";
  const auto written = write("d.json");
  ASSERT_TRUE(written) << written.error().message;
  expect_whole("d.json");
  EXPECT_EQ(folder_.names().size(), kLeft + 1U);
}

}  // namespace
}  // namespace headroom::test
