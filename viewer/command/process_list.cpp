#include "process_list.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include <headroom/byte_size.hpp>

#include "command/find_process.hpp"
#include "command/guarded_flight.hpp"
#include "command/output.hpp"

namespace headroom::viewer {
namespace {

constexpr std::chrono::seconds kEvery{1};
constexpr std::size_t kMostProblems = 3;

constexpr std::array kColumns{
    Column{.title = "Process", .least = 18, .help = "Name and number; click to open it"},
    Column{.title = "State", .width = 9, .rank = 1},
    Column{.title = "Used", .width = 10, .is_right = true, .help = "Sum of the live allocations of its managers"},
    Column{.title = "Budget", .width = 11, .rank = 2, .is_right = true},
    Column{.title = "Peak", .width = 10, .rank = 3, .is_right = true, .help = "Sum of its managers' peaks"},
    Column{.title = "Allocations", .width = 12, .rank = 5, .is_right = true},
    Column{.title = "Failures", .width = 9, .rank = 4, .is_right = true, .help = "Requests that were refused"},
    Column{.title = "Age", .width = 12, .rank = 6, .is_right = true},
};

}  // namespace

void ProcessList::refresh() {
  auto const now = std::chrono::steady_clock::now();
  if (refreshed_ && now - *refreshed_ < kEvery) return;
  refreshed_ = now;
  rows_.clear();
  problems_.clear();
  left_out_ = 0;
  for (auto const& folder : command::folders_or_default(folder_)) {
    auto const found = flight::find_flights(folder);
    if (!found) {
      problems_.push_back(found.error().to_string());
      continue;
    }
    for (auto const& file : *found) {
      if (rows_.size() == most_shown_) {
        ++left_out_;
        continue;
      }
      auto const opened = command::GuardedFlight::open(file.path);
      if (!opened) {
        problems_.push_back(opened.error().to_string());
        continue;
      }
      rows_.push_back({.path = file.path, .figures = command::process_figures(opened->view())});
    }
  }
  std::ranges::stable_partition(rows_, [](Row const& row) { return row.figures.living(); });
}

void ProcessList::draw_row(Ui& ui, Row const& row) {
  auto const& figures = row.figures;
  auto const& colours = ui.colours();
  ui.elided(std::filesystem::path{figures.info.program}.filename().string() + " (" + std::to_string(figures.info.pid) + ")");
  ui.help(figures.info.command);
  ui.cell();
  ui.text_coloured(figures.state, figures.living() ? colours.good : figures.state == "killed" ? colours.bad : colours.soft);
  ui.cell();
  ui.bytes_right(figures.allocated_bytes);
  ui.cell();
  ui.text_right(command::format_budget(figures.budget_bytes));
  ui.cell();
  ui.bytes_right(figures.peak_bytes);
  ui.cell();
  ui.count_right(figures.live_allocations);
  ui.cell();
  ui.text_right(format_count(figures.failures), figures.failures != 0 ? colours.bad : colours.text);
  ui.cell();
  ui.text_right(command::format_seconds(figures.age_seconds));
}

std::optional<std::string> ProcessList::draw(Ui& ui) {
  refresh();
  ui.section("processes");
  std::optional<std::string> wanted;
  auto const size = ImGui::GetFontSize();
  ui.heading("Open a process or a file");
  auto const field = std::max(ImGui::GetContentRegionAvail().x - size * 6, size * 4);
  static_cast<void>(ui.input("##path", "path of a flight file, post-mortem or history; or a process number", typed_, field));
  auto const is_entered = ImGui::IsItemDeactivatedAfterEdit() && ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Enter));
  Ui::same_line();
  if ((ui.button("Open") || is_entered) && !typed_.empty()) wanted = typed_;
  for (std::size_t i = 0; i < std::min(problems_.size(), kMostProblems); ++i) ui.wrapped(problems_[i], ui.colours().warning);
  if (problems_.size() > kMostProblems) ui.warning("and " + command::counted(problems_.size() - kMostProblems, "more problem"));
  if (rows_.empty()) {
    ui.empty("No process of this user has written a flight file here",
             "Start a program that uses headroom, or ./run demo; a file can also be dropped on this window.");
    return wanted;
  }
  if (left_out_ != 0) {
    ui.warning("the " + format_count(rows_.size()) + " that started last; " + command::counted(left_out_, "older file") +
               " can be opened by path or number");
  }
  if (auto table = ui.table("processes", kColumns)) {
    table.rows(rows_.size(), [&](std::size_t i) {
      ui.cell();
      if (ui.row_button(i, false)) wanted = rows_[i].path;
      draw_row(ui, rows_[i]);
    });
  }
  return wanted;
}

}  // namespace headroom::viewer
