// Portions put together are the text that all of it at once would have been.
#include "metrics_text.hpp"

#include <cmath>

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include "families_support.hpp"
#include "open_metrics.hpp"

namespace headroom::exporter {
namespace {

void add_process(Families& families, std::string const& name, double value) {
  const auto labels = with_label({}, "process", name);
  families.add(Metric::allocated_bytes, labels, value);
  families.add(Metric::tag_allocated_bytes, with_label(labels, "tag", "#\n# HELP x\n#"), value);
  families.add(Metric::allocation_size_bytes, labels, prometheus::ClientMetric::Histogram{1, 5.0, {{1, 8.0}}});
}

TEST(MetricsText, of_portions_is_the_text_of_the_whole) {
  Families whole;
  MetricsText text;
  Families portion;
  for (int i = 0; i < 3; ++i) {
    add_process(whole, "p" + std::to_string(i), i);
    add_process(portion, "p" + std::to_string(i), i);
    text.add(portion);
    EXPECT_TRUE(portion.take().empty()) << "taken";
  }
  // Only one of them has this family.
  whole.add(Metric::exporter_errors_total, {}, 7.0);
  portion.add(Metric::exporter_errors_total, {}, 7.0);
  text.add(portion);
  EXPECT_EQ(text.take(), text_of(whole.take()));
}

TEST(MetricsText, of_portions_is_the_OpenMetrics_of_the_whole) {
  Families whole;
  MetricsText text{MetricsFormat::open_metrics};
  Families portion;
  for (int i = 0; i < 3; ++i) {
    add_process(whole, "p" + std::to_string(i), i);
    add_process(portion, "p" + std::to_string(i), i);
    text.add(portion);
  }
  whole.add(Metric::exporter_errors_total, {}, 7.0);
  portion.add(Metric::exporter_errors_total, {}, 7.0);
  text.add(portion);
  EXPECT_EQ(text.take(), open_metrics_text(whole.take()));
  MetricsText none{MetricsFormat::open_metrics};
  none.add(portion);
  EXPECT_EQ(none.take(), "# EOF\n");
}

TEST(MetricsText, at_once_is_what_the_serializers_print_of_every_family) {
  Families families;
  for (auto const& descriptor : descriptors()) {
    for (const char* name : {"plain", R"(with "quotes" and \)", ""}) {
      const auto labels = with_label({}, "process", name);
      if (descriptor.type == prometheus::MetricType::Histogram) {
        families.add(descriptor.metric, labels,
                     prometheus::ClientMetric::Histogram{3, 0.1, {{1, 0.25}, {2, 8.0}, {3, INFINITY}}});
      } else {
        families.add(descriptor.metric, labels, name[0] == 'p' ? 0.1 : 123'456'789'012'345.0);
      }
    }
  }
  const auto list = families.take();
  ASSERT_EQ(list.size(), kMetricCount);
  EXPECT_EQ(metrics_text(MetricsFormat::text, list), text_of(list));
  EXPECT_EQ(metrics_text(MetricsFormat::open_metrics, list), open_metrics_text(list));
}

TEST(MetricsText, is_OpenMetrics_for_who_names_it) {
  EXPECT_EQ(wanted_format(""), MetricsFormat::text);
  EXPECT_EQ(wanted_format("*/*"), MetricsFormat::text);
  EXPECT_EQ(wanted_format("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4"),
            MetricsFormat::open_metrics);
  EXPECT_EQ(content_type_of(MetricsFormat::text), "text/plain; version=0.0.4; charset=utf-8");
}

TEST(MetricsText, of_nothing_is_empty) {
  Families none;
  MetricsText text;
  text.add(none);
  EXPECT_EQ(text.take(), "");
}

TEST(Families, while_only_counters_are_true_gauges_are_dropped) {
  Families families;
  EXPECT_FALSE(families.set_counters_only(true));
  families.add(Metric::allocated_bytes, {}, 1.0);
  families.add(Metric::allocations_total, {}, 2.0);
  families.add(Metric::allocation_size_bytes, {}, prometheus::ClientMetric::Histogram{1, 5.0, {{1, 8.0}}});
  EXPECT_TRUE(families.set_counters_only(false));
  const auto list = families.take();
  EXPECT_TRUE(samples_of(list, "allocated_bytes").empty());
  EXPECT_EQ(value_of(list, "allocations_total"), 2);
  EXPECT_EQ(samples_of(list, "allocation_size_bytes").size(), 1U);
}

TEST(Families, take_back_what_was_added_since_a_mark) {
  Families families;
  families.add(Metric::allocated_bytes, {}, 1.0);
  const auto mark = families.mark();
  families.add(Metric::allocated_bytes, {}, 2.0);
  families.add(Metric::claimed_bytes, {}, 3.0);
  families.rollback(mark);
  const auto list = families.take();
  EXPECT_EQ(value_of(list, "allocated_bytes"), 1);
  EXPECT_TRUE(samples_of(list, "claimed_bytes").empty());
}

}  // namespace
}  // namespace headroom::exporter
