// headroom: the list of processes that can be opened: the living, and the dead that left a file.
//
// Drawn in the window while nothing is open, and over everything else on Ctrl+O. Its figures are read anew once a second while it is in
// sight. Thread safety: none.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command/process_figures.hpp"
#include "widgets.hpp"

namespace headroom::viewer {

class ProcessList {
public:
  static constexpr std::size_t kMostShown = 1'000;
  explicit ProcessList(std::optional<std::string> folder, std::size_t most_shown = kMostShown)
      : folder_{std::move(folder)}, most_shown_{most_shown} {}

  /// Into the current window. The path of what the person wants to open, once.
  [[nodiscard]] std::optional<std::string> draw(Ui& ui);

private:
  struct Row {
    std::string path;
    command::ProcessFigures figures;
  };
  void refresh();
  void draw_row(Ui& ui, Row const& row);

  std::optional<std::string> folder_;
  std::size_t most_shown_;
  std::size_t left_out_ = 0;  // files for which there was no room
  std::vector<Row> rows_;
  std::vector<std::string> problems_;
  std::string typed_;
  std::optional<std::chrono::steady_clock::time_point> refreshed_;
};

}  // namespace headroom::viewer
