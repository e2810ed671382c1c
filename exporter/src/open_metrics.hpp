// headroom: families as OpenMetrics 1.0.0 text, appended to strings.
//
// prometheus-cpp writes the older text format only. What differs here: a counter's family is named without `_total`, units are
// metadata (`# UNIT`) where a name ends in one, `…_info` gauges are the type info, bounds of buckets have their canonical form (`1.0`,
// `1e+06`), and the end is marked, so that half a scrape is never taken for a whole one. Samples have the same names in both formats.
//
// Pure functions. Label values must be valid UTF-8 already (labels.hpp). Cost: as text_format.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <prometheus/metric_family.h>

namespace headroom::exporter {

inline constexpr std::string_view kOpenMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8";
inline constexpr std::string_view kOpenMetricsEnd = "# EOF\n";

/// `# TYPE`, `# UNIT` and `# HELP`.
void append_open_metrics_head(std::string& text, prometheus::MetricFamily const& family);
/// The samples of a family of gauges, counters or histograms.
void append_open_metrics_samples(std::string& text, prometheus::MetricFamily const& family);

/// All of them and the end; a family without samples is left out.
[[nodiscard]] std::string open_metrics_text(std::vector<prometheus::MetricFamily> const& families);

/// A sample's value: whole numbers in full, all others with as many digits as it takes to read the same number back.
[[nodiscard]] std::string open_metrics_number(double value);
/// The value of an `le` label, as Go prints it: that is what the standard calls canonical.
[[nodiscard]] std::string open_metrics_bound(double bound);

}  // namespace headroom::exporter
