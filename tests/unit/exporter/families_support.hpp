// Looks samples up in collected families, and asks promtool what it thinks of their text.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include "families.hpp"

namespace headroom::exporter {

using Wanted = std::map<std::string, std::string>;
using FamilyList = std::vector<prometheus::MetricFamily>;

[[nodiscard]] inline bool has_labels(prometheus::ClientMetric const& sample, Wanted const& wanted) {
  return std::ranges::all_of(wanted, [&sample](auto const& entry) {
    return std::ranges::any_of(sample.label,
                               [&entry](auto const& label) { return label.name == entry.first && label.value == entry.second; });
  });
}

[[nodiscard]] inline std::vector<prometheus::ClientMetric> samples_of(FamilyList const& families, std::string_view name,
                                                                      Wanted const& wanted = {}) {
  std::vector<prometheus::ClientMetric> found;
  for (auto const& family : families) {
    if (family.name != "headroom_" + std::string{name}) continue;
    std::ranges::copy_if(family.metric, std::back_inserter(found),
                         [&](auto const& sample) { return has_labels(sample, wanted); });
  }
  return found;
}

/// The value of the only sample with these labels; nothing when there is none. More than one fails the test.
[[nodiscard]] inline std::optional<double> value_of(FamilyList const& families, std::string_view name,
                                                    Wanted const& wanted = {}) {
  const auto found = samples_of(families, name, wanted);
  EXPECT_LE(found.size(), 1U) << name << " is ambiguous";
  if (found.empty()) return std::nullopt;
  return found.front().gauge.value + found.front().counter.value;  // one of them is 0
}

[[nodiscard]] inline std::string text_of(FamilyList const& families) { return prometheus::TextSerializer{}.Serialize(families); }

[[nodiscard]] inline std::size_t count_samples(std::string const& text) {
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    if (end > begin && text[begin] != '#') ++count;
    begin = end + 1;
  }
  return count;
}

[[nodiscard]] inline bool has_promtool() { return std::system("command -v promtool >/dev/null 2>&1") == 0; }

/// What `promtool check metrics` prints about `text`, and its exit status when that is not 0; empty when it is content.
[[nodiscard]] inline std::string promtool_says(std::string const& text) {
  const std::string path = testing::TempDir() + "headroom_promtool_" + std::to_string(getpid()) + ".txt";
  std::ofstream{path, std::ios::binary} << text;
  std::string output;
  FILE* const pipe = popen(("promtool check metrics <" + path + " 2>&1").c_str(), "r");
  std::array<char, 4096> chunk;
  while (pipe != nullptr) {
    const auto count = std::fread(chunk.data(), 1, chunk.size(), pipe);
    if (count == 0) break;
    output.append(chunk.data(), count);
  }
  const int status = pipe == nullptr ? -1 : pclose(pipe);
  std::remove(path.c_str());
  return status == 0 ? output : output + " (status " + std::to_string(status) + ")";
}

}  // namespace headroom::exporter
