// Where a request ends: what a proxy and a parser may read in two ways is refused, and ends the connection.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <headroom/exporter.hpp>

#include "exporters.hpp"
#include "http_client.hpp"

namespace headroom {
namespace {

class Framing : public testing::Test {
protected:
  /// What comes back for a request with these headers, and another request in its body.
  [[nodiscard]] std::string answers_to(std::string const& method, std::string headers) const {
    const std::string body = "GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for (auto at = headers.find('N'); at != std::string::npos; at = headers.find('N')) {
      headers.replace(at, 1, std::to_string(body.size()));
    }
    const test::Client client{exporter_.port()};
    EXPECT_TRUE(client.say(method + " /-/healthy HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n" + body));
    return client.read_all();
  }
  static int count(std::string const& text, std::string const& part) {
    int found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  }

  Exporter exporter_ = test::start_anywhere();
};

TEST_F(Framing, a_body_is_never_answered_as_a_request) {
  for (std::string const headers :
       {"Content-Length: 0\r\nContent-Length: N\r\n", "Content-Length: N\r\nContent-Length: 0\r\n", "Content-Length: N\n",
        "Content-Length : N\r\n", "X: y\r\n Content-Length: N\r\n", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: N\r\n", "Content-Length: +N\r\n"}) {
    const auto answers = answers_to("GET", headers);
    EXPECT_TRUE(answers.starts_with("HTTP/1.1 400 ")) << headers << answers;
    EXPECT_EQ(count(answers, "HTTP/1.1 "), 1) << headers << answers;
  }
}

TEST_F(Framing, a_request_with_a_body_is_the_last_one) {
  for (std::string const headers : {"Content-Length: N\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length: 0N\r\n"}) {
    const auto answers = answers_to("GET", headers);
    EXPECT_TRUE(answers.starts_with("HTTP/1.1 200 ")) << headers << answers;
    EXPECT_EQ(count(answers, "HTTP/1.1 "), 1) << headers << answers;
    EXPECT_EQ(count(answers, "Connection: close\r\n"), 1) << headers;
    EXPECT_EQ(count(answers_to("POST", headers), "HTTP/1.1 "), 1) << headers;
  }
  EXPECT_EQ(count(answers_to("GET", "Content-Length: 0\r\n"), "HTTP/1.1 200 "), 2) << "that is none";
}

TEST_F(Framing, a_target_may_name_the_host) {
  const auto ask = [&](std::string const& target) {
    return test::ask(exporter_.port(), "GET " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  };
  EXPECT_EQ(ask("http://localhost:9478/-/healthy").body, "ok\n");
  EXPECT_EQ(ask("http://localhost/metrics?x=1").status, 200);
  EXPECT_EQ(ask("http://localhost").status, 200);
  EXPECT_EQ(ask("http://localhost/nothing").status, 404);
  EXPECT_EQ(ask("http:///metrics").status, 400);
  EXPECT_EQ(ask("ftp://localhost/metrics").status, 404);
}

}  // namespace
}  // namespace headroom
