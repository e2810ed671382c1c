// What the exporter of a process answers, over a real socket.
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <headroom/exporter.hpp>

#include "exporters.hpp"
#include "http_client.hpp"

namespace headroom {
namespace {

using test::ask;
using test::get;
using testing::HasSubstr;
using testing::StartsWith;

class Routes : public testing::Test {
protected:
  Exporter exporter_ = test::start_anywhere();
  std::uint16_t port_ = exporter_.port();
};

std::string gunzip(std::string const& packed) {
  std::string text(1 << 20, '\0');
  z_stream stream{};
  inflateInit2(&stream, 15 + 16);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  const int result = inflate(&stream, Z_FINISH);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return result == Z_STREAM_END ? text : std::string{};
}

TEST_F(Routes, says_where_it_serves) {
  EXPECT_EQ(exporter_.state(), flight::ExporterState::serving);
  EXPECT_EQ(exporter_.reason(), "");
  EXPECT_NE(port_, 0);
  EXPECT_EQ(exporter_.address(), "127.0.0.1:" + std::to_string(port_));
  EXPECT_EQ(exporter_.url(), "http://127.0.0.1:" + std::to_string(port_));
}

TEST_F(Routes, metrics_have_the_content_type_that_prometheus_wants) {
  const auto response = get(port_, "/metrics");
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.has("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(response.body, HasSubstr("headroom_exporter_errors_total{"));
  EXPECT_THAT(response.body, HasSubstr("headroom_exporter_scrape_duration_seconds_count{"));
  EXPECT_THAT(response.body, HasSubstr("headroom_build_info{"));
}

TEST_F(Routes, metrics_do_not_mind_any_accept_header_or_query) {
  for (const char* accept :
       {"", "Accept: */*\r\n", "Accept: text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n",
        "Accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.4\r\n"}) {
    const auto response = get(port_, "/metrics?x=1", accept);
    EXPECT_EQ(response.status, 200) << accept;
    EXPECT_TRUE(response.has("version=0.0.4")) << accept;
  }
}

TEST_F(Routes, healthy_and_the_page_for_people) {
  EXPECT_EQ(get(port_, "/-/healthy").status, 200);
  const auto page = get(port_, "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.body, StartsWith("headroom "));
  EXPECT_THAT(page.body, HasSubstr("/metrics"));
  EXPECT_THAT(page.body, HasSubstr("/-/healthy"));
}

TEST_F(Routes, head_is_get_without_the_body) {
  const auto response = get(port_, "/-/healthy", "", false, "HEAD");
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.has("Content-Length: 3\r\n"));
  EXPECT_EQ(response.body, "");
  EXPECT_EQ(get(port_, "/metrics", "", false, "HEAD").status, 200);
  EXPECT_EQ(get(port_, "/metrics", "Accept-Encoding: gzip\r\n", false, "HEAD").body, "");
  EXPECT_EQ(get(port_, "/nothing", "", false, "HEAD").status, 404);
}

TEST_F(Routes, gzip_is_given_to_who_asks_for_it) {
  const auto plain = get(port_, "/metrics");
  EXPECT_FALSE(plain.has("Content-Encoding"));
  for (const char* header :
       {"Accept-Encoding: gzip\r\n", "Accept-Encoding: gzip, deflate, br\r\n", "accept-encoding: br;q=1, gzip;q=0.5\r\n"}) {
    const auto packed = get(port_, "/metrics", header);
    EXPECT_TRUE(packed.has("Content-Encoding: gzip\r\n")) << header;
    EXPECT_LT(packed.body.size(), plain.body.size());
    EXPECT_THAT(gunzip(packed.body), HasSubstr("headroom_exporter_errors_total{")) << header;
  }
  for (const char* header : {"Accept-Encoding: br\r\n", "Accept-Encoding: gzip;q=0\r\n", "Accept-Encoding: identity\r\n"}) {
    EXPECT_FALSE(get(port_, "/metrics", header).has("Content-Encoding")) << header;
  }
}

TEST_F(Routes, unknown_paths_are_404_and_other_methods_405) {
  EXPECT_EQ(get(port_, "/metrics/more").status, 404);
  EXPECT_EQ(get(port_, "/../etc/passwd").status, 404);
  EXPECT_EQ(get(port_, "/%00").status, 404);
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    const auto response = get(port_, "/metrics", "", false, method);
    EXPECT_EQ(response.status, 405) << method;
    EXPECT_TRUE(response.has("Allow: GET, HEAD\r\n")) << method;
  }
}

TEST_F(Routes, a_body_is_not_taken_for_the_next_request) {
  const std::string body = "GET /metrics HTTP/1.1\r\n\r\n";
  const auto response =
      ask(port_, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_EQ(response.status, 405);
  EXPECT_TRUE(response.has("Connection: close\r\n"));
  EXPECT_THAT(response.body, testing::Not(HasSubstr("HTTP/1.1 200")));
}

TEST_F(Routes, one_connection_takes_several_requests_also_at_once) {
  const std::string request = "GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n";
  const test::Client client{port_};
  ASSERT_TRUE(client.say(request + request));
  constexpr std::string_view kBody = "\r\n\r\nok\n";
  const auto two = client.read_until([&](std::string const& bytes) {
    const auto first = bytes.find(kBody);
    return first != std::string::npos && bytes.find(kBody, first + 1) != std::string::npos;
  });
  EXPECT_EQ(std::string_view{two}.find("200 OK"), 9U);
  EXPECT_NE(two.find("200 OK", 20), std::string::npos);
  ASSERT_TRUE(client.say("GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  EXPECT_THAT(client.read_all(), HasSubstr("200 OK"));
}

TEST_F(Routes, one_connection_takes_a_hundred_requests_and_no_more) {
  const test::Client client{port_};
  std::string requests;
  for (int count = 0; count < 150; ++count) requests += "GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_TRUE(client.say(requests));
  const auto text = client.read_all();
  std::size_t answers = 0;
  for (auto found = text.find("HTTP/1.1 200"); found != std::string::npos; found = text.find("HTTP/1.1 200", found + 1))
    ++answers;
  EXPECT_EQ(answers, 100U);
}

TEST_F(Routes, old_clients_are_served_too) {
  const auto response = ask(port_, "GET /metrics HTTP/1.0\r\n\r\n");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(ask(port_, "GET /-/healthy HTTP/1.1\nHost: x\nConnection: close\n\n").status,
            400);  // bare newlines are refused, at once
}

TEST_F(Routes, sigpipe_stays_as_the_program_set_it) {
  struct sigaction action{};
  ASSERT_EQ(sigaction(SIGPIPE, nullptr, &action), 0);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

TEST_F(Routes, its_threads_block_the_signals_of_the_program) {
  ASSERT_EQ(get(port_, "/-/healthy").status, 200);  // its thread has begun, and has its name
  int found = 0;
  DIR* const tasks = opendir("/proc/self/task");
  while (const dirent* const task = readdir(tasks)) {
    const std::string folder = std::string{"/proc/self/task/"} + task->d_name;
    std::string name;
    std::getline(std::ifstream{folder + "/comm"} >> std::ws, name);
    if (!name.starts_with("headroom-")) continue;
    std::stringstream status;
    status << std::ifstream{folder + "/status"}.rdbuf();
    const auto text = status.str();
    if (text.find("SigBlk:") == std::string::npos) continue;  // a client's thread that ended meanwhile
    ++found;
    const auto blocked = std::stoull(text.substr(text.find("SigBlk:") + 7), nullptr, 16);
    for (const int signal : {SIGTERM, SIGINT, SIGPIPE, SIGCHLD, SIGUSR1, SIGALRM}) {
      EXPECT_TRUE((blocked >> (signal - 1)) & 1U) << signal;
    }
    EXPECT_FALSE((blocked >> (SIGSEGV - 1)) & 1U);
  }
  closedir(tasks);
  EXPECT_GE(found, 1);
}

}  // namespace
}  // namespace headroom
