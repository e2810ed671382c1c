// Several processes and one recorder: children of a fork, with exec and without, and processes that share a folder across pid
// namespaces.
#include <atomic>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <headroom/flight_publish.hpp>
#ifdef HEADROOM_TEST_EXPORTER
#include <headroom/exporter.hpp>
#endif

#include "child_process.hpp"
#include "managers.hpp"
#include "scale.hpp"

namespace headroom::test {
namespace {

using flight::FlightView;
using flight::Liveness;
using Buffer = TrackedBuffer<std::byte>;

#ifdef HEADROOM_TEST_EXPORTER
Exporter start_exporter() { return Exporter::start({.listen = "127.0.0.1:0"}).value(); }
#else
struct Exporter {
  static std::uint16_t port() { return 0; }
  static void stop() {}
};
Exporter start_exporter() { return {}; }
#endif

bool is_served(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool connected = connect(fd, reinterpret_cast<sockaddr const*>(&address), sizeof address) == 0;
  close(fd);
  return connected;
}

// A child's whole life beside a busy parent: every public way in, then its destructors. 0 when all of it was refused politely.
int child_without_exec(GpuMemoryManager& manager, Buffer& held, Exporter& exporter) {
  alarm(200);  // a hang ends as SIGALRM
  if (manager.alloc<std::byte>(1)) return 1;
  if (GpuMemoryManager::create(null_device().value(), MemoryBudget::unlimited())) return 2;
  flight::mark("in the child", 1);
  manager.set_budget(MemoryBudget::with_limit(1));
  manager.reset_peak();
  if (manager.retry_failed_deallocations() != 0 || manager.write_off_failed_deallocations() != 0) return 3;
  if (!held.release()) return 4;
  static_cast<void>(manager.audit());
  {
    const GpuMemoryManager copy = manager;
    const GpuMemoryManager last = std::move(manager);
  }
  exporter.stop();
  return 0;
}

// fork-both-ways ROUNDS: threads allocate and make managers while the main thread forks.
const Role kForkBothWays{
    "fork-both-ways", [](std::vector<std::string> const& arguments) {
      auto manager = null_manager(MemoryBudget::unlimited());
      auto exporter = start_exporter();
      auto held = manager.alloc<std::byte>(4096).value();
      std::atomic<bool> done{false};
      std::atomic<std::uint64_t> allocated{1};
      std::vector<std::thread> threads;
      for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] {
          std::uint64_t mine = 0;
          while (!done) {
            auto buffer = manager.alloc<std::byte>(64).value();
            ++mine;
          }
          allocated += mine;
        });
      }
      threads.emplace_back([&] {  // takes every lock that headroom has, over and over
        for (int i = 0; !done; ++i) {
          auto another = null_manager(MemoryBudget::unlimited());
          flight::mark("in the parent", static_cast<std::uint64_t>(i));
        }
      });
      int bad = 0;
      const auto rounds = std::stoul(arguments[0]);
      for (std::size_t round = 0; round < rounds; ++round) {
        const bool exec = round % 4 == 3;
        const pid_t child = fork();
        if (child == 0) {
          if (exec) execl("/proc/self/exe", "stress_recorder", "--role", "own-life", static_cast<char*>(nullptr));
          _exit(exec ? 72 : child_without_exec(manager, held, exporter));
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
          ++bad;
          std::printf("a child %s exec ended with %s %d\n", exec ? "with" : "without", WIFEXITED(status) ? "status" : "signal",
                      WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        }
        if (bad > 3) break;
      }
      done = true;
      for (auto& thread : threads) thread.join();
      const auto stats = manager.stats();
      if (stats.allocated != 4096 || stats.allocations != allocated || !manager.audit().clean()) {
        ++bad;
        std::printf("the parent's books: %s\n", manager.audit().to_string().c_str());
      }
      if (exporter.port() != 0 && !is_served(exporter.port())) {
        ++bad;
        std::printf("the parent no longer serves\n");
      }
      std::printf("%zu forks, %llu allocations meanwhile\n", rounds, static_cast<unsigned long long>(stats.allocations));
      return bad;
    }};

