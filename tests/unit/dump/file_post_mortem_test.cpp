// The post-mortem of another process, in the folder of those that programs write by themselves.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/post_mortem.hpp>
#include <headroom/post_mortem_reader.hpp>

#include "flight_builder.hpp"
#include "post_mortems.hpp"

namespace headroom::test {
namespace {

using ::testing::HasSubstr;

flight::FlightBuilder file_of(char const* program) {
  flight::FlightBuilder file;
  std::strcpy(file.header().program, program);
  file.header().pid = 42;
  file.header().run = 0x0123'4567'89ab'cdefULL;
  file.open_ledger(0, 2, "pool").alloc = 700;
  return file;
}

TEST(FilePostMortem, is_named_as_the_process_names_its_own_under_the_next_free_number) {
  const TemporaryFolder temporary;
  const auto file = file_of("train loop");
  const std::string folder = temporary.path() / "made/for/it";
  for (const char* number : {"1", "2"}) {
    const auto path = file_post_mortem(file.view(), folder, "a test");
    ASSERT_TRUE(path.has_value()) << path.error().message;
    EXPECT_EQ(*path, folder + "/train_loop.42.01234567." + number + ".post-mortem.json");
    std::ifstream stream{*path};
    const std::string text{std::istreambuf_iterator<char>{stream}, {}};
    const auto dump = read_post_mortem(text, "dump");
    ASSERT_TRUE(dump.has_value()) << dump.error().message;
    EXPECT_FALSE(dump->truncated);
    ASSERT_EQ(dump->ledgers.size(), 1U);
    EXPECT_EQ(dump->ledgers.front().allocated, 700U);
  }
}

TEST(FilePostMortem, goes_where_programs_put_theirs_unless_told_otherwise) {
  const TemporaryFolder temporary;
  char const* const before = std::getenv("HEADROOM_DUMP_DIR");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("HEADROOM_DUMP_DIR", temporary.path().c_str(), 1);
  const auto path = file_post_mortem(file_of("train").view(), "", "a test");
  before == nullptr ? ::unsetenv("HEADROOM_DUMP_DIR") : ::setenv("HEADROOM_DUMP_DIR", kept.c_str(), 1);
  ASSERT_TRUE(path.has_value()) << path.error().message;
  EXPECT_EQ(*path, temporary.path().string() + "/train.42.01234567.1.post-mortem.json");
}

TEST(FilePostMortem, keeps_the_folder_to_its_caps) {
  const TemporaryFolder temporary;
  const auto file = file_of("train");
  for (int i = 0; i < 34; ++i) ASSERT_TRUE(file_post_mortem(file.view(), temporary.path().string(), "a test", {.events = false}));
  const auto files = std::distance(std::filesystem::directory_iterator{temporary.path()}, {});
  EXPECT_EQ(files, 32);
}

TEST(FilePostMortem, says_where_it_could_not_be_put) {
  const TemporaryFolder temporary;
  const std::string file = temporary.path() / "file";
  std::ofstream{file} << "x";
  const auto refused = file_post_mortem(file_of("train").view(), file, "a test");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::io);
  EXPECT_THAT(refused.error().message, HasSubstr(file + ": Not a directory"));
  EXPECT_THAT(file_post_mortem(file_of("train").view(), "/" + std::string(5'000, 'x'), "a test").error().message,
              HasSubstr("File name too long"));
}

}  // namespace
}  // namespace headroom::test
