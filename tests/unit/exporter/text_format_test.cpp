// The text format as prometheus-cpp prints it, byte for byte.
#include "text_format.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "families_support.hpp"
#include "flight_builder.hpp"
#include "metrics.hpp"

namespace headroom::exporter {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

std::string own_text(FamilyList const& families) {
  std::string text;
  for (auto const& family : families) {
    append_text_head(text, family);
    append_text_samples(text, family);
  }
  return text;
}

MetricFamily family_of(MetricType type, std::string help = "What it is.") {
  return {.name = "headroom_x", .help = std::move(help), .type = type, .metric = {}};
}

ClientMetric valued(double value) {
  ClientMetric sample;
  sample.gauge.value = value;
  sample.counter.value = value;
  return sample;
}

TEST(TextFormat, prints_numbers_as_the_serializer_does) {
  constexpr auto kMost = std::numeric_limits<double>::max();
  std::vector<double> values{0.0,
                             -0.0,
                             1.0,
                             -1.0,
                             0.1,
                             0.5,
                             1.0 / 3,
                             1e-9,
                             123456.789,
                             999999999999999.0,
                             1e15,
                             1e16,
                             1e17,
                             9007199254740993.0,
                             17592186044415.0,
                             1.7e9,
                             1700000000.123456,
                             kMost,
                             -kMost,
                             5e-324,
                             INFINITY,
                             -INFINITY,
                             std::nan("")};
  std::mt19937_64 random{7};
  for (int i = 0; i < 2'000; ++i) {
    values.push_back(std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 150));
    values.push_back(static_cast<double>(random() >> (random() % 64)));
  }
  for (const auto type : {MetricType::Gauge, MetricType::Counter}) {
    auto family = family_of(type);
    for (const double value : values) family.metric.push_back(valued(value));
    EXPECT_EQ(own_text({family}), text_of({family}));
  }
}

TEST(TextFormat, escapes_labels_as_the_serializer_does) {
  auto family = family_of(MetricType::Gauge, "");
  for (const char* value : {"", "plain", "a\"b", "c\\d", "e\nf", "\\\"\n", "ends\\", "\n", "größe 🚀"}) {
    auto sample = valued(1);
    sample.label = {{"one", value}, {"two", value}};
    family.metric.push_back(sample);
  }
  EXPECT_EQ(own_text({family}), text_of({family}));
}

TEST(TextFormat, prints_histograms_as_the_serializer_does) {
  auto family = family_of(MetricType::Histogram);
  for (const bool has_labels : {true, false}) {
    for (const bool has_end : {true, false}) {
      ClientMetric sample;
      if (has_labels) sample.label = {{"process", "p"}};
      sample.histogram = {.sample_count = 12, .sample_sum = 3.25, .bucket = {{1, 0.0005}, {2, 1.0}, {3, 1048575.0}, {4, 1e9}}};
      if (has_end) sample.histogram.bucket.push_back({12, INFINITY});
      family.metric.push_back(sample);
    }
  }
  family.metric.emplace_back();
  EXPECT_EQ(own_text({family}), text_of({family}));
}

TEST(TextFormat, prints_a_whole_file_as_the_serializer_does) {
  flight::FlightBuilder file;
  file.header().lanes_used = 1;
  file.put_name(1, flight::EntryKind::device, 0, 0, "GPU\tGPU-0123");
  auto& pool = file.open_ledger(0, 2, "pool \"one\"");
  pool.device_id = 1;
  pool.limit = flight::kLimitEnforcing | 123'456'789;
  pool.alloc = 100'000'000;
  file.put_name(3, flight::EntryKind::tag, 2, 0, "tag\\");
  file.lane(0).counters[0].size_histogram[20] = 17;
  file.lane(0).counters[0].use_histogram[63] = 5;
  file.lane(0).counters[0].allocation_ns = 123'456'789;
  file.lane(0).counters[0].duration_histogram[7] = 17;
  const auto families = collect(file.view());
  EXPECT_EQ(own_text(families), text_of(families));
}

}  // namespace
}  // namespace headroom::exporter
