// headroom: families in Prometheus's text format, appended to strings.
//
// What prometheus-cpp's TextSerializer prints, byte for byte (tests compare them), in a fifth of the time: labels are printed once for
// all buckets of a histogram, and numbers without a stream. A node exporter prints 50,000 lines a scrape.
//
// Pure functions. Label values must be valid UTF-8 already (labels.hpp).
#pragma once

#include <string>

#include <prometheus/metric_family.h>

namespace headroom::exporter {

/// `# HELP` and `# TYPE`.
void append_text_head(std::string& text, prometheus::MetricFamily const& family);
/// The samples of a family of gauges, counters or histograms.
void append_text_samples(std::string& text, prometheus::MetricFamily const& family);

}  // namespace headroom::exporter
