// By which names an exporter that listens on a loopback address may be asked.
#include "host_check.hpp"

#include <string>

#include <gtest/gtest.h>

namespace headroom::exporter {
namespace {

TEST(HostCheck, loopback_addresses_are_those_that_nobody_else_reaches) {
  for (const char* host : {"127.0.0.1", "127.255.0.3", "::1", "::ffff:127.0.0.1"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host :
       {"0.0.0.0", "::", "192.168.1.5", "128.0.0.1", "::2", "::ffff:10.0.0.1", "fe80::1%lo", "localhost", ""}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(HostCheck, addresses_and_localhost_are_local_names) {
  for (const char* host :
       {"", "localhost", "localhost:9478", "LocalHost", "localhost.", "exporter.localhost", "a.b.localhost:1", "127.0.0.1",
        "127.0.0.1:9478", "10.1.2.3:80", "[::1]", "[::1]:9478", "[fe80::1%eth0]:9478", "localhost:"}) {
    EXPECT_TRUE(is_local_name(host)) << host;
  }
}

TEST(HostCheck, names_that_somebody_may_own_are_not) {
  for (const char* host : {"evil.example",
                           "evil.example:9478",
                           "localhost.evil.example",
                           "notlocalhost",
                           "127.0.0.1.evil.example",
                           "127.0.0.1, evil.example",
                           "1.2.3",
                           "0x7f.1",
                           "2130706433",
                           "[evil.example]",
                           "[::1",
                           "::1",
                           "[::1]x",
                           "[::1]:x",
                           "localhost:80:80",
                           "127.0.0.1:http",
                           "localhost:123456",
                           "localhost/",
                           "user@localhost",
                           " localhost",
                           "localhost\t",
                           "[]"}) {
    EXPECT_FALSE(is_local_name(host)) << host;
  }
  EXPECT_FALSE(is_local_name(std::string(300, 'a') + ".localhost"));
}

}  // namespace
}  // namespace headroom::exporter
