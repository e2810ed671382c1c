// headroom: metrics of many processes as one text, without holding them all as objects.
//
// A text has all samples of a family together, and a scrape comes process by process; samples as objects take ten times the room of
// their text. So each portion is printed and its lines are sorted into their families.
//
// Thread safety: none; one for each scrape.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "families.hpp"

namespace headroom::exporter {

enum class MetricsFormat : std::uint8_t { text, open_metrics };

/// By a client's Accept header: OpenMetrics for who names it, the text format for everybody else.
[[nodiscard]] MetricsFormat wanted_format(std::string_view accept);
[[nodiscard]] std::string content_type_of(MetricsFormat format);

/// All of them at once; a family without samples is left out.
[[nodiscard]] std::string metrics_text(MetricsFormat format, std::vector<prometheus::MetricFamily> const& families);

class MetricsText {
public:
  explicit MetricsText(MetricsFormat format = MetricsFormat::text) : format_(format), parts_(kMetricCount) {}

  /// Takes the samples out of `families`.
  void add(Families& families);
  /// The same when they have become many.
  void add_if_many(Families& families);

  /// Everything so far, families without samples left out.
  [[nodiscard]] std::string take();

private:
  struct Part {
    std::string head;  // # HELP and # TYPE
    std::string lines;
  };

  MetricsFormat format_;
  std::vector<Part> parts_;  // in the order of the table
};

}  // namespace headroom::exporter
