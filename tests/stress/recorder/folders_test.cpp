// Where the flight file may lie, and what happens when it cannot: the program goes on, with one notice that says why.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <headroom/flight_publish.hpp>

#include "child_process.hpp"
#include "managers.hpp"

namespace headroom::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// Starts a recorder, works a little, and tells what came of it.
int start_and_tell() {
  auto manager = null_manager(MemoryBudget::with_limit(1000));
  for (int i = 0; i < 10'000; ++i) {
    if (!manager.alloc<std::byte>(100)) return 1;
  }
  auto held = manager.alloc<std::byte>(600);
  const bool refused = !manager.alloc<std::byte>(600);
  const auto process = flight::FlightView::of_this_process()->process();
  std::printf("%s, %s%s\n", process.backing == flight::Backing::file ? "file" : "anonymous",
              process.was_shrunk ? "shrunk" : "full size", manager.audit().clean() && refused && held ? "" : ", books wrong");
  return 0;
}
const Role kStart{"start", [](auto const&) { return start_and_tell(); }};

// A mount namespace of its own with a tmpfs of `bytes` at `folder`; 0, or what the system said.
int mount_tmpfs(std::string const& folder, std::string const& options, unsigned long flags = 0) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return errno;
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return errno;
  return mount("headroom-test", folder.c_str(), "tmpfs", flags, options.c_str()) == 0 ? 0 : errno;
}

// start-on-tmpfs FOLDER SIZE [fill]
const Role kStartOnTmpfs{"start-on-tmpfs", [](std::vector<std::string> const& arguments) {
                           if (const int error = mount_tmpfs(arguments[0], "mode=0700,size=" + arguments[1]); error != 0) {
                             std::printf("a tmpfs cannot be mounted here: %s\n", std::strerror(error));
                             return kNotPermitted;
                           }
                           if (arguments.size() > 2) {
                             std::ofstream filler{arguments[0] + "/filler", std::ios::binary};
                             const std::string block(65536, 'x');
                             while (filler.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
                             }
                           }
                           return start_and_tell();
                         }};
// start-from-here FOLDER: a folder named from where the program is, and a program that goes elsewhere before it ends.
const Role kStartFromHere{"start-from-here", [](std::vector<std::string> const& arguments) {
                            if (chdir(arguments[0].c_str()) != 0) return 1;
                            setenv("HEADROOM_DIR", "flights", 1);
                            const int told = start_and_tell();
                            std::printf("%s\n", flight::own_file().c_str());
                            return chdir("/") == 0 ? told : 1;
                          }};
// Tells its file and is killed.
const Role kDieAtOnce{"die-at-once", [](std::vector<std::string> const&) {
                        auto manager = null_manager(MemoryBudget::unlimited());
                        std::printf("%s\n", flight::own_file().c_str());
                        std::raise(SIGKILL);
                        return 1;
                      }};
// die-on-tmpfs FOLDER SIZE TIMES: so many processes die on a small tmpfs, one after the other. Tells how many bytes the files took at
// most that were left when the next one started, how many are there at the end, and whether each was there right after its death.
const Role kDieOnTmpfs{"die-on-tmpfs", [](std::vector<std::string> const& arguments) {
                         if (const int error = mount_tmpfs(arguments[0], "mode=0700,size=" + arguments[1]); error != 0) {
                           std::printf("a tmpfs cannot be mounted here: %s\n", std::strerror(error));
                           return kNotPermitted;
                         }
                         std::uint64_t most = 0;
                         bool last_is_there = true;
                         for (auto left = std::stoul(arguments[2]); left != 0; --left) {
                           // Whoever starts tidies up before it makes its own: what the dead take is looked at without that one.
                           Child child{"die-at-once", {}, {.environment = {"HEADROOM_DIR=" + arguments[0]}}};
                           const std::string own = child.line();
                           if (child.wait() != -SIGKILL) return 1;
                           std::uint64_t bytes = 0;
                           for (auto const& entry : std::filesystem::directory_iterator{arguments[0]}) {
                             if (entry.path() != own) bytes += std::filesystem::file_size(entry.path());
                           }
                           most = std::max(most, bytes);
                           last_is_there = last_is_there && std::filesystem::exists(own);
                         }
                         const auto files = std::distance(std::filesystem::directory_iterator{arguments[0]}, {});
                         std::printf("%llu %td %s\n", static_cast<unsigned long long>(most), files, last_is_there ? "last" : "");
                         return 0;
                       }};
