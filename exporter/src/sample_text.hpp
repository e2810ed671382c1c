// headroom: pieces of samples as text that both formats share.
//
// Labels are printed once for all lines of a sample, and bounds of buckets once for all histograms of a family: a scrape is mostly
// buckets, and they differ in their counts alone.
//
// Pure functions, but for BoundTexts, which belongs to one thread. Label values must be valid UTF-8 already (labels.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "labels.hpp"

namespace headroom::exporter {

void append_number(std::string& text, std::uint64_t number);

/// True when it was a whole number that both formats print in full, as nearly all are.
[[nodiscard]] bool append_if_whole(std::string& text, double number);

/// Backslash, quote and line end get a backslash.
void append_escaped(std::string& text, std::string_view value);

/// `a="b",c="d"`, without braces.
void append_labels(std::string& text, Labels const& labels);

/// Name, suffix, the labels in braces if there are any, and a space: all of a line but its value.
void append_sample_head(std::string& text, std::string_view name, std::string_view suffix, std::string_view labels);

/// A whole line of a bucket; `labels` as append_labels() wrote them.
void append_bucket(std::string& text, std::string_view name, std::string_view labels, std::string_view bound,
                   std::uint64_t count);

/// Bounds as text. The histograms of a family mostly have the same ones, and no other number takes as long to print.
class BoundTexts {
public:
  using Print = void (*)(std::string& text, double bound);
  explicit BoundTexts(Print print) noexcept : print_(print) {}

  /// Good until the next call.
  [[nodiscard]] std::string_view text_of(std::size_t place, double bound);

private:
  Print print_;
  std::vector<std::pair<double, std::string>> known_;
};

}  // namespace headroom::exporter
