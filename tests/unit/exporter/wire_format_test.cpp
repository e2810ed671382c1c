// The text that goes over the wire, as promtool and a strict eye see it.
#include <cmath>
#include <cstring>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families_support.hpp"
#include "flight_builder.hpp"
#include "metrics.hpp"

namespace headroom::exporter {
namespace {

using flight::FlightBuilder;
using testing::HasSubstr;

/// One manager with nothing in it.
FlightBuilder fresh_file() {
  FlightBuilder file;
  std::strcpy(file.header().program, "train");
  std::strcpy(file.header().version, "0.1.0");
  file.header().pid = 1;
  file.header().lanes_used = 2;
  file.put_name(1, flight::EntryKind::device, 0, 0, "Test GPU");
  auto& pool = file.open_ledger(0, 2, "pool");
  pool.device_id = 1;
  pool.limit = 1000 | flight::kLimitEnforcing;
  return file;
}

/// Every family of the table with a sample, those too that no file of today fills.
FamilyList every_family() {
  Families families;
  for (auto const& descriptor : descriptors()) {
    if (descriptor.type == prometheus::MetricType::Histogram) {
      families.add(descriptor.metric, {}, prometheus::ClientMetric::Histogram{0, 0.0, {{0, HUGE_VAL}}});
    } else {
      families.add(descriptor.metric, {}, 0.0);
    }
  }
  return families.take();
}

TEST(WireFormat, promtool_is_silent_about_every_family) {
  if (!has_promtool()) GTEST_SKIP() << "promtool is not installed";
  const auto families = every_family();
  EXPECT_EQ(families.size(), kMetricCount);
  EXPECT_EQ(promtool_says(text_of(families)), "");
}

TEST(WireFormat, promtool_finds_a_fault_when_there_is_one) {
  if (!has_promtool()) GTEST_SKIP() << "promtool is not installed";
  EXPECT_NE(promtool_says("headroom_x_count 1\n"), "");
  EXPECT_NE(promtool_says("headroom_x{tag=\"a\"b\"} 1\n"), "");
}

TEST(WireFormat, one_manager_has_more_than_50_samples_before_anything_happened) {
  const auto file = fresh_file();
  const auto text = text_of(collect(file.view()));
  EXPECT_GE(count_samples(text), 50U);
  if (!has_promtool()) GTEST_SKIP() << "promtool is not installed";
  EXPECT_EQ(promtool_says(text), "");
}

TEST(WireFormat, strange_names_cost_nobody_a_scrape) {
  auto file = fresh_file();
  const std::string ten_thousand(10'000, 'x');
  const std::vector<std::string> names{
      "a\"b", "c\\d", "e\nf", "\xff\xfe", "", ten_thousand, "\xF0\x9F\x9A\x80", std::string{"g\0h", 3}, "i\rj", "k}l{"};
  for (std::uint32_t index = 0; index < names.size(); ++index) {
    file.put_name(10 + index, flight::EntryKind::tag, 2, index, names[index]);
    file.lane(0).tags[index].bytes = index + 1;
  }
  file.open_ledger(1, 3, "m\"\\\n\xff").device_id = 1;
  std::strcpy(file.header().program, "p\"\\\n\xff");

  const auto families = collect(file.view());
  EXPECT_EQ(samples_of(families, "tag_allocated_bytes").size(), names.size());
  EXPECT_EQ(value_of(families, "tag_allocated_bytes", {{"tag", "a\"b"}}), 1);
  EXPECT_EQ(value_of(families, "tag_allocated_bytes", {{"tag", "\xF0\x9F\x9A\x80"}}), 7);
  const auto text = text_of(families);
  EXPECT_THAT(text, HasSubstr("tag=\"a\\\"b\""));
  EXPECT_THAT(text, HasSubstr("tag=\"c\\\\d\""));
  EXPECT_THAT(text, HasSubstr("tag=\"e\\nf\""));
  if (!has_promtool()) GTEST_SKIP() << "promtool is not installed";
  EXPECT_EQ(promtool_says(text), "");
}

TEST(WireFormat, integers_are_printed_in_full) {
  auto file = fresh_file();
  file.ledger(0).limit = flight::kBytesMask | flight::kLimitEnforcing;
  file.lane(0).counters[0].allocation_bytes = (std::uint64_t{1} << 53) + 1;  // the nearest double is one less
  const auto text = text_of(collect(file.view()));
  EXPECT_THAT(text, HasSubstr("} 17592186044415\n"));
  EXPECT_THAT(text, HasSubstr("} 9007199254740992\n"));
}

TEST(WireFormat, hostile_figures_give_no_NaN_no_negative_and_no_doubles) {
  auto file = fresh_file();
  // All ones wherever a reader adds up or subtracts.
  const auto all = ~std::uint64_t{0};
  auto& cell = file.ledger(0);
  for (auto* word : {&cell.claim, &cell.alloc, &cell.peak, &cell.unspent, &cell.failed_free_bytes, &cell.device_total,
                     &cell.device_free, &cell.pressure, &cell.sentinel_bytes}) {
    word->store(all);
  }
  for (auto& word : file.lane(0).counters[0].use_histogram) word = all;
  for (auto& word : file.lane(1).counters[0].size_histogram) word = all;
  file.lane(0).counters[0].frees = 5;  // more than allocations
  file.lane(0).header.in_flight = pack_in_flight(flight::InFlight::freeing, 0, 1);
  file.lane(0).header.in_flight_ticks = all;
  file.header().start_realtime_ns = all;

  const auto families = collect(file.view());
  const auto text = text_of(families);
  for (const char* bad : {"nan", "NaN", "Nan", "} -", " -1"}) EXPECT_EQ(text.find(bad), std::string::npos) << bad;
  for (auto const& family : families) {
    std::set<Labels> seen;
    for (auto const& sample : family.metric) EXPECT_TRUE(seen.insert(sample.label).second) << family.name;
  }
  if (!has_promtool()) GTEST_SKIP() << "promtool is not installed";
  EXPECT_EQ(promtool_says(text), "");
}

TEST(Families, drop_what_is_no_number) {
  Families families;
  families.add(Metric::allocated_bytes, {}, std::nan(""));
  families.add(Metric::claimed_bytes, {}, HUGE_VAL);
  EXPECT_TRUE(families.take().empty());
}

}  // namespace
}  // namespace headroom::exporter
