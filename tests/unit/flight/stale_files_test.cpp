// What is left of dead processes is kept within bounds, and nothing else is touched.
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flight/alive_lock.hpp"
#include "flight/stale_files.hpp"
#include "flight_builder.hpp"

namespace headroom::flight {
namespace {

namespace fs = std::filesystem;
using testing::UnorderedElementsAre;

class StaleFiles : public ::testing::Test {
protected:
  StaleFiles() {
    std::string pattern = fs::temp_directory_path() / "headroom-stale-XXXXXX";
    folder = ::mkdtemp(pattern.data());
  }
  ~StaleFiles() override {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  /// Of a process that gave its last sign of life so long ago, and started `started` seconds ago.
  std::string dead(std::string const& program, std::int64_t seconds_ago, std::int64_t started = 0) {
    FlightBuilder file;
    auto const at = static_cast<std::uint64_t>(std::time(nullptr) - seconds_ago) * 1'000'000'000;
    file.header().start_realtime_ns = 1;
    file.sync(0).ticks = 1;
    file.sync(0).realtime_ns = at;
    file.sync(0).number = 1;
    auto const path = folder + "/" + program + ".17.0123456789abcdef.flight";
    file.save(path);
    auto const started_at = std::time(nullptr) - started;
    timespec const times[2]{{started_at, 0}, {started_at, 0}};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return path;
  }

  [[nodiscard]] std::set<std::string> left() const {
    std::set<std::string> names;
    for (auto const& entry : fs::directory_iterator{folder}) names.insert(entry.path().filename().string().substr(0, 1));
    return names;
  }

  std::string folder;
};

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 40U;

TEST_F(StaleFiles, those_that_died_first_go_first) {
  // The one that died last started first, and its file looks oldest.
  dead("a", 10, 50'000);
  dead("b", 400, 500);
  dead("c", 300, 400);
  dead("d", 200, 300);
  remove_stale_files(folder, {.files = 2, .bytes = kPlenty});
  EXPECT_THAT(left(), UnorderedElementsAre("a", "d"));
}

TEST_F(StaleFiles, none_is_older_than_a_week) {
  dead("a", 7 * 24 * 3600 + 60);
  dead("b", 7 * 24 * 3600 - 3600);
  remove_stale_files(folder, {.bytes = kPlenty});
  EXPECT_THAT(left(), UnorderedElementsAre("b"));
}

TEST_F(StaleFiles, all_together_are_no_larger_than_the_limit) {
  struct stat info{};
  ASSERT_EQ(::stat(dead("a", 10).c_str(), &info), 0);
  auto const one = static_cast<std::uint64_t>(info.st_blocks) * 512;
  dead("b", 20);
  dead("c", 30);
  remove_stale_files(folder, {.bytes = 2 * one});
  EXPECT_THAT(left(), UnorderedElementsAre("a", "b"));
  remove_stale_files(folder, {.bytes = 2 * one - 1});
  EXPECT_THAT(left(), UnorderedElementsAre("a"));
}

TEST_F(StaleFiles, the_one_that_died_last_stays_however_large_it_is) {
  dead("a", 10);
  dead("b", 20);
  remove_stale_files(folder, {.bytes = 1});
  EXPECT_THAT(left(), UnorderedElementsAre("a"));
}

TEST_F(StaleFiles, a_folder_within_the_limits_is_left_alone) {
  for (auto const* const name : {"a", "b", "c"}) dead(name, 10);
  remove_stale_files(folder);
  EXPECT_EQ(left().size(), 3U);
}

TEST_F(StaleFiles, the_living_and_what_is_no_flight_file_are_never_touched) {
  auto const living = dead("a", 30 * 24 * 3600);
  // A lock of an open of our own looks like another process's: it belongs to the open file.
  auto const held = ::open(living.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(held, 0);
  if (!try_lock_alive(held)) {
    ::close(held);
    GTEST_SKIP() << "no OFD locks in " << folder;
  }
  std::ofstream{folder + "/x.17.0123456789abcdef.flight"} << "no flight file";
  std::ofstream{folder + "/notes.txt"} << "mine";
  remove_stale_files(folder, {.files = 0, .age = std::chrono::hours{0}, .bytes = 0});
  EXPECT_THAT(left(), UnorderedElementsAre("a", "x", "n"));
  ::close(held);
  remove_stale_files(folder, {.files = 0, .bytes = kPlenty});
  EXPECT_THAT(left(), UnorderedElementsAre("x", "n"));
}

TEST_F(StaleFiles, a_folder_that_does_not_exist_is_no_problem) { remove_stale_files(folder + "/nowhere"); }

}  // namespace
}  // namespace headroom::flight