// start-read-only FOLDER: in a folder of ours that was there before its file system became read-only.
const Role kStartReadOnly{"start-read-only", [](std::vector<std::string> const& arguments) {
                            int error = mount_tmpfs(arguments[0], "mode=0700");
                            if (error == 0 && mount("none", arguments[0].c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0)
                              error = errno;
                            if (error != 0) {
                              std::printf("a tmpfs cannot be mounted here: %s\n", std::strerror(error));
                              return kNotPermitted;
                            }
                            return start_and_tell();
                          }};
// Under a umask that leaves nobody else any rights.
const Role kStartUnderUmask{"start-under-umask", [](std::vector<std::string> const&) {
                              umask(0077);
                              return start_and_tell();
                            }};
// What most programs have: no HEADROOM_DIR. Their /dev/shm is read-only here, and no other folder is known.
const Role kStartWithoutShm{"start-without-shm", [](std::vector<std::string> const&) {
                              if (const int error = mount_tmpfs("/dev/shm", "", MS_RDONLY); error != 0) {
                                std::printf("a tmpfs cannot be mounted here: %s\n", std::strerror(error));
                                return kNotPermitted;
                              }
                              unsetenv("XDG_RUNTIME_DIR");
                              return start_and_tell();
                            }};
// A /dev/shm without room, and an XDG runtime folder that has some.
const Role kStartWithFullShm{"start-with-full-shm", [](std::vector<std::string> const& arguments) {
                               if (const int error = mount_tmpfs("/dev/shm", "mode=1777,size=1m"); error != 0) {
                                 std::printf("a tmpfs cannot be mounted here: %s\n", std::strerror(error));
                                 return kNotPermitted;
                               }
                               unsetenv("HEADROOM_DIR");
                               setenv("XDG_RUNTIME_DIR", arguments[0].c_str(), 1);
                               return start_and_tell();
                             }};
const Role kStartWithSmallFiles{"start-with-small-files", [](std::vector<std::string> const& arguments) {
                                  const rlimit limit{std::stoul(arguments[0]), RLIM_INFINITY};
                                  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return kNotPermitted;
                                  return start_and_tell();
                                }};
const Role kStartUnderTimer{"start-under-timer", [](std::vector<std::string> const&) {
                              std::signal(SIGALRM, [](int) {});
                              const itimerval often{{0, 500}, {0, 500}};
                              setitimer(ITIMER_REAL, &often, nullptr);
                              return start_and_tell();
                            }};

std::size_t notices_in(std::string const& errors) { return static_cast<std::size_t>(std::ranges::count(errors, '\n')); }

// The role went on with books in its own memory and said why, once.
void expect_fallback(Child& child, std::string const& place, std::string const& reason) {
  const int status = child.wait();
  if (status == kNotPermitted) GTEST_SKIP() << child.output();
  EXPECT_EQ(status, 0);
  EXPECT_EQ(child.output(), "anonymous, full size\n");
  EXPECT_THAT(child.errors(), StartsWith("headroom: no flight file ("));
  EXPECT_THAT(child.errors(), HasSubstr(place));
  EXPECT_THAT(child.errors(), HasSubstr(reason));
  EXPECT_EQ(notices_in(child.errors()), 1U) << child.errors();
}

std::vector<std::string> in_folder(std::string const& folder) { return {"HEADROOM_DIR=" + folder}; }

TEST(Folder, of_ours_is_used_without_a_word_and_left_empty) {
  const TemporaryFolder folder;
  Child child{"start", {}, {.environment = in_folder(folder.path() + "/new")}};
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(child.output(), "file, full size\n");
  EXPECT_THAT(child.errors(), IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() + "/new"));
}

