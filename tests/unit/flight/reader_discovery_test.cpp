// Which files are flight files, by their names alone; in which order, by the start that they name.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/flight_reader.hpp>

#include "flight_builder.hpp"

namespace headroom::flight {
namespace {

namespace fs = std::filesystem;

class FlightDiscovery : public ::testing::Test {
protected:
  FlightDiscovery() {
    std::string pattern = fs::temp_directory_path() / "headroom-find-XXXXXX";
    folder = ::mkdtemp(pattern.data());
  }
  ~FlightDiscovery() override {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  void touch(std::string const& name, std::int64_t seconds = 1'000'000'000) const {
    std::ofstream{folder + "/" + name} << 'x';
    timespec const times[2]{{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (folder + "/" + name).c_str(), times, 0), 0);
  }
  std::string folder;
};

TEST_F(FlightDiscovery, finds_newest_first) {
  touch("train.17.0123456789abcdef.flight", 1'000'000'000);
  touch("serve.18.00000000000000ff.flight", 1'000'000'500);
  auto const found = find_flights(folder);
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->size(), 2U);
  EXPECT_EQ((*found)[0].program, "serve");
  EXPECT_EQ((*found)[1].program, "train");
  EXPECT_EQ((*found)[1].pid, 17U);
  EXPECT_EQ((*found)[1].run, "0123456789abcdef");
  EXPECT_EQ((*found)[1].path, folder + "/train.17.0123456789abcdef.flight");
}

TEST_F(FlightDiscovery, the_start_counts_that_the_file_names) {
  // What modifies the file later, such as the note that its process is dead, makes nobody younger.
  auto const start = [&](std::string const& name, std::uint64_t started, std::int64_t modified) {
    FlightBuilder file;
    file.header().start_realtime_ns = started * 1'000'000'000;
    file.save(folder + "/" + name);
    timespec const times[2]{{modified, 0}, {modified, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (folder + "/" + name).c_str(), times, 0), 0);
  };
  start("old.17.0123456789abcdef.flight", 1'000'000'000, 1'900'000'000);
  start("young.17.0123456789abcdee.flight", 1'000'000'500, 1'000'000'500);
  touch("unread.17.0123456789abcded.flight", 1'000'000'200);  // says nothing: its own time counts
  auto const found = find_flights(folder).value();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].program, "young");
  EXPECT_EQ(found[1].program, "unread");
  EXPECT_EQ(found[2].program, "old");
}

TEST_F(FlightDiscovery, a_program_may_have_dots_and_any_bytes) {
  touch("python3.11.2.9.0123456789abcdef.flight");
  touch(
      "b\xFF"
      "d.8.0123456789abcdef.flight");
  auto const found = find_flights(folder).value();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].program,
            "b\xEF\xBF\xBD"
            "d");
  EXPECT_EQ(found[0].path, folder +
                               "/b\xFF"
                               "d.8.0123456789abcdef.flight");
  EXPECT_EQ(found[1].program, "python3.11.2");
  EXPECT_EQ(found[1].pid, 9U);
}

TEST_F(FlightDiscovery, ignores_everything_else) {
  for (auto const* const name :
       {".train.17.0123456789abcdef.flight", ".train.17.0123456789abcdef.flight.new", "train.17.0123456789abcdef.flight.new",
        "train.17.0123456789abcde.flight", "train.17.0123456789abcdefa.flight", "train.17.0123456789abcdeg.flight",
        "train.x.0123456789abcdef.flight", "train.-1.0123456789abcdef.flight",
        "train.99999999999999999999.0123456789abcdef.flight", "train..0123456789abcdef.flight", "17.0123456789abcdef.flight",
        ".flight", "x.flight", "readme"}) {
    touch(name);
  }
  fs::create_directory(folder + "/dir.1.0123456789abcdef.flight");
  fs::create_symlink("readme", folder + "/link.1.0123456789abcdef.flight");
  EXPECT_TRUE(find_flights(folder).value().empty());
}

TEST_F(FlightDiscovery, an_absent_folder_holds_none_and_no_folder_is_an_error) {
  EXPECT_TRUE(find_flights(folder + "/absent").value().empty());
  touch("file");
  auto const found = find_flights(folder + "/file");
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().kind, ErrorKind::io);
  EXPECT_THAT(found.error().message, ::testing::HasSubstr(folder + "/file: cannot list"));
}

}  // namespace
}  // namespace headroom::flight
