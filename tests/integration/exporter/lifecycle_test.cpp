// Start and stop, and ports that are not to be had.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/exporter.hpp>
#include <headroom/flight_reader.hpp>

#include "exporters.hpp"
#include "http_client.hpp"
#include "within.hpp"

namespace headroom {
namespace {

using namespace std::chrono_literals;
using flight::ExporterState;
using test::Client;
using test::get;
using test::HeldPort;
using test::loopback;
using test::start_anywhere;
using testing::HasSubstr;

TEST(Lifecycle, starts_and_stops_fifty_times_on_one_port) {
  const HeldPort held;
  const auto port = held.number();
  test::expect_within(5s, [&] {
    return test::time_of([&] {
      for (int round = 0; round < 50; ++round) {
        auto exporter = Exporter::start({.listen = loopback(port), .policy = BindPolicy::fail});
        ASSERT_TRUE(exporter) << exporter.error().message;
        EXPECT_EQ(get(port, "/-/healthy").status, 200);  // leaves a connection in TIME_WAIT
      }
    });
  });
}

TEST(Lifecycle, a_stopped_one_says_so_and_may_be_stopped_again) {
  auto exporter = start_anywhere();
  exporter.stop();
  exporter.stop();
  EXPECT_EQ(exporter.state(), ExporterState::stopped);
  EXPECT_EQ(exporter.port(), 0);
  EXPECT_EQ(exporter.address(), "");
  EXPECT_EQ(exporter.url(), "");
  EXPECT_NE(exporter.reason(), "");
  auto moved = std::move(exporter);
  EXPECT_EQ(moved.state(), ExporterState::stopped);
}

TEST(Lifecycle, two_at_a_time_do_not_mind_each_other) {
  auto one = start_anywhere();
  auto other = start_anywhere();
  EXPECT_NE(one.port(), other.port());
  one.stop();
  EXPECT_EQ(get(other.port(), "/metrics").status, 200);
}

TEST(TakenPort, with_warn_the_program_goes_on_and_can_ask_why) {
  auto first = start_anywhere();
  testing::internal::CaptureStderr();
  auto second = Exporter::start({.listen = loopback(first.port())});
  const auto said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->state(), ExporterState::port_taken);
  EXPECT_EQ(second->port(), 0);
  EXPECT_THAT(second->reason(), HasSubstr("'" + loopback(first.port()) + "'"));
  EXPECT_THAT(second->reason(), HasSubstr("Address already in use"));
  EXPECT_THAT(said, HasSubstr(second->reason()));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
  EXPECT_EQ(get(first.port(), "/-/healthy").status, 200);
}

TEST(TakenPort, with_fail_it_is_an_error) {
  auto first = start_anywhere();
  const auto second = Exporter::start({.listen = loopback(first.port()), .policy = BindPolicy::fail});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::io);
  EXPECT_THAT(second.error().message, HasSubstr(loopback(first.port())));
}

TEST(TakenPort, with_next_eight_programs_find_eight_ports) {
  std::vector<Exporter> exporters;
  exporters.push_back(start_anywhere());
  testing::internal::CaptureStderr();
  for (int count = 0; count < 7; ++count) {
    auto next = Exporter::start({.listen = loopback(exporters.front().port()), .policy = BindPolicy::next});
    ASSERT_TRUE(next);
    if (next->state() != ExporterState::serving) GTEST_SKIP() << "no free port near " << exporters.front().port();
    EXPECT_GT(next->port(), exporters.front().port());
    exporters.push_back(std::move(*next));
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("is taken, serving on '" + exporters.back().address() + "'"));
  for (auto const& exporter : exporters) EXPECT_EQ(get(exporter.port(), "/-/healthy").status, 200);
}

TEST(TakenPort, with_next_and_nothing_free_the_program_goes_on) {
  auto first = start_anywhere();
  testing::internal::CaptureStderr();
  auto second = Exporter::start({.listen = loopback(first.port()), .policy = BindPolicy::next, .ports_to_try = 1});
  testing::internal::GetCapturedStderr();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->state(), ExporterState::port_taken);
}

TEST(BadAddress, with_warn_the_program_goes_on) {
  for (const char* text : {"nonsense", "192.0.2.1:80", "no-such-host.invalid:80", "127.0.0.1:99999"}) {
    testing::internal::CaptureStderr();
    auto exporter = Exporter::start({.listen = text});
    const auto said = testing::internal::GetCapturedStderr();
    ASSERT_TRUE(exporter) << text;
    EXPECT_EQ(exporter->state(), ExporterState::failed) << text;
    EXPECT_THAT(exporter->reason(), HasSubstr(text));
    EXPECT_THAT(said, HasSubstr(text));
  }
}

TEST(BadAddress, with_fail_it_is_an_error) {
  EXPECT_EQ(Exporter::start({.listen = "nonsense", .policy = BindPolicy::fail}).error().kind, ErrorKind::parse);
  EXPECT_EQ(Exporter::start({.listen = "192.0.2.1:80", .policy = BindPolicy::fail}).error().kind, ErrorKind::io);
}

TEST(Environment, nothing_starts_without_the_variable) {
  for (const char* value : {"", "off"}) {
    setenv("HEADROOM_EXPORTER", value, 1);
    EXPECT_FALSE(Exporter::start_from_environment().value().has_value());
  }
  unsetenv("HEADROOM_EXPORTER");
  EXPECT_FALSE(Exporter::start_from_environment().value().has_value());
}

TEST(Environment, the_variable_says_where) {
  setenv("HEADROOM_EXPORTER", "0", 1);
  auto exporter = Exporter::start_from_environment().value();
  unsetenv("HEADROOM_EXPORTER");
  ASSERT_TRUE(exporter);
  EXPECT_EQ(get(exporter->port(), "/-/healthy").status, 200);
}

TEST(AllAddresses, are_ipv6_and_ipv4_on_one_port) {
  auto exporter = Exporter::start({.listen = ":0", .policy = BindPolicy::fail}).value();
  EXPECT_EQ(get(exporter.port(), "/-/healthy").status, 200);
  EXPECT_EQ(exporter.url(), "http://" + loopback(exporter.port()));
  if (!Client{exporter.port(), true}.connected()) GTEST_SKIP() << "no IPv6 here";
  EXPECT_EQ(get(exporter.port(), "/-/healthy", "", true).status, 200);
  EXPECT_EQ(Exporter::start({.listen = "127.0.0.1:" + std::to_string(exporter.port()), .policy = BindPolicy::fail}).has_value(),
            false);
}

TEST(Ipv6, loopback_alone) {
  auto exporter = Exporter::start({.listen = "[::1]:0", .policy = BindPolicy::fail});
  if (!exporter) GTEST_SKIP() << exporter.error().message;
  EXPECT_EQ(get(exporter->port(), "/-/healthy", "", true).status, 200);
  EXPECT_FALSE(Client{exporter->port()}.connected());
  EXPECT_EQ(exporter->address(), "[::1]:" + std::to_string(exporter->port()));
}

TEST(FlightHeader, shows_state_and_port) {
  auto exporter = start_anywhere();
  const auto view = flight::FlightView::of_this_process();
  ASSERT_TRUE(view);
  EXPECT_EQ(view->process().exporter_state, ExporterState::serving);
  EXPECT_EQ(view->process().exporter_port, exporter.port());
  exporter.stop();
  EXPECT_EQ(view->process().exporter_state, ExporterState::stopped);
  EXPECT_EQ(view->process().exporter_port, 0);
}

}  // namespace
}  // namespace headroom
