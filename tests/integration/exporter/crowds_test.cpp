// Crowds that ask for much and take nothing, and crowds that guess passwords, beside one good client.
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "exporters.hpp"
#include "http_client.hpp"
#include "password_file.hpp"
#include "server.hpp"

namespace headroom {
namespace {

using exporter::Access;
using test::Client;
using test::get;

std::shared_ptr<exporter::Server> serve(exporter::Route metrics, exporter::Authorize authorize = {}) {
  auto listener = exporter::open_listener({"127.0.0.1", 0});
  return exporter::Server::start(std::move(*listener), {.routes = {{"/metrics", std::move(metrics)}},
                                                        .tick = [] {},
                                                        .count_error = [] {},
                                                        .authorize = std::move(authorize)})
      .value();
}

TEST(DeafClients, lose_what_they_do_not_take_when_somebody_else_asks) {
  // More than any socket takes, and more than there is room for twice.
  constexpr std::size_t kSize = std::size_t{64} << 20U;
  const auto server = serve([](auto const&) { return exporter::Reply{.body = std::string(kSize, 'x')}; });
  const auto port = server->bound().port;
  const Client deaf{port};
  ASSERT_TRUE(deaf.say("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  const auto begun = deaf.read_until([](std::string const& bytes) { return !bytes.empty(); });
  ASSERT_TRUE(begun.starts_with("HTTP/1.1 200 OK\r\n"));
  // Where the machine has no time for anybody, the good one is asked to come again.
  auto good = get(port, "/metrics");
  while (good.status == 503 || (good.status == 200 && good.body.size() < kSize)) good = get(port, "/metrics");
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(good.body.size(), kSize);
  EXPECT_LT(begun.size() + deaf.read_all().size(), kSize) << "there was no room for both";
  server->stop();
}

TEST(PasswordGuessers, hold_up_nobody_who_was_let_in_before) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_closed = false;
  const std::string hash = "$2y$04$abcdefghijklmnopqrstuu" + std::string(31, '.');
  exporter::PasswordFile users{{{"ada", hash}}, [&](std::string const& password, std::string const& setting) {
                                 std::unique_lock lock{mutex};
                                 changed.wait(lock, [&] { return !is_closed; });
                                 return password == "secret" ? setting : std::string{};
                               }};
  const auto server = serve([](auto const&) { return exporter::Reply{.body = "fine"}; },
                            [&](std::string const& words) { return users.access_of(words); });
  const auto port = server->bound().port;
  const std::string right = "Authorization: Basic YWRhOnNlY3JldA==\r\n";  // ada:secret
  const std::string wrong = "Authorization: Basic YWRhOmd1ZXNz\r\n";      // ada:guess
  ASSERT_EQ(get(port, "/metrics", right).body, "fine");
  {
    const std::lock_guard lock{mutex};
    is_closed = true;
  }
  constexpr int kGuessers = 40;
  constexpr int kChecked = exporter::PasswordFile::kMostChecks;
  std::atomic<int> refused{0}, denied{0}, others{0};
  std::vector<std::thread> guessers;
  for (int i = 0; i < kGuessers; ++i) {
    guessers.emplace_back([&] {
      const auto answer = get(port, "/metrics", wrong);
      ++(answer.status == 503 && answer.has("Retry-After: 1\r\n") ? refused : answer.status == 401 ? denied : others);
    });
  }
  while (refused + others < kGuessers - kChecked) std::this_thread::yield();
  // The others wait, one of them with its hash half made.
  EXPECT_EQ(get(port, "/metrics", right).body, "fine");
  EXPECT_EQ(get(port, "/metrics", wrong).status, 503);
  {
    const std::lock_guard lock{mutex};
    is_closed = false;
    changed.notify_all();
  }
  for (auto& guesser : guessers) guesser.join();
  EXPECT_EQ(refused, kGuessers - kChecked);
  EXPECT_EQ(denied, kChecked);
  EXPECT_EQ(others, 0);
  server->stop();
}

}  // namespace
}  // namespace headroom
