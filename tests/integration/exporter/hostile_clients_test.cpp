// Clients that are slow, many, broken or malicious cost nobody else a scrape.
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/exporter.hpp>

#include "http_client.hpp"
#include "server.hpp"

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

class HostileClients : public testing::Test {
protected:
  /// The promise: whatever others do, the next good scrape takes less than a second.
  void expect_a_good_scrape() const {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(get(exporter_.port(), "/metrics").status, 200);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kPromised);
  }

  Exporter exporter_ = Exporter::start({.listen = "127.0.0.1:0", .policy = BindPolicy::fail}).value();
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
  expect_a_good_scrape();
}

TEST_F(HostileClients, sixteen_drippers) {
  std::vector<std::unique_ptr<Client>> drippers;
  for (int count = 0; count < 16; ++count) drippers.push_back(std::make_unique<Client>(port_));
  for (int round = 0; round < 4; ++round) {
    for (auto const& dripper : drippers) (void)dripper->say("G");
    std::this_thread::sleep_for(200ms);
    expect_a_good_scrape();
  }
}

TEST_F(HostileClients, a_dripper_has_five_seconds_from_accept_whatever_it_sends) {
  const auto begin = std::chrono::steady_clock::now();
  const Client dripper{port_};
  while (dripper.say("x") && !dripper.closed_within(100ms) && std::chrono::steady_clock::now() - begin < 9s) {
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, 4500ms);
  EXPECT_LT(took, 6500ms);
}

TEST_F(HostileClients, two_hundred_idle_ones) {
  std::vector<std::unique_ptr<Client>> idle;
  for (int count = 0; count < 200; ++count) idle.push_back(std::make_unique<Client>(port_));
  expect_a_good_scrape();
  std::this_thread::sleep_for(300ms);
  expect_a_good_scrape();
}

TEST_F(HostileClients, ones_that_never_read_what_they_asked_for) {
  std::vector<std::unique_ptr<Client>> deaf;
  for (int count = 0; count < 80; ++count) {
    deaf.push_back(std::make_unique<Client>(port_));
    std::string requests;
    for (int request = 0; request < 40; ++request) requests += "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    (void)deaf.back()->say(requests);
  }
  expect_a_good_scrape();
}

TEST_F(HostileClients, do_not_delay_stop) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int count = 0; count < 30; ++count) {
    clients.push_back(std::make_unique<Client>(port_));
    if (count % 2 == 0) (void)clients.back()->say("GET /");
  }
  const auto begin = std::chrono::steady_clock::now();
  exporter_.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  EXPECT_FALSE(Client{port_}.connected());
}

TEST(ThrowingRoute, costs_a_500_and_is_counted) {
  std::atomic<int> errors{0};
  auto listener = exporter::open_listener({"127.0.0.1", 0});
  ASSERT_TRUE(listener);
  auto server = exporter::Server::start(std::move(*listener),
                                        {.routes = {{"/", []() -> exporter::Reply { throw std::runtime_error("no"); }},
                                                    {"/odd", []() -> exporter::Reply { throw 5; }},
                                                    {"/good", [] { return exporter::Reply{.body = "fine"}; }}},
                                         .tick = [] { throw std::runtime_error("nor this"); },
                                         .count_error = [&errors] { ++errors; }})
                    .value();
  const auto port = server->bound().port;
  std::this_thread::sleep_for(50ms);
  const int after_tick = errors;
  EXPECT_GE(after_tick, 1);
  EXPECT_EQ(get(port, "/").status, 500);
  EXPECT_EQ(get(port, "/odd").status, 500);
  EXPECT_GE(errors, after_tick + 2);
  EXPECT_EQ(get(port, "/good").body, "fine");
  server->stop();
}

}  // namespace
}  // namespace headroom
