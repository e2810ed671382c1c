// Clients that are slow, many, broken or malicious cost nobody else a scrape.
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/exporter.hpp>

#include "exporters.hpp"
#include "http_client.hpp"
#include "server.hpp"
#include "within.hpp"

namespace headroom {
namespace {

using namespace std::chrono_literals;
using test::ask;
using test::Client;
using test::get;

#if defined(__SANITIZE_THREAD__)
constexpr auto kPromised = 5s;  // everything is some ten times slower
#else
constexpr auto kPromised = 1s;
#endif

using Clients = std::vector<std::unique_ptr<Client>>;

class HostileClients : public testing::Test {
protected:
  /// The promise: whatever others do, the next good scrape takes less than a second. `crowd` makes the others, anew for each attempt,
  /// and returns those that stay.
  template <class Crowd>
  void expect_a_good_scrape_beside(Crowd&& crowd) const {
    test::expect_within(kPromised, [&] {
      const Clients others = crowd();
      return test::time_of([&] { EXPECT_EQ(get(port_, "/metrics").status, 200); });
    });
  }
  /// After clients that are gone, or were answered.
  void expect_a_good_scrape() const {
    expect_a_good_scrape_beside([] { return Clients{}; });
  }
  [[nodiscard]] Clients connect(int count) const {
    Clients clients;
    for (int i = 0; i < count; ++i) clients.push_back(std::make_unique<Client>(port_));
    return clients;
  }

  Exporter exporter_ = test::start_anywhere();
  std::uint16_t port_ = exporter_.port();
};

TEST_F(HostileClients, garbage_is_400_or_nothing) {
  for (std::string const garbage :
       {"\r\n\r\n", "GARBAGE\r\n\r\n", "GET\r\n\r\n", "GET /metrics\r\n\r\n", "GET /metrics HTTP/9.9\r\n\r\n",
        "get /metrics HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\n\n", "GET /metrics HTTP/1.1\r\nno colon\r\n\r\n"}) {
    const auto response = ask(port_, garbage);
    EXPECT_NE(response.status, 500) << garbage;
    EXPECT_NE(response.status, 0) << garbage;
  }
  expect_a_good_scrape();
}

TEST_F(HostileClients, a_long_line_is_refused) {
  EXPECT_EQ(ask(port_, "GET /" + std::string(9000, 'x') + " HTTP/1.1\r\n\r\n").status, 414);
  expect_a_good_scrape();
}

TEST_F(HostileClients, a_megabyte_of_header_is_431) {
  const Client client{port_};
  std::string header = "GET /metrics HTTP/1.1\r\n";
  for (int line = 0; line < 1000; ++line) header += "X-Filler: " + std::string(1000, 'x') + "\r\n";
  (void)client.say(header);
  EXPECT_EQ(test::parse_response(client.read_all()).status, 431);
  expect_a_good_scrape();
}

TEST_F(HostileClients, a_range_that_would_overflow_a_recursive_matcher_is_ignored) {
  std::string ranges = "bytes=0-0";
  while (ranges.size() < 8000) ranges += ",0-0";
  const auto response = get(port_, "/metrics", "Range: " + ranges + "\r\nrAnGe: bytes=5-1\r\n");
  EXPECT_EQ(response.status, 200);
  expect_a_good_scrape();
}

TEST_F(HostileClients, early_closing_and_resetting_ones) {
  expect_a_good_scrape_beside([&] {
    for (int count = 0; count < 50; ++count) {
      const Client client{port_};
      (void)client.say("GET /metri");
      if (count % 2 == 0) client.reset_on_close();
    }
    for (int count = 0; count < 20; ++count) {
      const Client client{port_};
      (void)client.say("GET /metrics HTTP/1.1\r\n\r\n");
      client.reset_on_close();  // before the answer was read
    }
    return Clients{};
  });
}

TEST_F(HostileClients, sixteen_drippers) {
  for (int rounds = 1; rounds <= 4; ++rounds) {
    expect_a_good_scrape_beside([&] {
      Clients drippers = connect(16);
      for (int round = 0; round < rounds; ++round) {
        for (auto const& dripper : drippers) (void)dripper->say("G");
        std::this_thread::sleep_for(200ms);
      }
      return drippers;
    });
  }
}

TEST_F(HostileClients, a_dripper_has_five_seconds_from_accept_whatever_it_sends) {
  const auto begin = std::chrono::steady_clock::now();
  const Client dripper{port_};
  // One whose time began again with each byte would go on for ever.
  while (dripper.say("x") && !dripper.closed_within(100ms)) {
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 4500ms);
}

TEST_F(HostileClients, two_hundred_idle_ones) {
  for (auto const pause : {0ms, 300ms}) {
    expect_a_good_scrape_beside([&] {
      Clients idle = connect(200);
      std::this_thread::sleep_for(pause);
      return idle;
    });
  }
}

TEST_F(HostileClients, ones_that_never_read_what_they_asked_for) {
  expect_a_good_scrape_beside([&] {
    Clients deaf = connect(80);
    std::string requests;
    for (int request = 0; request < 40; ++request) requests += "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (auto const& client : deaf) (void)client->say(requests);
    return deaf;
  });
}

TEST_F(HostileClients, do_not_delay_stop) {
  test::expect_within(1s, [&] {
    const test::HeldPort held;
    port_ = held.number();
    exporter_ = test::start_on(port_);
    const Clients clients = connect(30);
    for (std::size_t count = 0; count < clients.size(); count += 2) (void)clients[count]->say("GET /");
    const auto took = test::time_of([&] { exporter_.stop(); });
    EXPECT_EQ(exporter_.port(), 0);
    EXPECT_FALSE(Client{port_}.connected());
    return took;
  });
}

TEST(ThrowingRoute, costs_a_500_and_is_counted) {
  std::atomic<int> errors{0};
  auto listener = exporter::open_listener({"127.0.0.1", 0});
  ASSERT_TRUE(listener);
  auto server = exporter::Server::start(std::move(*listener),
                                        {.routes = {{"/", [](auto const&) -> exporter::Reply { throw std::runtime_error("no"); }},
                                                    {"/odd", [](auto const&) -> exporter::Reply { throw 5; }},
                                                    {"/good", [](auto const&) { return exporter::Reply{.body = "fine"}; }}},
                                         .tick = [] { throw std::runtime_error("nor this"); },
                                         .count_error = [&errors] { ++errors; }})
                    .value();
  const auto port = server->bound().port;
  while (errors == 0) std::this_thread::sleep_for(1ms);  // the first tick
  const int after_tick = errors;
  EXPECT_EQ(get(port, "/").status, 500);
  EXPECT_EQ(get(port, "/odd").status, 500);
  EXPECT_GE(errors, after_tick + 2);
  EXPECT_EQ(get(port, "/good").body, "fine");
  server->stop();
}

}  // namespace
}  // namespace headroom
