// Addresses to listen on, as people write them.
#include "listen_address.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::exporter {
namespace {

using testing::HasSubstr;

TEST(ListenAddress, reads_every_documented_form) {
  EXPECT_EQ(parse_listen_address("127.0.0.1:9478").value(), (ListenAddress{"127.0.0.1", 9478}));
  EXPECT_EQ(parse_listen_address("localhost:1").value(), (ListenAddress{"localhost", 1}));
  EXPECT_EQ(parse_listen_address("[::1]:65535").value(), (ListenAddress{"::1", 65535}));
  EXPECT_EQ(parse_listen_address(":9478").value(), (ListenAddress{"", 9478}));
  EXPECT_EQ(parse_listen_address("9478").value(), (ListenAddress{"127.0.0.1", 9478}));
  EXPECT_EQ(parse_listen_address("0").value(), (ListenAddress{"127.0.0.1", 0}));
  EXPECT_EQ(parse_listen_address(" 127.0.0.1:0\n").value(), (ListenAddress{"127.0.0.1", 0}));
}

TEST(ListenAddress, prints_what_it_reads) {
  for (const char* text : {"127.0.0.1:9478", "[::1]:80", ":9478", "localhost:0"}) {
    EXPECT_EQ(parse_listen_address(text).value().to_string(), text);
  }
}

class RefusedAddress : public testing::TestWithParam<const char*> {};

TEST_P(RefusedAddress, names_the_value_and_what_was_expected) {
  const auto address = parse_listen_address(GetParam());
  ASSERT_FALSE(address);
  EXPECT_EQ(address.error().kind, ErrorKind::parse);
  EXPECT_THAT(address.error().message, HasSubstr("'" + std::string{GetParam()} + "'"));
  EXPECT_THAT(address.error().message, HasSubstr("expected HOST:PORT, [IPv6]:PORT, :PORT or PORT"));
}

INSTANTIATE_TEST_SUITE_P(Texts, RefusedAddress,
                         testing::Values("", "localhost", "127.0.0.1", "127.0.0.1:", ":", "65536", "99999999999999999999",
                                         "127.0.0.1:-1", "127.0.0.1:80x", "127.0.0.1:+80", "127.0.0.1:0x50", "::1:9478", "[::1]",
                                         "[::1]9478", "[::1:9478", "[127.0.0.1]:80", "[]:80", "a b:80", "http://127.0.0.1:80",
                                         "1.2.3.4/8:80"));

TEST(ListenAddress, shows_no_control_characters_and_no_novel) {
  const auto address = parse_listen_address("\x1B[31m" + std::string(5000, 'x'));
  ASSERT_FALSE(address);
  EXPECT_EQ(address.error().message.find('\x1B'), std::string::npos);
  EXPECT_LT(address.error().message.size(), 400U);
}

}  // namespace
}  // namespace headroom::exporter