mode_t mode_of(std::filesystem::path const& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

TEST(Folder, and_file_are_ours_alone_unless_the_group_is_asked_in) {
  const TemporaryFolder folder;
  for (const bool group : {false, true}) {
    SCOPED_TRACE(group);
    const std::string place = folder.path() + (group ? "/group" : "/private");
    auto environment = in_folder(place);
    environment.insert(environment.end(), {"HEADROOM_KEEP=1", std::string{"HEADROOM_GROUP="} + (group ? "1" : "0")});
    Child child{"start-under-umask", {}, {.environment = environment}};
    EXPECT_EQ(child.wait(), 0);
    EXPECT_THAT(child.errors(), IsEmpty());
    EXPECT_EQ(mode_of(place), group ? 0750U : 0700U);
    std::size_t files = 0;
    for (auto const& entry : std::filesystem::directory_iterator{place}) {
      ++files;
      EXPECT_EQ(mode_of(entry.path()), group ? 0640U : 0600U);
    }
    EXPECT_EQ(files, 1U);
  }
}

TEST(Folder, that_the_group_cannot_look_into_is_used_and_said) {
  const TemporaryFolder folder;  // 0700
  auto environment = in_folder(folder.path());
  environment.emplace_back("HEADROOM_GROUP=1");
  Child child{"start", {}, {.environment = environment}};
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(child.output(), "file, full size\n");
  EXPECT_THAT(child.errors(), HasSubstr("the group cannot look into " + folder.path()));
  EXPECT_THAT(child.errors(), HasSubstr("expected mode 0750"));
}

TEST(Folder, that_the_group_can_look_into_is_as_good_for_who_did_not_ask) {
  const TemporaryFolder folder;
  const std::string place = folder.path() + "/shared";
  Child first{"start", {}, {.environment = {"HEADROOM_DIR=" + place, "HEADROOM_GROUP=1"}}};
  EXPECT_EQ(first.wait(), 0);
  ASSERT_EQ(mode_of(place), 0750U);
  Child second{"start", {}, {.environment = {"HEADROOM_DIR=" + place, "HEADROOM_KEEP=1"}}};
  EXPECT_EQ(second.wait(), 0);
  EXPECT_EQ(second.output(), "file, full size\n");
  EXPECT_THAT(second.errors(), IsEmpty());
  for (auto const& entry : std::filesystem::directory_iterator{place}) EXPECT_EQ(mode_of(entry.path()), 0600U);
}

TEST(Folder, named_from_here_is_found_again_from_elsewhere) {
  const TemporaryFolder folder;
  Child child{"start-from-here", {folder.path()}};
  EXPECT_EQ(child.wait(), 0);
  EXPECT_THAT(child.output(), HasSubstr("file, full size\n" + folder.path() + "/flights/"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() + "/flights")) << "removed at the end";
}

TEST(Folder, that_became_read_only) {
  const TemporaryFolder folder;
  Child child{"start-read-only", {folder.path()}, {.environment = in_folder(folder.path())}};
  expect_fallback(child, folder.path(), "Read-only file system");
}

TEST(Folder, that_is_a_file) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/file";
  std::ofstream{file} << "text";
  Child child{"start", {}, {.environment = in_folder(file)}};
  expect_fallback(child, file, "Not a directory");
}

TEST(Folder, that_is_a_link) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() + "/real");
  std::filesystem::permissions(folder.path() + "/real", std::filesystem::perms{0700});
  std::filesystem::create_directory_symlink(folder.path() + "/real", folder.path() + "/link");
  Child child{"start", {}, {.environment = in_folder(folder.path() + "/link")}};
  expect_fallback(child, folder.path() + "/link",
                  "Not a directory");  // as the system words it for a link that must not be followed
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() + "/real"));
}

TEST(Folder, that_others_may_write) {
  const TemporaryFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
  Child child{"start", {}, {.environment = in_folder(folder.path())}};
  expect_fallback(child, folder.path(), "its mode is 0777, expected 0700 or 0750");
}

TEST(Folder, of_someone_else) {
  const TemporaryFolder folder;
  std::string foreign = "/usr";  // root's
  std::string owner = "0";
  if (geteuid() == 0) {
    foreign = folder.path();
    owner = "65534";
    ASSERT_EQ(chown(foreign.c_str(), 65534, 65534), 0);
  }
  Child child{"start", {}, {.environment = in_folder(foreign)}};
  expect_fallback(child, foreign, "it belongs to user " + owner + ", expected " + std::to_string(geteuid()));
}

TEST(Folder, that_may_not_be_written) {
  const TemporaryFolder folder;
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(chown(folder.path().c_str(), 65534, 65534), 0);
  }
  ASSERT_EQ(chmod(folder.path().c_str(), 0500), 0);
  Child child{"start", {}, {.environment = in_folder(folder.path()), .as_nobody = root}};
  expect_fallback(child, folder.path(), "Permission denied");
}

