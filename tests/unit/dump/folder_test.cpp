// The folder of post-mortems: where it is, that it is made, that it stays small.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dump/dump_folder.hpp"
#include "post_mortems.hpp"

namespace headroom::test {
namespace {

using ::testing::ElementsAre;

/// A variable of the environment, back to what it was at the end.
class Variable {
public:
  Variable(char const* name, char const* value) : name_{name} {
    if (char const* const before = std::getenv(name)) before_ = before;
    value != nullptr ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(Variable const&) = delete;
  Variable& operator=(Variable const&) = delete;

private:
  char const* name_;
  std::optional<std::string> before_;
};

std::string folder_for(char const* dump_dir, char const* state, char const* home) {
  const Variable a{"HEADROOM_DUMP_DIR", dump_dir};
  const Variable b{"XDG_STATE_HOME", state};
  const Variable c{"HOME", home};
  dump::FixedPath folder;
  return dump::find_dump_folder(folder) ? std::string{folder.view()} : "none";
}

TEST(DumpFolder, is_where_the_environment_says) {
  EXPECT_EQ(folder_for("/a/b", "/state", "/people/me"), "/a/b");
  EXPECT_EQ(folder_for(nullptr, "/state", "/people/me"), "/state/headroom");
  EXPECT_EQ(folder_for("", "relative", "/people/me"), "/people/me/.local/state/headroom");
  EXPECT_EQ(folder_for(nullptr, nullptr, nullptr), "none");
  EXPECT_EQ(folder_for("here", nullptr, nullptr), std::filesystem::current_path().string() + "/here");
  EXPECT_EQ(folder_for(("/" + std::string(5'000, 'x')).c_str(), nullptr, nullptr), "none");
}

TEST(DumpFolder, is_made_with_all_above_it_for_nobody_else) {
  const TemporaryFolder temporary;
  dump::FixedPath path;
  ASSERT_TRUE(path.add((temporary.path() / "a/b/c").string()));
  const int folder = dump::open_dump_folder(path);
  ASSERT_GE(folder, 0);
  struct stat found{};
  ASSERT_EQ(fstat(folder, &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0700U);
  close(folder);
  const int again = dump::open_dump_folder(path);
  EXPECT_GE(again, 0);
  close(again);

  std::ofstream{temporary.path() / "file"} << "x";
  dump::FixedPath blocked;
  ASSERT_TRUE(blocked.add((temporary.path() / "file/sub").string()));
  EXPECT_EQ(dump::open_dump_folder(blocked), -1);
  EXPECT_EQ(errno, ENOTDIR);
}

class Caps : public ::testing::Test {
protected:
  void SetUp() override { folder_ = open(temporary_.path().c_str(), O_RDONLY | O_DIRECTORY); }
  void TearDown() override { close(folder_); }
  void put(std::string const& name, std::size_t bytes, std::int64_t seconds_ago) {
    std::ofstream{temporary_.path() / name} << std::string(bytes, 'x');
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const timespec times[2] = {{now.tv_sec - seconds_ago, 0}, {now.tv_sec - seconds_ago, 0}};
    ASSERT_EQ(utimensat(folder_, name.c_str(), times, 0), 0);
  }
  void keep(std::string_view newest, dump::FolderCaps const& caps) {
    std::vector<char> scratch(4'096);
    dump::keep_to_caps(folder_, newest, caps, scratch);
  }
  TemporaryFolder temporary_;
  int folder_ = -1;
};

TEST_F(Caps, the_oldest_go_first_when_there_are_too_many) {
  put("a.1.0123abcd.1.post-mortem.json", 10, 400);
  put("b.1.0123abcd.1.post-mortem.json", 10, 300);
  put("c.1.0123abcd.1.post-mortem.json", 10, 200);
  put("d.1.0123abcd.1.post-mortem.json", 10, 100);
  put("notes.txt", 10, 9'000);
  keep("d.1.0123abcd.1.post-mortem.json", {.files = 2, .bytes = 1'000});
  EXPECT_THAT(temporary_.names(), ElementsAre("c.1.0123abcd.1.post-mortem.json", "d.1.0123abcd.1.post-mortem.json", "notes.txt"));
}

TEST_F(Caps, what_is_not_named_as_programs_name_their_own_stays) {
  const std::vector<std::string> kept{
      "a.1.0123abc.1.post-mortem.json",     "a.1.0123abcd.post-mortem.json", "a.1.0123abcg.1.post-mortem.json",
      "a.b.0123abcd.1.post-mortem.json",    "keep.post-mortem.json",         "keep.post-mortem.json.tmp",
      "saved.1.0123ABCD.1.post-mortem.json"};
  for (auto const& name : kept) put(name, 10, 9'000);
  put("a.1.0123abcd.1.post-mortem.json", 10, 100);
  put("a.b-c_d.22.0123abcd.333.post-mortem.json", 10, 50);
  keep({}, {.files = 0, .bytes = 0});
  EXPECT_EQ(temporary_.names(), kept);
}

TEST_F(Caps, the_oldest_go_first_when_they_are_too_large) {
  put("a.1.0123abcd.1.post-mortem.json", 600, 300);
  put("b.1.0123abcd.1.post-mortem.json", 300, 200);
  put("c.1.0123abcd.1.post-mortem.json", 300, 100);
  keep("c.1.0123abcd.1.post-mortem.json", {.files = 32, .bytes = 600});
  EXPECT_THAT(temporary_.names(), ElementsAre("b.1.0123abcd.1.post-mortem.json", "c.1.0123abcd.1.post-mortem.json"));
}

TEST_F(Caps, the_newest_stays_even_if_it_is_too_large_by_itself) {
  put("a.1.0123abcd.1.post-mortem.json", 10, 300);
  put("b.1.0123abcd.1.post-mortem.json", 5'000, 0);
  keep("b.1.0123abcd.1.post-mortem.json", {.files = 1, .bytes = 100});
  EXPECT_THAT(temporary_.names(), ElementsAre("b.1.0123abcd.1.post-mortem.json"));
}

TEST_F(Caps, what_a_killed_program_was_writing_goes_after_an_hour) {
  put("a.1.0123abcd.1.post-mortem.json.tmp", 10, 7'200);
  put("b.1.0123abcd.1.post-mortem.json.tmp", 10, 60);
  put("c.1.0123abcd.1.post-mortem.json", 10, 9'000);
  keep({}, {});
  EXPECT_THAT(temporary_.names(), ElementsAre("b.1.0123abcd.1.post-mortem.json.tmp", "c.1.0123abcd.1.post-mortem.json"));
}

TEST_F(Caps, links_are_left_alone) {
  put("real", 10, 9'000);
  ASSERT_EQ(symlinkat("real", folder_, "a.1.0123abcd.1.post-mortem.json"), 0);
  keep({}, {.files = 0, .bytes = 0});
  EXPECT_THAT(temporary_.names(), ElementsAre("a.1.0123abcd.1.post-mortem.json", "real"));
}

TEST_F(Caps, a_folder_of_many_is_listed_whole) {
  for (int i = 0; i < 200; ++i)
    put("program-with-a-long-name." + std::to_string(1'000 + i) + ".0123abcd.1.post-mortem.json", 1, 1'000 - i);
  keep({}, {.files = 3, .bytes = 1'000});
  EXPECT_THAT(temporary_.names(), ElementsAre("program-with-a-long-name.1197.0123abcd.1.post-mortem.json",
                                              "program-with-a-long-name.1198.0123abcd.1.post-mortem.json",
                                              "program-with-a-long-name.1199.0123abcd.1.post-mortem.json"));
}

}  // namespace
}  // namespace headroom::test
