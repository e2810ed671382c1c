// What is left of dead processes is kept within bounds, and nothing else is touched.
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flight/alive_lock.hpp"
#include "flight/open_file.hpp"
#include "flight/process_identity.hpp"
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
    folder_fd.emplace(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  ~StaleFiles() override {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  /// Of this machine, with a clock whose ticks are nanoseconds since 1970; it started a hundred days ago.
  static void describe_run(FlightBuilder& file) {
    boot_id().copy(file.header().boot_id, sizeof file.header().boot_id - 1);
    host_name().copy(file.header().host, sizeof file.header().host - 1);
    file.header().start_ticks = ns_ago(100 * kDay);
    file.header().start_realtime_ns = ns_ago(100 * kDay);
  }
  [[nodiscard]] static std::uint64_t ns_ago(std::int64_t seconds) {
    return static_cast<std::uint64_t>(std::time(nullptr) - seconds) * 1'000'000'000;
  }
  std::string save(FlightBuilder const& file, std::string const& program) const {
    auto path = folder + "/" + program + ".17.0123456789abcdef.flight";
    file.save(path);
    EXPECT_EQ(::chmod(path.c_str(), 0600), 0);
    set_age(path, 100 * kDay);  // no store through a mapping ever moved it
    return path;
  }
  static void set_age(std::string const& path, std::int64_t seconds) {
    timespec const at{std::time(nullptr) - seconds, 0};
    timespec const times[2]{at, at};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  /// Of a process that nobody saw dead yet. Its last clock sync was so long ago.
  [[nodiscard]] std::string unseen(std::string const& program, std::int64_t quiet_for) const {
    FlightBuilder file;
    describe_run(file);
    file.sync(0).ticks = ns_ago(quiet_for);
    file.sync(0).realtime_ns = ns_ago(quiet_for);
    file.sync(0).number = 1;
    file.header().syncs_written = 1;
    return save(file, program);
  }
  /// Of one that was first seen dead so long ago.
  std::string dead(std::string const& program, std::int64_t seconds_ago) const {
    auto path = unseen(program, seconds_ago + 3600);
    EXPECT_EQ(::chmod(path.c_str(), 0400), 0);
    set_age(path, seconds_ago);
    return path;
  }

  [[nodiscard]] std::set<std::string> left() const {
    std::set<std::string> names;
    for (auto const& entry : fs::directory_iterator{folder}) names.insert(entry.path().filename().string().substr(0, 1));
    return names;
  }
  void tidy(StaleLimits const& limits = {}) const { remove_stale_files(folder_fd->get(), limits); }

  static constexpr std::int64_t kDay = 24 * 3600;
  std::string folder;
  std::optional<Descriptor> folder_fd;
};

struct Times {
  mode_t mode;
  std::time_t modified;
};
Times times_of(std::string const& path) {
  struct stat info{};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return {info.st_mode & 07777U, info.st_mtime};
}

/// A lock of an open of our own looks like another process's: it belongs to the open file. −1: no such locks here.
int held_open(std::string const& path) {
  auto const fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_GE(fd, 0);
  if (try_lock_alive(fd)) return fd;
  ::close(fd);
  return -1;
}

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 40U;

TEST_F(StaleFiles, those_that_died_first_go_first) {
  dead("a", 10);
  dead("b", 400);
  dead("c", 300);
  dead("d", 200);
  tidy({.files = 2, .bytes = kPlenty});
  EXPECT_THAT(left(), UnorderedElementsAre("a", "d"));
}

TEST_F(StaleFiles, a_file_is_dead_since_it_was_first_seen_so) {
  // It worked from its own pool for eight days without a record, and was killed a moment ago: nothing in the file says so.
  auto const path = unseen("a", 8 * kDay);
  dead("b", 10);
  auto const before = std::time(nullptr);
  tidy({.bytes = kPlenty});
  EXPECT_THAT(left(), UnorderedElementsAre("a", "b"));
  auto const seen = times_of(path);
  EXPECT_EQ(seen.mode, 0400U) << "noted";
  EXPECT_GE(seen.modified, before);
  EXPECT_LE(seen.modified, std::time(nullptr));
  // It is the one that died last, whatever its records say.
  tidy({.files = 1, .bytes = kPlenty});
  EXPECT_THAT(left(), UnorderedElementsAre("a"));
}

TEST_F(StaleFiles, what_was_noted_once_is_not_noted_again) {
  auto const path = dead("a", 3 * kDay);
  auto const before = times_of(path);
  tidy();
  EXPECT_EQ(times_of(path).modified, before.modified);
}

TEST_F(StaleFiles, a_group_keeps_its_right_to_read) {
  auto const path = unseen("a", 10);
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  tidy();
  EXPECT_EQ(times_of(path).mode, 0440U);
}

TEST_F(StaleFiles, a_file_that_was_noted_can_still_be_read) {
  auto const path = unseen("a", 10);
  tidy();
  auto const view = FlightView::open(path);
  ASSERT_TRUE(view.has_value()) << view.error().to_string();
  EXPECT_EQ(view->liveness(), Liveness::dead);
  EXPECT_EQ(find_flights(folder).value().size(), 1U);
}

TEST_F(StaleFiles, a_note_from_a_time_to_come_is_mended) {
  auto const path = dead("a", -30 * kDay);
  tidy();
  EXPECT_LE(times_of(path).modified, std::time(nullptr));
  EXPECT_EQ(times_of(path).mode, 0400U);
}

TEST_F(StaleFiles, of_those_first_seen_together_the_last_sign_of_life_decides) {
  static_cast<void>(unseen("a", 3000));
  static_cast<void>(unseen("b", 1000));
  static_cast<void>(unseen("c", 2000));
  tidy({.files = 2, .bytes = kPlenty});
  EXPECT_THAT(left(), UnorderedElementsAre("b", "c"));
  tidy({.files = 1, .bytes = kPlenty});
  EXPECT_THAT(left(), UnorderedElementsAre("b")) << "at a later start too";
}

TEST_F(StaleFiles, a_record_is_a_sign_of_life_too) {
  // Clock syncs come once in a block of records: the newest records of an owned lane, of a shared one and of a journal count.
  static_cast<void>(unseen("a", 1000));
  struct Place {
    std::string name;
    std::uint32_t lane;
    Ring ring;
  };
  for (auto const& [name, lane, ring] :
       {Place{"b", 0, Ring::main}, Place{"c", kOwnedLanes + 3, Ring::main}, Place{"d", 2, Ring::journal}}) {
    SCOPED_TRACE(name);
    FlightBuilder file;
    describe_run(file);
    file.header().lanes_used = 3;
    for (std::int64_t i = 0; i < 20; ++i) file.write(lane, ring, record(EventKind::allocate, ns_ago(40 - i)));
    static_cast<void>(save(file, name));
    tidy({.files = 1, .bytes = kPlenty});
    EXPECT_THAT(left(), UnorderedElementsAre(name));
    fs::remove(folder + "/" + name + ".17.0123456789abcdef.flight");
    static_cast<void>(unseen("a", 1000));
  }
}

TEST_F(StaleFiles, none_but_the_last_is_older_than_a_week) {
  dead("a", 7 * kDay + 60);
  dead("b", 7 * kDay - 3600);
  dead("c", 7 * kDay + 120);
  tidy({.bytes = kPlenty});
  EXPECT_THAT(left(), UnorderedElementsAre("b"));
}

TEST_F(StaleFiles, the_one_that_died_last_stays_however_old_it_is) {
  dead("a", 30 * kDay);
  dead("b", 40 * kDay);
  tidy({.bytes = kPlenty});
  EXPECT_THAT(left(), UnorderedElementsAre("a"));
}

TEST_F(StaleFiles, all_together_are_no_larger_than_the_limit) {
  struct stat info{};
  ASSERT_EQ(::stat(dead("a", 10).c_str(), &info), 0);
  auto const one = static_cast<std::uint64_t>(info.st_blocks) * 512;
  dead("b", 20);
  dead("c", 30);
  tidy({.bytes = 2 * one});
  EXPECT_THAT(left(), UnorderedElementsAre("a", "b"));
  tidy({.bytes = 2 * one - 1});
  EXPECT_THAT(left(), UnorderedElementsAre("a"));
}

TEST_F(StaleFiles, the_one_that_died_last_stays_however_large_it_is) {
  dead("a", 10);
  dead("b", 20);
  tidy({.bytes = 1});
  EXPECT_THAT(left(), UnorderedElementsAre("a"));
}

TEST_F(StaleFiles, a_folder_within_the_limits_is_left_alone) {
  for (auto const* const name : {"a", "b", "c"}) dead(name, 10);
  tidy();
  EXPECT_EQ(left().size(), 3U);
}

TEST_F(StaleFiles, the_living_and_what_is_no_flight_file_are_never_touched) {
  auto const living = unseen("a", 30 * kDay);
  auto const held = held_open(living);
  if (held < 0) GTEST_SKIP() << "no OFD locks in " << folder;
  std::ofstream{folder + "/x.17.0123456789abcdef.flight"} << "no flight file";
  std::ofstream{folder + "/notes.txt"} << "mine";
  std::ofstream{folder + "/b.flight"} << "mine";
  ASSERT_EQ(::mkfifo((folder + "/p.17.0123456789abcdef.flight").c_str(), 0600), 0);
  tidy({.files = 0, .age = std::chrono::hours{0}, .bytes = 0});
  EXPECT_THAT(left(), UnorderedElementsAre("a", "x", "n", "b", "p"));
  EXPECT_EQ(times_of(living).mode & 0200U, 0200U);
  ::close(held);
  tidy({.files = 0, .bytes = kPlenty});
  EXPECT_THAT(left(), UnorderedElementsAre("x", "n", "b", "p"));
}

constexpr StaleLimits kNone{.files = 0, .age = std::chrono::hours{0}, .bytes = 0};

TEST_F(StaleFiles, a_process_that_had_no_lock_is_never_called_dead) {
  // Without locks a process of another pid namespace, or of another machine that shares the folder, looks dead by its pid.
  FlightBuilder file;
  describe_run(file);
  file.header().alive_by = static_cast<std::uint32_t>(AliveBy::pid_and_boot);
  file.header().boot_id[0] = 'x';
  file.header().pid = 1;
  static_cast<void>(save(file, "a"));
  file.header().boot_id[0] = boot_id()[0];
  file.header().pid = 0x7FFF'FFFF;
  auto const path = save(file, "b");
  tidy(kNone);
  EXPECT_THAT(left(), UnorderedElementsAre("a", "b"));
  EXPECT_EQ(times_of(path).mode & 0200U, 0200U) << "nor noted";
}

TEST_F(StaleFiles, another_machines_locks_may_not_be_seen_here) {
  struct Other {
    std::string name;
    bool boot, host;
  };
  for (auto const& [name, boot, host] : {Other{"a", true, true},      // a machine that shares the folder
                                         Other{"b", true, false},     // this one, before it was started again
                                         Other{"c", false, true}}) {  // another container of this one
    FlightBuilder file;
    describe_run(file);
    if (boot) file.header().boot_id[0] = 'x';
    if (host) file.header().host[0] = '?';
    static_cast<void>(save(file, name));
  }
  tidy(kNone);
  EXPECT_THAT(left(), UnorderedElementsAre("a"));
}

TEST_F(StaleFiles, starts_that_were_given_up_go_after_a_minute_when_nobody_holds_them) {
  auto const start = [&](std::string const& program, std::int64_t age) {
    auto path = folder + "/." + program + ".17.0123456789abcdef.flight.new";
    std::ofstream{path} << "half a header";
    set_age(path, age);
    return path;
  };
  auto const abandoned = start("a", 120);
  auto const young = start("b", 10);
  auto const stopped = start("c", 3600);
  auto const held = held_open(stopped);
  if (held < 0) GTEST_SKIP() << "no OFD locks in " << folder;
  std::ofstream{folder + "/.d"} << "mine";
  set_age(folder + "/.d", 3600);
  tidy();
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_TRUE(fs::exists(stopped)) << "it only waits";
  EXPECT_TRUE(fs::exists(folder + "/.d"));
  ::close(held);
}

// Mapped, it would end this program with SIGBUS.
TEST_F(StaleFiles, a_file_that_is_cut_while_it_is_looked_at_is_no_harm) {
  auto const path = unseen("a", 10);
  auto const bytes = static_cast<off_t>(fs::file_size(path));
  auto const fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  std::atomic<bool> done{false};  // written by this thread, read by the other; order does not matter
  std::thread cutter{[&] {
    while (!done.load(std::memory_order_relaxed)) {
      static_cast<void>(::ftruncate(fd, sizeof(FileHeader)));
      static_cast<void>(::ftruncate(fd, bytes));
    }
  }};
  for (int i = 0; i < 4000; ++i) tidy();
  done.store(true, std::memory_order_relaxed);
  cutter.join();
  ::close(fd);
  EXPECT_THAT(left(), UnorderedElementsAre("a"));
}

TEST_F(StaleFiles, a_header_that_lies_about_its_clock_is_no_harm) {
  FlightBuilder file;
  describe_run(file);
  file.header().ticks_per_second = 0;
  file.header().syncs_written = ~std::uint64_t{0};
  file.header().lanes_used = ~std::uint64_t{0};
  file.ring_words(0, Ring::main).head = ~std::uint64_t{0};
  static_cast<void>(save(file, "a"));
  tidy();
  EXPECT_THAT(left(), UnorderedElementsAre("a"));
}

TEST_F(StaleFiles, a_folder_that_is_not_open_is_no_problem) { remove_stale_files(-1); }

}  // namespace
}  // namespace headroom::flight