TEST(Folder, whose_parent_does_not_exist) {
  Child child{"start", {}, {.environment = in_folder("/nonexistent/headroom")}};
  expect_fallback(child, "/nonexistent/headroom", "No such file or directory");
}

TEST(Folder, is_not_looked_for_when_events_are_off) {
  Child child{"start", {}, {.environment = {"HEADROOM_DIR=/nonexistent/headroom", "HEADROOM_FLIGHT=off"}}};
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(child.output(), "anonymous, full size\n");
  EXPECT_THAT(child.errors(), IsEmpty());
}

TEST(Tmpfs, of_a_containers_usual_size_gets_a_smaller_file) {
  const TemporaryFolder folder;
  Child child{"start-on-tmpfs", {folder.path(), "64m"}, {.environment = in_folder(folder.path())}};
  const int status = child.wait();
  if (status == kNotPermitted) GTEST_SKIP() << child.output();
  EXPECT_EQ(status, 0);
  EXPECT_EQ(child.output(), "file, shrunk\n");
  EXPECT_THAT(child.errors(), IsEmpty());
}

TEST(Tmpfs, the_dead_take_at_most_a_quarter_of_it) {
  const TemporaryFolder folder;
  Child child{"die-on-tmpfs", {folder.path(), "64m", "12"}, {.environment = in_folder(folder.path())}};
  const int status = child.wait();
  if (status == kNotPermitted) GTEST_SKIP() << child.output();
  ASSERT_EQ(status, 0) << child.output() << child.errors();
  std::istringstream told{child.output()};
  std::uint64_t most = 0;
  std::size_t files = 0;
  std::string last;
  told >> most >> files >> last;
  EXPECT_LE(most, std::uint64_t{16} << 20);
  EXPECT_GT(most, std::uint64_t{8} << 20) << "and not less than they may";
  EXPECT_LT(files, 12U);
  EXPECT_EQ(last, "last") << "each that died stayed until the next start";
}

TEST(Tmpfs, that_is_tiny) {
  const TemporaryFolder folder;
  Child child{"start-on-tmpfs", {folder.path(), "4m"}, {.environment = in_folder(folder.path())}};
  expect_fallback(child, folder.path(), "too little free space for the smallest flight file");
}

TEST(Tmpfs, that_is_full) {
  const TemporaryFolder folder;
  Child child{"start-on-tmpfs", {folder.path(), "64m", "fill"}, {.environment = in_folder(folder.path())}};
  expect_fallback(child, folder.path(), "too little free space for the smallest flight file");
}

TEST(Tmpfs, that_is_absent) {
  Child child{"start-without-shm", {}};
  expect_fallback(child, "/dev/shm/headroom-", "Read-only file system");
}

TEST(Tmpfs, that_is_full_leaves_the_next_folder) {
  const TemporaryFolder folder;
  Child child{"start-with-full-shm", {folder.path()}};
  const int status = child.wait();
  if (status == kNotPermitted) GTEST_SKIP() << child.output();
  EXPECT_EQ(status, 0);
  EXPECT_THAT(child.output(), StartsWith("file, "));
  EXPECT_THAT(child.errors(), IsEmpty());
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() + "/headroom"));
}

TEST(Limits, a_small_limit_on_file_sizes_does_not_kill_the_program) {
  const TemporaryFolder folder;
  Child tiny{"start-with-small-files", {"65536"}, {.environment = in_folder(folder.path())}};
  expect_fallback(tiny, folder.path(), "too little free space");
  Child small{"start-with-small-files", {"8388608"}, {.environment = in_folder(folder.path())}};
  EXPECT_EQ(small.wait(), 0);
  EXPECT_EQ(small.output(), "file, shrunk\n");
}

TEST(Limits, a_timer_that_signals_all_the_time_does_not_cost_the_file) {
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "no /dev/shm";
  const TemporaryFolder folder{"/dev/shm"};  // a tmpfs gives up reserving at a signal, other file systems go on
  Child child{"start-under-timer", {}, {.environment = in_folder(folder.path())}};
  EXPECT_EQ(child.wait(), 0);
  EXPECT_THAT(child.output(), StartsWith("file, ")) << child.errors();
}

}  // namespace
}  // namespace headroom::test