// What a program does that was started by one with a recorder: it has one of its own.
const Role kOwnLife{"own-life", [](auto const&) {
                      auto manager = null_manager(MemoryBudget::with_limit(1000));
                      auto buffer = manager.alloc<std::byte>(10);
                      const auto view = FlightView::of_this_process();
                      const bool own = view && view->process().pid == static_cast<std::uint64_t>(getpid()) &&
                                       std::filesystem::exists(flight::own_file());
                      return own && buffer && manager.audit().clean() ? 0 : 1;
                    }};

TEST(Fork, with_and_without_exec_beside_busy_threads_and_an_exporter) {
  const TemporaryFolder folder;
  Child child{"fork-both-ways", {std::to_string(scaled(100))}, {.environment = {"HEADROOM_DIR=" + folder.path()}}};
  EXPECT_EQ(child.wait(), 0) << child.output() << child.errors();
  std::cout << child.output();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "each process removes its own file and nobody else's";
}

// A parent that is killed while its child lives on: tells file, port and child, then waits.
const Role kLeavesAChild{"leaves-a-child", [](auto const&) {
                           auto manager = null_manager(MemoryBudget::unlimited());
                           auto exporter = start_exporter();
                           auto held = manager.alloc<std::byte>(777).value();
                           int began[2] = {};
                           if (pipe(began) != 0) return 1;
                           const pid_t child = fork();
                           if (child == 0) {
                             alarm(300);  // should the test not come to its end
                             if (write(began[1], "b", 1) != 1) return 1;
                             for (;;) pause();
                           }
                           // Not before the child has begun: a fork returns in the parent while the child has not run yet, and
                           // until it does it holds what it inherited.
                           char b = 0;
                           if (read(began[0], &b, 1) != 1) return 1;
                           std::printf("%s\n%u\n%d\n", flight::own_file().c_str(), static_cast<unsigned>(exporter.port()), child);
                           for (;;) pause();
                           return 0;
                         }};

TEST(Fork, a_child_that_lives_on_does_not_make_a_dead_parent_look_alive) {
  const TemporaryFolder folder;
  Child parent{"leaves-a-child", {}, {.environment = {"HEADROOM_DIR=" + folder.path()}}};
  const std::string path = parent.line();
  const auto port = static_cast<std::uint16_t>(std::strtoul(parent.line().c_str(), nullptr, 10));
  const auto child = static_cast<pid_t>(std::strtol(parent.line().c_str(), nullptr, 10));
  ASSERT_GT(child, 0) << parent.errors();
  const auto view = FlightView::open(path).value();
  EXPECT_EQ(view.liveness(), Liveness::living);
  parent.kill();
  EXPECT_EQ(parent.wait(), -SIGKILL);
  EXPECT_EQ(view.liveness(), Liveness::dead) << "at once";
  EXPECT_EQ(::kill(child, 0), 0) << "the child lives";
  if (port != 0) {
    EXPECT_FALSE(is_served(port)) << "the child does not serve";
  }
  ASSERT_EQ(view.ledgers().size(), 1U);
  EXPECT_EQ(view.ledgers()[0].allocated, 777U);
  ::kill(child, SIGKILL);
}

// Closes every descriptor but its output, and goes on using the books: all that is left of the file is its mapping.
const Role kKeepsOnlyTheMapping{"keeps-only-the-mapping", [](auto const&) {
                                  auto manager = null_manager(MemoryBudget::unlimited());
                                  std::printf("%s\n", flight::own_file().c_str());
                                  close_range(3, ~0U, 0);
                                  auto held = manager.alloc<std::byte>(31).value();
                                  std::printf("%llu\n", static_cast<unsigned long long>(manager.allocated_bytes()));
                                  for (;;) pause();
                                  return 0;
                                }};

// A killed process's memory may be torn down long after it was waited for; its descriptors are closed before.
TEST(Alive, is_said_by_a_descriptor_and_not_by_the_mapping) {
  const TemporaryFolder folder;
  Child child{"keeps-only-the-mapping", {}, {.environment = {"HEADROOM_DIR=" + folder.path()}}};
  const auto view = FlightView::open(child.line()).value();
  ASSERT_EQ(child.line(), "31") << child.errors();
  ASSERT_EQ(view.ledgers().size(), 1U);
  EXPECT_EQ(view.ledgers()[0].allocated, 31U) << "its books still work";
  EXPECT_EQ(view.liveness(), Liveness::dead) << "what holds the lock is closed";
}

