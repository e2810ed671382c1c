#include "metrics_text.hpp"

#include <string_view>
#include <utility>

#include "negotiation.hpp"
#include "open_metrics.hpp"
#include "text_format.hpp"

namespace headroom::exporter {
namespace {

constexpr std::size_t kManySamples = 2'000;
}  // namespace

MetricsFormat wanted_format(std::string_view accept) {
  constexpr Offer kText{.type = "text/plain", .version = "0.0.4"};
  constexpr Offer kOpenMetrics{.type = "application/openmetrics-text", .version = "1.0.0"};
  return prefers(accept, kOpenMetrics, kText) ? MetricsFormat::open_metrics : MetricsFormat::text;
}

std::string content_type_of(MetricsFormat format) {
  return format == MetricsFormat::open_metrics ? std::string{kOpenMetricsType} : "text/plain; version=0.0.4; charset=utf-8";
}

std::string metrics_text(MetricsFormat format, std::vector<prometheus::MetricFamily> const& families) {
  if (format == MetricsFormat::open_metrics) return open_metrics_text(families);
  std::string text;
  for (auto const& family : families) {
    if (family.metric.empty()) continue;
    append_text_head(text, family);
    append_text_samples(text, family);
  }
  return text;
}

void MetricsText::add(Families& families) {
  const bool is_open = format_ == MetricsFormat::open_metrics;
  families.drain([&](Metric metric, prometheus::MetricFamily const& family) {
    auto& part = parts_[static_cast<std::size_t>(metric)];
    if (part.head.empty()) (is_open ? append_open_metrics_head : append_text_head)(part.head, family);
    (is_open ? append_open_metrics_samples : append_text_samples)(part.lines, family);
  });
}

void MetricsText::add_if_many(Families& families) {
  if (families.sample_count() >= kManySamples) add(families);
}

std::string MetricsText::take() {
  std::size_t size = 0;
  for (auto const& part : parts_) size += part.head.size() + part.lines.size();
  std::string text;
  text.reserve(size);
  for (auto& part : parts_) {
    text += std::exchange(part.head, {});
    text += std::exchange(part.lines, {});
  }
  if (format_ == MetricsFormat::open_metrics) text += kOpenMetricsEnd;
  return text;
}

}  // namespace headroom::exporter
