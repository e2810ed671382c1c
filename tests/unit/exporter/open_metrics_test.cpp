// OpenMetrics text, line by line.
#include "open_metrics.hpp"

#include <cmath>
#include <cstring>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families_support.hpp"
#include "flight_builder.hpp"
#include "metrics.hpp"

namespace headroom::exporter {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily family_of(std::string name, std::string help, MetricType type, std::vector<ClientMetric> samples) {
  return {.name = std::move(name), .help = std::move(help), .type = type, .metric = std::move(samples)};
}

ClientMetric counter(Labels labels, double value) {
  ClientMetric sample;
  sample.label = std::move(labels);
  sample.counter.value = value;
  return sample;
}

ClientMetric gauge(Labels labels, double value) {
  ClientMetric sample;
  sample.label = std::move(labels);
  sample.gauge.value = value;
  return sample;
}

TEST(OpenMetrics, of_nothing_is_the_end_alone) {
  EXPECT_EQ(open_metrics_text({}), "# EOF\n");
  EXPECT_EQ(open_metrics_text({family_of("headroom_x", "", MetricType::Gauge, {})}), "# EOF\n");
}

TEST(OpenMetrics, a_counters_family_has_no_total_and_its_samples_have) {
  EXPECT_EQ(open_metrics_text({family_of("headroom_frees_total", "Frees.", MetricType::Counter, {counter({{"pid", "7"}}, 3)})}),
            "# TYPE headroom_frees counter\n"
            "# HELP headroom_frees Frees.\n"
            "headroom_frees_total{pid=\"7\"} 3\n"
            "# EOF\n");
}

TEST(OpenMetrics, units_are_told_where_a_name_ends_in_one) {
  EXPECT_EQ(open_metrics_text({
                family_of("headroom_wait_seconds_total", "W", MetricType::Counter, {counter({}, 0.25)}),
                family_of("headroom_budget_bytes", "B", MetricType::Gauge, {gauge({}, 1000)}),
                family_of("headroom_use_ratio", "R", MetricType::Gauge, {gauge({}, 0.5)}),
                family_of("headroom_lanes", "L", MetricType::Gauge, {gauge({}, 2)}),
            }),
            "# TYPE headroom_wait_seconds counter\n"
            "# UNIT headroom_wait_seconds seconds\n"
            "# HELP headroom_wait_seconds W\n"
            "headroom_wait_seconds_total 0.25\n"
            "# TYPE headroom_budget_bytes gauge\n"
            "# UNIT headroom_budget_bytes bytes\n"
            "# HELP headroom_budget_bytes B\n"
            "headroom_budget_bytes 1000\n"
            "# TYPE headroom_use_ratio gauge\n"
            "# UNIT headroom_use_ratio ratio\n"
            "# HELP headroom_use_ratio R\n"
            "headroom_use_ratio 0.5\n"
            "# TYPE headroom_lanes gauge\n"
            "# HELP headroom_lanes L\n"
            "headroom_lanes 2\n"
            "# EOF\n");
}

TEST(OpenMetrics, what_is_always_1_is_an_info) {
  EXPECT_EQ(open_metrics_text({family_of("headroom_build_info", "V", MetricType::Gauge, {gauge({{"version", "0.1.0"}}, 1)})}),
            "# TYPE headroom_build info\n"
            "# HELP headroom_build V\n"
            "headroom_build_info{version=\"0.1.0\"} 1\n"
            "# EOF\n");
}

TEST(OpenMetrics, a_histogram_is_cumulative_with_canonical_bounds) {
  ClientMetric sample;
  sample.label = {{"a", "b"}};
  sample.histogram = {.sample_count = 4, .sample_sum = 2.5, .bucket = {{1, 0.0005}, {2, 1}, {3, 1048575}, {4, HUGE_VAL}}};
  EXPECT_EQ(open_metrics_text({family_of("headroom_h_seconds", "H", MetricType::Histogram, {sample})}),
            "# TYPE headroom_h_seconds histogram\n"
            "# UNIT headroom_h_seconds seconds\n"
            "# HELP headroom_h_seconds H\n"
            "headroom_h_seconds_bucket{a=\"b\",le=\"0.0005\"} 1\n"
            "headroom_h_seconds_bucket{a=\"b\",le=\"1.0\"} 2\n"
            "headroom_h_seconds_bucket{a=\"b\",le=\"1.048575e+06\"} 3\n"
            "headroom_h_seconds_bucket{a=\"b\",le=\"+Inf\"} 4\n"
            "headroom_h_seconds_count{a=\"b\"} 4\n"
            "headroom_h_seconds_sum{a=\"b\"} 2.5\n"
            "# EOF\n");
}

TEST(OpenMetrics, quotes_backslashes_and_line_ends_are_escaped_in_labels_and_help) {
  EXPECT_EQ(open_metrics_text({family_of("headroom_x", "say \"a\\b\"\nnow", MetricType::Gauge,
                                         {gauge({{"tag", "a\"b"}, {"two", "c\\d\ne"}, {"three", "# EOF} 5\t\xC3\xA9"}}, 1)})}),
            "# TYPE headroom_x gauge\n"
            "# HELP headroom_x say \\\"a\\\\b\\\"\\nnow\n"
            "headroom_x{tag=\"a\\\"b\",two=\"c\\\\d\\ne\",three=\"# EOF} 5\t\xC3\xA9\"} 1\n"
            "# EOF\n");
}

TEST(OpenMetricsNumber, is_whole_in_full_and_else_as_short_as_reads_back) {
  EXPECT_EQ(open_metrics_number(0), "0");
  EXPECT_EQ(open_metrics_number(-3), "-3");
  EXPECT_EQ(open_metrics_number(17'592'186'044'415.0), "17592186044415");
  EXPECT_EQ(open_metrics_number(9'007'199'254'740'992.0), "9007199254740992");
  EXPECT_EQ(open_metrics_number(1e17), "100000000000000000");
  EXPECT_EQ(open_metrics_number(0.1), "0.1");
  EXPECT_EQ(open_metrics_number(1'700'000'000.5), "1700000000.5");
  EXPECT_EQ(std::strtod(open_metrics_number(1.0 / 3).c_str(), nullptr), 1.0 / 3);
}

TEST(OpenMetricsBound, is_what_the_standard_lists_for_powers_of_ten) {
  const std::vector<std::string> listed{"1e-10",   "1e-09",    "1e-08", "1e-07", "1e-06", "1e-05", "0.0001",
                                        "0.001",   "0.01",     "0.1",   "1.0",   "10.0",  "100.0", "1000.0",
                                        "10000.0", "100000.0", "1e+06", "1e+07", "1e+08", "1e+09", "1e+10"};
  for (auto const& text : listed) EXPECT_EQ(open_metrics_bound(std::strtod(text.c_str(), nullptr)), text);
  EXPECT_EQ(open_metrics_bound(HUGE_VAL), "+Inf");
  EXPECT_EQ(open_metrics_bound(0.015625), "0.015625");
  EXPECT_EQ(open_metrics_bound(0), "0.0");
}

/// The names under which a family's samples and metadata appear; two families must not share one.
TEST(OpenMetrics, no_two_families_of_the_table_share_a_name) {
  std::set<std::string> names;
  for (auto const& descriptor : descriptors()) {
    std::string name = descriptor.name;
    std::vector<std::string> taken;
    switch (descriptor.type) {
      case MetricType::Counter:
        ASSERT_TRUE(name.ends_with("_total")) << name;
        name.resize(name.size() - std::strlen("_total"));
        taken = {name, name + "_total", name + "_created"};
        break;
      case MetricType::Histogram: taken = {name, name + "_bucket", name + "_count", name + "_sum", name + "_created"}; break;
      default: taken = {name};
    }
    for (auto const& one : taken) EXPECT_TRUE(names.insert(one).second) << one;
  }
}

TEST(OpenMetrics, strange_names_stay_in_their_line) {
  flight::FlightBuilder file;
  std::strcpy(file.header().program, "p\"\\\n\xff# EOF");
  file.header().lanes_used = 1;
  file.open_ledger(0, 2, "m\"\\\n\xff");
  const std::vector<std::string> strange{"a\"b", "c\\d", "e\nf", "\xff\xfe", "", "\n# EOF\n", std::string{"g\0h", 3},
                                         "i\rj", "k}l{"};
  for (std::uint32_t index = 0; index < strange.size(); ++index) {
    file.put_name(10 + index, flight::EntryKind::tag, 2, index, strange[index]);
    file.lane(0).tags[index].bytes = index + 1;
  }
  const auto text = open_metrics_text(collect(file.view()));
  std::istringstream lines{text};
  std::size_t tags = 0, ends = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool is_sample = line.starts_with("headroom_") && line.find("} ") != std::string::npos;
    const bool is_metadata = line.starts_with("# TYPE ") || line.starts_with("# HELP ") || line.starts_with("# UNIT ");
    ends += line == "# EOF" ? 1U : 0U;
    EXPECT_TRUE(is_sample || is_metadata || line == "# EOF") << line;
    tags += line.starts_with("headroom_tag_allocated_bytes{") ? 1U : 0U;
  }
  EXPECT_EQ(tags, strange.size());
  EXPECT_EQ(ends, 1U);
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
}

}  // namespace
}  // namespace headroom::exporter
