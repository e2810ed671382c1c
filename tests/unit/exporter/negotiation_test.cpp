// Accept and Accept-Encoding, as clients really send them, and as RFC 9110 allows them.
#include "negotiation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::exporter {
namespace {

constexpr Offer kText{.type = "text/plain", .version = "0.0.4"};
constexpr Offer kOpen{.type = "application/openmetrics-text", .version = "1.0.0"};
constexpr Offer kHtml{.type = "text/html", .version = ""};
constexpr Offer kPlain{.type = "text/plain", .version = ""};

bool wants_open_metrics(std::string_view accept) { return prefers(accept, kOpen, kText); }
bool wants_html(std::string_view accept) { return prefers(accept, kHtml, kPlain); }

TEST(Preferences, have_names_parameters_and_weights) {
  const auto found = parse_preferences("Text/HTML;Level=1;q=0.25 , */*;q=0,gzip");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].name, "text/html");
  EXPECT_THAT(found[0].parameters, testing::ElementsAre(std::pair<std::string, std::string>{"level", "1"}));
  EXPECT_EQ(found[0].weight, 250);
  EXPECT_EQ(found[1].name, "*/*");
  EXPECT_EQ(found[1].weight, 0);
  EXPECT_EQ(found[2].weight, 1000);
}

TEST(Preferences, read_quoted_strings_as_one) {
  const auto found = parse_preferences(R"(a/b;x="1,2;q=0\"3";q=0.5, c/d)");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_THAT(found[0].parameters, testing::ElementsAre(std::pair<std::string, std::string>{"x", "1,2;q=0\"3"}));
  EXPECT_EQ(found[0].weight, 500);
  EXPECT_EQ(found[1].name, "c/d");
}

TEST(Preferences, leave_out_what_has_no_weight_that_is_one) {
  for (const char* weight : {"2", "1.001", "0.1234", "-1", "x", "", "0x", ".5", "1e3"}) {
    EXPECT_TRUE(parse_preferences(std::string{"a/b;q="} + weight).empty()) << weight;
  }
  EXPECT_EQ(parse_preferences("a/b;q=1.000").at(0).weight, 1000);
  EXPECT_EQ(parse_preferences("a/b;q=0.").at(0).weight, 0);
  EXPECT_EQ(parse_preferences("a/b; Q=0.07").at(0).weight, 70);
}

TEST(Preferences, of_rubbish_are_none) {
  for (const char* rubbish : {"", " ", ",,,", ";;;", ";q=1", "\"", "\"\\"}) {
    for (auto const& one : parse_preferences(rubbish)) EXPECT_FALSE(one.name.empty()) << rubbish;
    EXPECT_FALSE(wants_open_metrics(rubbish)) << rubbish;
    EXPECT_FALSE(accepts_gzip(rubbish)) << rubbish;
  }
}

TEST(OpenMetricsWanted, by_prometheus_2_and_3) {
  EXPECT_TRUE(
      wants_open_metrics("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
                         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
  EXPECT_TRUE(
      wants_open_metrics("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
                         "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;"
                         "q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"));
}

TEST(OpenMetricsWanted, only_when_it_is_named) {
  for (const char* accept : {"", "*/*", "application/*", "text/plain", "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                             "application/json", "text/html,application/xhtml+xml,*/*;q=0.8"}) {
    EXPECT_FALSE(wants_open_metrics(accept)) << accept;
  }
  EXPECT_TRUE(wants_open_metrics("application/openmetrics-text"));
  EXPECT_TRUE(wants_open_metrics("APPLICATION/OPENMETRICS-TEXT; Version=\"1.0.0\""));
}

TEST(OpenMetricsWanted, only_in_the_version_that_we_write_and_liked_no_less_than_text) {
  EXPECT_FALSE(wants_open_metrics("application/openmetrics-text;version=0.0.1"));
  EXPECT_FALSE(wants_open_metrics("application/openmetrics-text;version=2.0.0,text/plain;q=0.1"));
  EXPECT_FALSE(wants_open_metrics("application/openmetrics-text;q=0"));
  EXPECT_FALSE(wants_open_metrics("application/openmetrics-text;q=0.4,text/plain;q=0.5"));
  EXPECT_FALSE(wants_open_metrics("application/openmetrics-text;q=0.4,text/*;q=0.5"));
  EXPECT_FALSE(wants_open_metrics("application/openmetrics-text;q=0.4,*/*"));
  EXPECT_TRUE(wants_open_metrics("application/openmetrics-text;q=0.5,text/plain;q=0.5"));
  // The more specific wildcard decides about text: 0.2, though */* says 1.
  EXPECT_TRUE(wants_open_metrics("*/*, text/*;q=0.2, application/openmetrics-text;q=0.3"));
  // A text format of another version is not the one that we have.
  EXPECT_TRUE(wants_open_metrics("text/plain;version=1.0.0, application/openmetrics-text;q=0.1"));
}

TEST(HtmlWanted, by_browsers_and_not_by_curl) {
  EXPECT_TRUE(wants_html("text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"));
  EXPECT_TRUE(wants_html("text/html"));
  for (const char* accept : {"", "*/*", "text/plain", "text/*", "text/html;q=0", "text/html;q=0.5,text/plain"}) {
    EXPECT_FALSE(wants_html(accept)) << accept;
  }
}

TEST(Gzip, is_accepted_where_it_is_named_or_anything_is) {
  for (const char* header :
       {"gzip", "GZIP", "x-gzip", "deflate, gzip;q=0.5, br", "*", "*;q=0.5", "gzip;q=0.5, identity;q=0.5", "gzip, *;q=0"}) {
    EXPECT_TRUE(accepts_gzip(header)) << header;
  }
  for (const char* header : {"", "br", "identity", "gzip;q=0", "gzip;q=0.000, *", "*;q=0", "gzip;q=0.1, identity", "gzipped"}) {
    EXPECT_FALSE(accepts_gzip(header)) << header;
  }
}

}  // namespace
}  // namespace headroom::exporter
