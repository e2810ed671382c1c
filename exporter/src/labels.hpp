// headroom: label values that every Prometheus parser takes.
//
// Names come from programs and from files of other processes, so they may be anything. One bad value costs a whole scrape, hence
// values are made valid here, in one place; quotes, backslashes and newlines are left to the serializer, which escapes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <prometheus/client_metric.h>

namespace headroom::exporter {

using Labels = std::vector<prometheus::ClientMetric::Label>;

inline constexpr std::size_t kLabelValueBytes = 128;

/// Valid UTF-8 of at most kLabelValueBytes, cut at a character. Invalid bytes and control characters but tab and newline become
/// U+FFFD: NUL ends the line in some parsers, and a carriage return in others.
[[nodiscard]] std::string safe_label_value(std::string_view raw);

/// `labels` and one more; the value is made safe.
[[nodiscard]] Labels with_label(Labels const& labels, std::string_view name, std::string_view value);
[[nodiscard]] Labels with_label(Labels&& labels, std::string_view name, std::string_view value);

}  // namespace headroom::exporter
