#include "text_recorder.hpp"

#include <cmath>
#include <string>

namespace headroom::viewer {

void TextRecorder::begin_frame() {
  lines_.clear();
  section_.clear();
}

void TextRecorder::section(std::string_view name) { section_ = name; }

void TextRecorder::add(std::string_view text, float y, float height) {
  if (!lines_.empty() && lines_.back().section == section_ && std::abs(lines_.back().y - y) < height / 2) {
    lines_.back().text.append("\t").append(text);
  } else {
    lines_.push_back({.section = section_, .text = std::string{text}, .y = y});
  }
}

std::string TextRecorder::text() const {
  std::string all;
  std::string_view section;
  for (auto const& line : lines_) {
    if (line.section != section || all.empty()) all.append("[").append(line.section).append("]\n");
    section = line.section;
    all.append(line.text).append("\n");
  }
  return all;
}

}  // namespace headroom::viewer
