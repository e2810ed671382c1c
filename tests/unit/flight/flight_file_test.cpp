// The steps in which a flight file comes to be, looked at from between them: posix_fallocate is this program's own.
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flight/alive_lock.hpp"
#include "flight/flight_file.hpp"
#include "flight_builder.hpp"

namespace headroom::flight {
namespace {

// What a test wants to happen in place of reserving; 0 or the error.
std::function<int(int)> instead_of_reserving;

}  // namespace
}  // namespace headroom::flight

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the system's names are reserved ones
extern "C" int posix_fallocate(int fd, off_t offset, off_t length) {
  if (headroom::flight::instead_of_reserving) {
    if (const int error = headroom::flight::instead_of_reserving(fd); error != 0) return error;
  }
  if (::fallocate(fd, 0, offset, length) == 0) return 0;
  return errno != EOPNOTSUPP ? errno : ::ftruncate(fd, offset + length) == 0 ? 0 : errno;  // sparse, where it must be
}

namespace headroom::flight {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FlightFile : public ::testing::Test {
protected:
  FlightFile() {
    std::string pattern = fs::temp_directory_path() / "headroom-file-XXXXXX";
    base = fs::canonical(::mkdtemp(pattern.data()));
    if (char const* const set = std::getenv("HEADROOM_DIR")) before = set;
    use(base + "/flights");
  }
  ~FlightFile() override {
    instead_of_reserving = nullptr;
    fs::current_path(home);
    before ? ::setenv("HEADROOM_DIR", before->c_str(), 1) : ::unsetenv("HEADROOM_DIR");
    std::error_code ignored;
    fs::remove_all(base, ignored);
  }
  static void use(std::string const& folder) { ::setenv("HEADROOM_DIR", folder.c_str(), 1); }

  FlightMemory make() { return make_flight_memory({.program = "test", .pid = 17, .run = 1, .sizes = kSmallSizes}, notice); }
  static void give_back(FlightMemory const& memory) {
    ::munmap(memory.base, memory.geometry.bytes);
    for (int const fd : {memory.fd, memory.reading_fd, memory.folder_fd}) {
      if (fd >= 0) ::close(fd);
    }
  }

  fs::path home = fs::current_path();
  std::string base;
  std::optional<std::string> before;
  std::string notice;
};

constexpr auto kName = "test.17.0000000000000001.flight";

TEST_F(FlightFile, is_locked_before_anything_takes_time) {
  // A starter that is stopped for a minute on the way must not look like one that was killed.
  std::optional<bool> locked;
  instead_of_reserving = [&](int fd) {
    auto const other = ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC);
    locked = is_locked_by_other(other);
    ::close(other);
    return 0;
  };
  auto const memory = make();
  ASSERT_EQ(memory.backing, Backing::file) << notice;
  if (memory.alive_by != AliveBy::ofd_lock) GTEST_SKIP() << "no OFD locks in " << base;
  EXPECT_EQ(locked, true);
  give_back(memory);
}

TEST_F(FlightFile, that_cannot_be_reserved_leaves_nothing_behind) {
  instead_of_reserving = [](int) { return ENOSPC; };
  auto memory = make();
  EXPECT_EQ(memory.backing, Backing::anonymous);
  EXPECT_NE(memory.base, nullptr);
  EXPECT_EQ(memory.fd, -1);
  EXPECT_EQ(memory.folder_fd, -1);
  EXPECT_THAT(notice, HasSubstr(base + "/flights/." + kName + ".new: No space left on device"));
  EXPECT_TRUE(fs::is_empty(base + "/flights"));
  publish_file(memory, notice);  // nothing to publish
  give_back(memory);
}

TEST_F(FlightFile, in_a_folder_named_from_here_has_a_path_from_the_root) {
  fs::current_path(base);
  use("flights");
  auto memory = make();
  ASSERT_EQ(memory.backing, Backing::file) << notice;
  fs::current_path("/");
  EXPECT_EQ(memory.path, base + "/flights/" + kName);
  publish_file(memory, notice);
  EXPECT_EQ(notice, "");
  EXPECT_TRUE(fs::exists(memory.path));
  give_back(memory);
}

TEST_F(FlightFile, gets_its_name_in_the_folder_that_was_checked) {
  fs::create_directory(base + "/parent");
  use(base + "/parent/flights");
  auto memory = make();
  ASSERT_EQ(memory.backing, Backing::file) << notice;
  // Somebody who may write above our folder swaps it.
  fs::rename(base + "/parent", base + "/ours");
  fs::create_directories(base + "/parent/flights");
  publish_file(memory, notice);
  EXPECT_EQ(notice, "");
  EXPECT_TRUE(fs::exists(base + "/ours/flights/" + kName));
  EXPECT_TRUE(fs::is_empty(base + "/parent/flights"));
  give_back(memory);
}

TEST_F(FlightFile, is_its_owners_to_write_whatever_the_umask_says) {
  fs::create_directory(base + "/flights");
  fs::permissions(base + "/flights", fs::perms{0700});
  auto const mask = ::umask(0777);
  auto const memory = make();
  ::umask(mask);
  EXPECT_EQ(memory.backing, Backing::file) << notice;
  EXPECT_EQ(fs::status(memory.temporary_path).permissions(), fs::perms{0600});
  give_back(memory);
}

TEST_F(FlightFile, of_a_folder_that_hands_its_group_down_belongs_to_that_group) {
  constexpr gid_t kOthers = 64'123;  // only root may give a folder to a group that it is not in
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(base.c_str(), 0, kOthers), 0);
  }
  ASSERT_EQ(::chmod(base.c_str(), 02700), 0);
  auto const mask = ::umask(0022);
  auto const memory =
      make_flight_memory({.program = "test", .pid = 17, .run = 1, .group_readable = true, .sizes = kSmallSizes}, notice);
  ::umask(mask);
  EXPECT_EQ(memory.backing, Backing::file) << notice;
  struct stat above{};
  struct stat folder{};
  struct stat file{};
  ASSERT_EQ(::stat(base.c_str(), &above), 0);
  ASSERT_EQ(::stat((base + "/flights").c_str(), &folder), 0);
  ASSERT_EQ(::stat(memory.temporary_path.c_str(), &file), 0);
  EXPECT_EQ(folder.st_mode & 07777U, 02750U);
  EXPECT_EQ(file.st_mode & 07777U, 0640U);
  EXPECT_EQ(folder.st_gid, above.st_gid);
  EXPECT_EQ(file.st_gid, above.st_gid);
  give_back(memory);
}

TEST_F(FlightFile, of_a_group_is_for_the_group_whatever_the_umask_says) {
  auto const mask = ::umask(0077);
  auto const memory =
      make_flight_memory({.program = "test", .pid = 17, .run = 1, .group_readable = true, .sizes = kSmallSizes}, notice);
  ::umask(mask);
  EXPECT_EQ(memory.backing, Backing::file) << notice;
  EXPECT_EQ(fs::status(base + "/flights").permissions(), fs::perms{0750});
  EXPECT_EQ(fs::status(memory.temporary_path).permissions(), fs::perms{0640});
  give_back(memory);
}

}  // namespace
}  // namespace headroom::flight
