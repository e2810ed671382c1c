#include "text_format.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "sample_text.hpp"

namespace headroom::exporter {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

constexpr int kDigits = std::numeric_limits<double>::max_digits10 - 1;

void append_double(std::string& text, double number) {
  if (append_if_whole(text, number)) return;
  if (std::isnan(number)) {
    text += "Nan";
    return;
  }
  if (std::isinf(number)) {
    text += number < 0 ? "-Inf" : "+Inf";
    return;
  }
  std::array<char, 40> digits{};
  auto* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number, std::chars_format::general, kDigits).ptr;
  text.append(digits.data(), end);
}

void append_histogram(std::string& text, std::string_view name, std::string_view labels, ClientMetric::Histogram const& histogram,
                      BoundTexts& bounds) {
  append_sample_head(text, name, "_count", labels);
  append_number(text, histogram.sample_count);
  text += '\n';
  append_sample_head(text, name, "_sum", labels);
  append_double(text, histogram.sample_sum);
  text += '\n';
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double last = -kInfinity;
  for (std::size_t i = 0; i < histogram.bucket.size(); ++i) {
    auto const& bucket = histogram.bucket[i];
    append_bucket(text, name, labels, bounds.text_of(i, bucket.upper_bound), bucket.cumulative_count);
    last = bucket.upper_bound;
  }
  if (last != kInfinity) append_bucket(text, name, labels, "+Inf", histogram.sample_count);
}

std::string_view word_of(MetricType type) {
  switch (type) {
    case MetricType::Counter: return "counter";
    case MetricType::Gauge: return "gauge";
    case MetricType::Histogram: return "histogram";
    default: return "untyped";
  }
}

}  // namespace

void append_text_head(std::string& text, prometheus::MetricFamily const& family) {
  if (!family.help.empty()) text += "# HELP " + family.name + " " + family.help + "\n";
  text += "# TYPE " + family.name + " ";
  text += word_of(family.type);
  text += '\n';
}

void append_text_samples(std::string& text, prometheus::MetricFamily const& family) {
  std::string labels;
  BoundTexts bounds{append_double};
  for (auto const& sample : family.metric) {
    labels.clear();
    append_labels(labels, sample.label);
    if (family.type == MetricType::Histogram) {
      append_histogram(text, family.name, labels, sample.histogram, bounds);
      continue;
    }
    append_sample_head(text, family.name, {}, labels);
    append_double(text, family.type == MetricType::Counter ? sample.counter.value : sample.gauge.value);
    text += '\n';
  }
}

}  // namespace headroom::exporter
