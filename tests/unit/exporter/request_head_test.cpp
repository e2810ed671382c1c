// Heads that a proxy and a parser may read in two ways, and those that they may not.
#include "request_head.hpp"

#include <string>

#include <gtest/gtest.h>

namespace headroom::exporter {
namespace {

const std::string kGet = "GET /metrics HTTP/1.1\r\nHost: node\r\n";

std::string text_of(std::string const& head) {
  const auto checked = check_head(head);
  return checked ? checked->text : "refused";
}

TEST(RequestHeads, that_say_one_thing_only_are_left_as_they_are) {
  for (auto const& head : {kGet + "\r\n", kGet + "Accept: */*\r\nX-Empty:\r\nX-Odd!#$%&'*+-.^_`|~: a:b c \r\n\r\n",
                           kGet + "Content-Length: 0\r\n\r\n", std::string{"GET /metrics HTTP/1.0\r\n\r\n"}}) {
    EXPECT_EQ(text_of(head), head);
    EXPECT_FALSE(check_head(head)->has_body) << head;
  }
}

TEST(RequestHeads, say_whether_a_body_follows) {
  for (char const* const header : {"Content-Length: 1", "content-length:\t27 ", "CONTENT-LENGTH: 00000000000000000000010",
                                   "Transfer-Encoding: chunked", "transfer-encoding: identity"}) {
    const auto checked = check_head(kGet + header + "\r\n\r\n");
    ASSERT_TRUE(checked) << header;
    EXPECT_TRUE(checked->has_body) << header;
  }
  EXPECT_FALSE(check_head(kGet + "Content-Length: 000\r\n\r\n")->has_body);
}

TEST(RequestHeads, of_two_meanings_are_refused) {
  for (std::string const headers : {"Content-Length: 0\r\nContent-Length: 27\r\n",
                                    "Content-Length: 27\r\nContent-Length: 27\r\n",
                                    "Content-Length: 27\n",
                                    "Content-Length : 27\r\n",
                                    " Content-Length: 27\r\n",
                                    "X: y\r\n\tz\r\n",
                                    "Content-Length: 2, 7\r\n",
                                    "Content-Length: +7\r\n",
                                    "Content-Length: -7\r\n",
                                    "Content-Length: 0x7\r\n",
                                    "Content-Length:\r\n",
                                    "Content-Length: 7 7\r\n",
                                    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                                    "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
                                    "no colon\r\n",
                                    ": nothing\r\n",
                                    "X\r: y\r\n",
                                    "X: y\rz\r\n",
                                    "Cont\xC3\xA4nt: y\r\n",
                                    "X\tY: z\r\n"}) {
    EXPECT_EQ(text_of(kGet + headers + "\r\n"), "refused") << headers;
  }
  EXPECT_EQ(text_of(kGet + std::string{"X: a\0b\r\n", 8} + "\r\n"), "refused");
  EXPECT_EQ(text_of("GET / HTTP/1.1\nHost: x\n\n"), "refused");
  EXPECT_EQ(text_of(kGet + "\n"), "refused");
}

TEST(RequestHeads, have_no_scheme_and_host_for_the_parser) {
  const auto line = [](std::string const& target) { return text_of("GET " + target + " HTTP/1.1\r\n\r\n"); };
  EXPECT_EQ(line("http://node:9478/metrics?a=http://b/"), "GET /metrics?a=http://b/ HTTP/1.1\r\n\r\n");
  EXPECT_EQ(line("HTTPS://[::1]:9478/-/healthy"), "GET /-/healthy HTTP/1.1\r\n\r\n");
  EXPECT_EQ(line("http://node"), "GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(line("http://node?x=1"), "GET /?x=1 HTTP/1.1\r\n\r\n");
  EXPECT_EQ(line("http:///metrics"), "refused");
  EXPECT_EQ(line("http://"), "refused");
  EXPECT_EQ(line("/http://node/"), "GET /http://node/ HTTP/1.1\r\n\r\n");
  EXPECT_EQ(line("*"), "GET * HTTP/1.1\r\n\r\n");
}

TEST(RequestHeads, lose_their_ranges) {
  EXPECT_EQ(text_of(kGet + "Range: bytes=0-0\r\nrAnGe: x\r\nX-Range: y\r\n\r\n"), kGet + "X-Range: y\r\n\r\n");
}

}  // namespace
}  // namespace headroom::exporter
