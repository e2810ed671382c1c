#include "text_recorder.hpp"

#include <cmath>
#include <string>

namespace headroom::viewer {

void TextRecorder::begin_frame() {
  pieces_.clear();
  sections_.assign(1, std::string{});
}

void TextRecorder::section(std::string_view name) {
  if (sections_.back() != name) sections_.emplace_back(name);
}

void TextRecorder::add(std::string_view text, TextPlace const& place) {
  pieces_.push_back({.section = sections_.size() - 1, .text = std::string{text}, .place = place});
}

std::string TextRecorder::text() const {
  std::string all;
  Piece const* line = nullptr;  // the first of the line that is being written
  for (auto const& piece : pieces_) {
    auto const is_section_new = line == nullptr || sections_[line->section] != sections_[piece.section];
    if (!is_section_new && std::abs(line->place.y - piece.place.y) < piece.place.height / 2) {
      all.append("\t").append(piece.text);
      continue;
    }
    if (line != nullptr) all.append("\n");
    if (is_section_new) all.append("[").append(sections_[piece.section]).append("]\n");
    all.append(piece.text);
    line = &piece;
  }
  return line == nullptr ? all : all.append("\n");
}

std::string TextRecorder::places() const {
  std::string all;
  for (auto const& piece : pieces_) {
    all.append(sections_[piece.section]).append("\t");
    for (auto const edge : {piece.place.x, piece.place.y, piece.place.width, piece.place.height}) {
      all.append(std::to_string(std::lround(edge))).append("\t");
    }
    all.append(piece.text).append("\n");
  }
  return all;
}

}  // namespace headroom::viewer
