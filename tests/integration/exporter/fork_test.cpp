// Fork and exit with an exporter at work: nothing hangs, and no port stays taken.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <headroom/exporter.hpp>

#include "exit_in_child.hpp"
#include "exporters.hpp"
#include "http_client.hpp"

namespace headroom {
namespace {

using namespace std::chrono_literals;
using flight::ExporterState;
using test::Client;
using test::exit_status_of;
using test::get;
using test::HeldPort;
using test::loopback;
using test::start_anywhere;
using test::start_on;
using test::wait_for;

TEST(Fork, the_parent_serves_and_the_child_does_not) {
  auto exporter = start_anywhere();
  const auto port = exporter.port();
  const Client open_connection{port};  // the child must not keep it either
  std::this_thread::sleep_for(50ms);
  const pid_t child = fork();
  if (child == 0) {
    const bool says_so = exporter.state() == ExporterState::stopped && exporter.port() == 0 && !exporter.reason().empty();
    exporter.stop();
    {
      const auto gone = std::move(exporter);
    }
    _exit(says_so ? 0 : 1);
  }
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(get(port, "/metrics").status, 200);
}

TEST(Fork, a_child_that_lives_on_does_not_hold_the_port) {
  const HeldPort held;
  const auto port = held.number();
  auto exporter = start_on(port);
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  exporter.stop();
  EXPECT_FALSE(Client{port}.connected());
  auto again = Exporter::start({.listen = loopback(port), .policy = BindPolicy::fail});
  EXPECT_TRUE(again) << again.error().message;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(Fork, a_child_may_start_one_of_its_own_and_exit_normally) {
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
  GTEST_SKIP() << "ThreadSanitizer of g++ ends a forked child that starts a thread (clang's does not with die_after_fork=0)";
#endif
  auto exporter = start_anywhere();
  const pid_t child = fork();
  if (child == 0) {
    auto own = Exporter::start({.listen = "127.0.0.1:0", .policy = BindPolicy::fail});
    const bool serves = own && get(own->port(), "/-/healthy").status == 200;
    test::is_forked_child = true;
    std::exit(serves ? 0 : 1);  // with both objects alive
  }
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(get(exporter.port(), "/-/healthy").status, 200);
}

TEST(Fork, while_scrapes_run) {
  auto exporter = start_anywhere();
  std::atomic<bool> done{false};
  std::thread scraper{[&] {
    while (!done) (void)get(exporter.port(), "/metrics");
  }};
  for (int round = 0; round < 30; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      exporter.stop();
      _exit(0);
    }
    EXPECT_EQ(wait_for(child), 0);
  }
  done = true;
  scraper.join();
}

TEST(Exit, in_any_order) {
  EXPECT_EQ(exit_status_of([] { static Exporter const held = start_anywhere(); }), test::kOrdinaryExit);
  EXPECT_EQ(exit_status_of([] {
              static Exporter* never_destroyed = nullptr;
              never_destroyed = std::make_unique<Exporter>(start_anywhere()).release();
              (void)never_destroyed->port();
            }),
            test::kOrdinaryExit);
  EXPECT_EQ(exit_status_of([] {
              static std::optional<Exporter> held;
              held.emplace(start_anywhere());
              static const Client idle{held->port()};
              (void)idle.say("GET /");
            }),
            test::kOrdinaryExit);
  EXPECT_EQ(exit_status_of([] {
              auto held = start_anywhere();
              for (int count = 0; count < 20; ++count) (void)get(held.port(), "/metrics");
              std::thread{[port = held.port()] {
                while (true) (void)get(port, "/metrics");
              }}.detach();
              std::this_thread::sleep_for(20ms);
              std::exit(test::kOrdinaryExit);  // in the middle of scrapes
            }),
            test::kOrdinaryExit);
}

}  // namespace
}  // namespace headroom