// Tells its file and its pid as it sees it, then waits.
const Role kShowsItself{"shows-itself", [](auto const&) {
                          auto manager = null_manager(MemoryBudget::unlimited());
                          auto held = manager.alloc<std::byte>(11).value();
                          std::printf("%s\n%d\n", flight::own_file().c_str(), getpid());
                          for (;;) pause();
                          return 0;
                        }};

// Nothing in a flight file tells when its process died: the next one that starts notes that it saw it.
TEST(Alive, who_starts_next_notes_the_dead_and_keeps_them_readable) {
  const TemporaryFolder folder;
  const ChildOptions options{.environment = {"HEADROOM_DIR=" + folder.path()}};
  Child first{"shows-itself", {}, options};
  Child second{"shows-itself", {}, options};
  const std::string dead_path = first.line();
  const std::string living_path = second.line();
  const auto may_be_written = [](std::string const& path) {
    return (std::filesystem::status(path).permissions() & std::filesystem::perms::owner_write) != std::filesystem::perms::none;
  };
  first.kill();
  EXPECT_EQ(first.wait(), -SIGKILL);
  // As if it had started, and told its last, two weeks ago.
  std::filesystem::last_write_time(dead_path, std::filesystem::file_time_type::clock::now() - std::chrono::hours{14 * 24});
  const auto before = std::filesystem::last_write_time(dead_path);
  Child third{"shows-itself", {}, options};
  const std::string youngest_path = third.line();
  EXPECT_FALSE(may_be_written(dead_path));
  EXPECT_GT(std::filesystem::last_write_time(dead_path), before + std::chrono::hours{13 * 24});
  EXPECT_TRUE(may_be_written(living_path));
  EXPECT_TRUE(may_be_written(youngest_path));
  const auto view = FlightView::open(dead_path).value();
  EXPECT_EQ(view.liveness(), Liveness::dead);
  EXPECT_EQ(view.ledgers().at(0).allocated, 11U);
  // It is not the youngest run for having been noted last.
  const auto found = flight::find_flights(folder.path()).value();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found.front().path, youngest_path);
  EXPECT_NE(found[1].path, youngest_path);
}

TEST(Namespaces, two_processes_with_pid_1_share_a_folder_and_die_one_by_one) {
  const std::vector<std::string> unshare{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"};
  {
    std::vector<std::string> probe = unshare;
    probe.emplace_back("true");
    std::string command;
    for (auto const& word : probe) command += word + " ";
    if (std::system((command + ">/dev/null 2>&1").c_str()) != 0) GTEST_SKIP() << "not permitted here: " << command;
  }
  const TemporaryFolder folder;
  const ChildOptions options{.environment = {"HEADROOM_DIR=" + folder.path()}, .wrapper = unshare};
  Child first{"shows-itself", {}, options};
  Child second{"shows-itself", {}, options};
  const std::string first_path = first.line();
  const std::string second_path = second.line();
  EXPECT_EQ(first.line(), "1");
  EXPECT_EQ(second.line(), "1");
  EXPECT_NE(first_path, second_path);
  const auto first_view = FlightView::open(first_path).value();
  const auto second_view = FlightView::open(second_path).value();
  EXPECT_EQ(first_view.process().pid, 1U);
  EXPECT_EQ(second_view.process().pid, 1U);
  EXPECT_EQ(first_view.liveness(), Liveness::living);
  EXPECT_EQ(second_view.liveness(), Liveness::living);
  first.kill();
  static_cast<void>(first.wait());
  while (first_view.liveness() != Liveness::dead) usleep(10'000);  // the kernel ends the namespace after its maker
  EXPECT_EQ(second_view.liveness(), Liveness::living);
  EXPECT_EQ(second_view.ledgers().at(0).allocated, 11U);
}

}  // namespace
}  // namespace headroom::test
