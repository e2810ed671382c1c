// headroom: which of two representations a client wants, by its Accept and Accept-Encoding headers (RFC 9110, 12.5).
//
// Both routes that have a choice have a usual representation, for whoever does not care, and a special one, for whoever names it: the
// text format and OpenMetrics, plain text and HTML. A wildcard names nothing, so curl gets what it has always got.
//
// Pure functions. What is no header of this kind is treated as if it were not there.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headroom::exporter {

inline constexpr int kFullWeight = 1000;  ///< q=1; weights are thousandths, as they have three digits at most

/// One element of such a header.
struct Preference {
  std::string name;                                               ///< in lower case: `text/html`, `text/*`, `gzip`, `*`
  std::vector<std::pair<std::string, std::string>> parameters{};  ///< names in lower case, without `q`
  int weight = kFullWeight;                                       ///< 0: not acceptable
};

/// Elements in the order of the header. One whose weight is none is left out.
[[nodiscard]] std::vector<Preference> parse_preferences(std::string_view header);

/// A media type that we can send. `version`, where the type has one, must be what the client names, if it names one.
struct Offer {
  std::string_view type;
  std::string_view version;
};

/// True when the client names `special`, and likes it no less than `usual`.
[[nodiscard]] bool prefers(std::string_view accept, Offer special, Offer usual);

/// True when gzip is acceptable, and not liked less than no coding at all.
[[nodiscard]] bool accepts_gzip(std::string_view accept_encoding);

}  // namespace headroom::exporter
