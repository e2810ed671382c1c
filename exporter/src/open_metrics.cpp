#include "open_metrics.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "sample_text.hpp"

namespace headroom::exporter {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::string_view kTotal = "_total";
constexpr std::string_view kInfo = "_info";
constexpr std::array<std::string_view, 3> kUnits{"bytes", "seconds", "ratio"};

std::string_view without_suffix(std::string_view name, std::string_view suffix) noexcept {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

/// How a family is told: its name without what the samples have at their end.
struct Heading {
  std::string_view name, type, suffix;
};

Heading heading_of(MetricFamily const& family) noexcept {
  switch (family.type) {
    case MetricType::Counter: return {without_suffix(family.name, kTotal), "counter", kTotal};
    case MetricType::Histogram: return {family.name, "histogram", ""};
    case MetricType::Gauge:
      if (family.name.ends_with(kInfo)) return {without_suffix(family.name, kInfo), "info", kInfo};
      return {family.name, "gauge", ""};
    default: return {family.name, "unknown", ""};
  }
}

void append_value(std::string& text, double value) {
  if (append_if_whole(text, value)) return;
  constexpr double kWholeInFull = 1e18;
  if (std::isinf(value)) {
    text += value > 0 ? "+Inf" : "-Inf";
    return;
  }
  if (std::isnan(value)) {
    text += "NaN";
    return;
  }
  std::array<char, 64> digits{};
  const bool is_whole = std::trunc(value) == value && std::abs(value) < kWholeInFull;
  const auto end = is_whole ? std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed)
                            : std::to_chars(digits.data(), digits.data() + digits.size(), value);
  text.append(digits.data(), end.ptr);
}

void append_bound(std::string& text, double bound) { text += open_metrics_bound(bound); }

void append_histogram(std::string& text, std::string_view name, std::string_view labels, ClientMetric::Histogram const& histogram,
                      BoundTexts& bounds) {
  for (std::size_t i = 0; i < histogram.bucket.size(); ++i) {
    auto const& bucket = histogram.bucket[i];
    append_bucket(text, name, labels, bounds.text_of(i, bucket.upper_bound), bucket.cumulative_count);
  }
  append_sample_head(text, name, "_count", labels);
  append_number(text, histogram.sample_count);
  text += '\n';
  append_sample_head(text, name, "_sum", labels);
  append_value(text, histogram.sample_sum);
  text += '\n';
}

}  // namespace

void append_open_metrics_head(std::string& text, MetricFamily const& family) {
  const auto heading = heading_of(family);
  const auto line = [&](std::string_view keyword) -> std::string& {
    text.append("# ").append(keyword).append(" ").append(heading.name);
    return text.append(" ");
  };
  line("TYPE").append(heading.type).append("\n");
  for (const auto unit : kUnits) {
    if (heading.name.ends_with(unit) && heading.type != "info") line("UNIT").append(unit).append("\n");
  }
  line("HELP");
  append_escaped(text, family.help);
  text += '\n';
}

void append_open_metrics_samples(std::string& text, MetricFamily const& family) {
  const auto heading = heading_of(family);
  std::string labels;
  BoundTexts bounds{append_bound};
  for (auto const& sample : family.metric) {
    labels.clear();
    append_labels(labels, sample.label);
    if (family.type == MetricType::Histogram) {
      append_histogram(text, heading.name, labels, sample.histogram, bounds);
      continue;
    }
    append_sample_head(text, heading.name, heading.suffix, labels);
    append_value(text, family.type == MetricType::Counter ? sample.counter.value : sample.gauge.value);
    text += '\n';
  }
}

std::string open_metrics_number(double value) {
  std::string text;
  append_value(text, value);
  return text;
}

std::string open_metrics_bound(double bound) {
  if (std::isinf(bound)) return bound > 0 ? "+Inf" : "-Inf";
  constexpr int kLeastExponent = -4;
  constexpr int kFirstLargeExponent = 6;
  std::array<char, 64> digits{};
  auto end = std::to_chars(digits.data(), digits.data() + digits.size(), bound, std::chars_format::scientific);
  std::string text{digits.data(), end.ptr};
  const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
  if (exponent < kLeastExponent || exponent >= kFirstLargeExponent) return text;
  end = std::to_chars(digits.data(), digits.data() + digits.size(), bound, std::chars_format::fixed);
  text.assign(digits.data(), end.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string open_metrics_text(std::vector<MetricFamily> const& families) {
  std::string text;
  for (auto const& family : families) {
    if (family.metric.empty()) continue;
    append_open_metrics_head(text, family);
    append_open_metrics_samples(text, family);
  }
  return text += kOpenMetricsEnd;
}

}  // namespace headroom::exporter
